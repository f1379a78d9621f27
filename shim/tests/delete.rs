//! `delete`, as containerd sees it.

mod node;

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};
use std::time::SystemTime;

use containerd_shim_protos::api::DeleteResponse;
use containerd_shim_protos::protobuf::Message;
use node::{Bundle, Node, SILENT_INNER, accepts, eventually_gone, is_alive, kill, script};

fn response(output: &Output) -> DeleteResponse {
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    DeleteResponse::parse_from_bytes(&output.stdout).unwrap()
}

#[test]
fn the_answer_names_the_process_that_was_killed() {
    let node = Node::new(SILENT_INNER);
    let bundle = node.bundle("one", "{}");
    fs::write(bundle.dir.join("init.pid"), "4711").unwrap();
    let before = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    for _twice in 0..2 {
        let response = response(&bundle.delete());
        assert_eq!((response.pid, response.exit_status), (4711, 137));
        assert!(u64::try_from(response.exited_at.seconds).unwrap() >= before);
    }
}

#[test]
fn an_empty_or_broken_bundle_is_answered_too() {
    let node = Node::new(SILENT_INNER);
    let bundle = node.bundle("one", "{}");
    assert_eq!(response(&bundle.delete()).pid, 0);
    for file in ["init.pid", "options.json", "runtime", "nvidia-shim.json"] {
        fs::write(bundle.dir.join(file), "{ nonsense").unwrap();
    }
    assert_eq!(response(&bundle.delete()).pid, 0);
}

/// A runc that writes down how it was called.
fn recording_runc(node: &Node, bundle: &Bundle<'_>) {
    let (runc, root) = (node.dir.path().join("runc"), node.dir.path().join("state"));
    script(&runc, &format!("echo \"$@\" >> {}/calls", node.dir.path().display()));
    fs::write(bundle.dir.join("runtime"), runc.to_str().unwrap()).unwrap();
    let options = format!(r#"{{"root":"{}","binary_name":"x"}}"#, root.display());
    fs::write(bundle.dir.join("options.json"), options).unwrap();
}

#[test]
fn runc_is_called_only_for_a_container_that_it_knows() {
    let node = Node::new(SILENT_INNER);
    let bundle = node.bundle("one", "{}");
    recording_runc(&node, &bundle);
    response(&bundle.delete());
    assert!(!node.dir.path().join("calls").exists());
    let root = node.dir.path().join("state/test");
    fs::create_dir_all(root.join("one")).unwrap();
    response(&bundle.delete());
    let calls = fs::read_to_string(node.dir.path().join("calls")).unwrap();
    assert_eq!(calls, format!("--root {} delete --force one\n", root.display()));
}

#[test]
fn every_mount_on_the_root_filesystem_goes() {
    let node = Node::new(SILENT_INNER);
    let bundle = node.bundle("one", "{}");
    let rootfs = bundle.dir.join("rootfs");
    let mount = |target: &std::path::Path| {
        fs::create_dir_all(target).unwrap();
        let mount = ["-t", "tmpfs", "none", target.to_str().unwrap()];
        assert!(Command::new("mount").args(mount).status().unwrap().success());
    };
    mount(&rootfs);
    mount(&rootfs);
    mount(&rootfs.join("proc"));
    response(&bundle.delete());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(rootfs.to_str().unwrap()), "{mounts}");
}

#[test]
fn a_root_filesystem_that_is_a_link_is_not_followed() {
    let node = Node::new(SILENT_INNER);
    let bundle = node.bundle("one", "{}");
    let elsewhere = node.dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let target = elsewhere.to_str().unwrap();
    assert!(
        Command::new("mount").args(["-t", "tmpfs", "none", target]).status().unwrap().success()
    );
    fs::remove_dir(bundle.dir.join("rootfs")).unwrap();
    symlink(&elsewhere, bundle.dir.join("rootfs")).unwrap();
    response(&bundle.delete());
    assert!(fs::read_to_string("/proc/self/mountinfo").unwrap().contains(target));
}

#[test]
fn after_the_death_of_the_relay_its_inner_shim_and_sockets_go() {
    let node = Node::new(SILENT_INNER);
    let bundle = node.bundle("one", "{}");
    let socket = bundle.started();
    let (relay, inner) = (bundle.process("relay"), bundle.process("inner"));
    kill(relay);
    // What containerd notices, too, before it calls.
    eventually_gone("the listener", || accepts(&socket));
    response(&bundle.delete());
    assert!(!is_alive(inner));
    assert!(!socket.exists());
    response(&bundle.delete());
}

#[test]
fn a_living_relay_and_its_inner_shim_are_let_be() {
    let node = Node::new(SILENT_INNER);
    let bundle = node.bundle("one", "{}");
    let socket = bundle.started();
    let (relay, inner) = (bundle.process("relay"), bundle.process("inner"));
    response(&bundle.delete());
    assert!(is_alive(relay) && is_alive(inner) && accepts(&socket));
}
