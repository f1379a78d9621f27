//! `-v`, `-info`, `-h` and mistakes on the command line.

mod node;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use node::{Node, SHIM};

fn call(node: &Node, words: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(SHIM)
        .args(words)
        .env("PATH", format!("{}:/usr/bin:/bin", node.dir.path().display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Not everything reads its input.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

#[test]
fn the_version_is_ours_and_then_that_of_the_stock_shim() {
    let node = Node::new("echo stock $1");
    let output = call(&node, &["-v"], b"");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = format!(
        "containerd-shim-nvidia-v2:\n  Version:  {}\n  Handler:  nvidia\n\nstock -v\n",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(text, expected);
}

#[test]
fn info_is_the_answer_of_the_stock_shim() {
    let node = Node::new("test \"$*\" = -info && cat && echo warning >&2");
    let output = call(&node, &["-info"], b"");
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty());
    assert_eq!(output.stderr, b"warning\n");
}

#[test]
fn a_stock_shim_without_info_says_so_in_its_own_words() {
    let node = Node::new("echo 'flag provided but not defined: -info' >&2; exit 2");
    let output = call(&node, &["-info"], b"");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(output.stderr, b"flag provided but not defined: -info\n");
}

#[test]
fn help_and_mistakes_end_as_with_go() {
    let node = Node::new("exit 0");
    let help = call(&node, &["-h"], b"");
    assert_eq!(help.status.code(), Some(0));
    assert!(help.stdout.is_empty());
    assert!(help.stderr.starts_with(b"Usage of containerd-shim-nvidia-v2:\n"));
    let mistake = call(&node, &["-nope", "start"], b"");
    assert_eq!(mistake.status.code(), Some(2));
    assert!(mistake.stderr.starts_with(b"flag provided but not defined: -nope\nUsage of "));
}
