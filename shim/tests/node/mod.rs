//! A node with a containerd that is only a directory: bundles, a stock shim of the test's choice
//! beside the "containerd" program, and the shim's real program called as containerd calls it.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const SHIM: &str = env!("CARGO_BIN_EXE_containerd-shim-nvidia-v2");

/// An inner shim that listens (the kernel does that) and never accepts.
pub(crate) const SILENT_INNER: &str = "exec sleep 600";

pub(crate) struct Node {
    pub(crate) dir: TempDir,
}

impl Node {
    /// A node whose stock shim is the shell script `inner`.
    pub(crate) fn new(inner: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        script(&dir.path().join("containerd-shim-runc-v2"), inner);
        Self { dir }
    }

    /// A bundle of the container `id` with the annotations given as JSON.
    pub(crate) fn bundle(&self, id: &str, annotations: &str) -> Bundle<'_> {
        let dir = self.dir.path().join("bundles").join(id);
        fs::create_dir_all(dir.join("rootfs")).unwrap();
        fs::write(dir.join("config.json"), format!(r#"{{"annotations":{annotations}}}"#)).unwrap();
        Bundle { node: self, id: id.to_owned(), dir }
    }

    /// The relays of this node that are alive.
    pub(crate) fn relays(&self) -> Vec<u32> {
        let is_relay = |pid: &u32| words(*pid).get(1).is_some_and(|word| word == "relay");
        // A child looks like its relay until it is the inner shim.
        let is_child = |pid: &u32| parent(*pid).is_some_and(|parent| is_relay(&parent));
        let inside: Vec<_> = self.processes().collect();
        inside.into_iter().filter(is_relay).filter(|pid| !is_child(pid)).collect()
    }

    /// Whatever works in a bundle of this node.
    fn processes(&self) -> impl Iterator<Item = u32> {
        let own = self.dir.path().to_owned();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(move |pid| {
            fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(&own))
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Not the gentle way: a relay whose inner shim never said a word waits for containerd, to
        // tell it why.
        let mut sockets = Vec::new();
        eventually("an empty node", || {
            let inside: Vec<_> = self.processes().collect();
            for pid in &inside {
                let words = words(*pid);
                let named =
                    words.windows(2).filter(|pair| pair[0] == "-outer" || pair[0] == "-inner");
                sockets.extend(named.map(|pair| pair[1].clone()));
                kill(*pid);
            }
            inside.is_empty().then_some(())
        });
        for socket in sockets {
            let _ = fs::remove_file(socket);
        }
        let own = self.dir.path().to_str().unwrap();
        for line in fs::read_to_string("/proc/self/mountinfo").unwrap().lines().rev() {
            if line.contains(own) {
                let target = line.split(' ').nth(4).unwrap();
                Command::new("umount").args(["-l", target]).status().unwrap();
            }
        }
    }
}

pub(crate) struct Bundle<'a> {
    node: &'a Node,
    pub(crate) id: String,
    pub(crate) dir: PathBuf,
}

impl Bundle<'_> {
    /// The shim as containerd calls it.
    pub(crate) fn shim(&self, verb: &[&str]) -> Command {
        let mut command = Command::new(SHIM);
        command
            .args(["-namespace", "test"])
            .arg("-address")
            .arg(self.node.dir.path().join("containerd.sock"))
            .arg("-publish-binary")
            .arg(self.node.dir.path().join("containerd"))
            .args(["-id", &self.id])
            .args(verb)
            .current_dir(&self.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn start(&self) -> Output {
        finish(self.shim(&["start"]).spawn().unwrap(), b"")
    }

    pub(crate) fn delete(&self) -> Output {
        let dir = self.dir.to_str().unwrap();
        finish(self.shim(&["-bundle", dir, "delete"]).spawn().unwrap(), b"")
    }

    /// A successful start: the path of the socket.
    pub(crate) fn started(&self) -> PathBuf {
        let output = self.start();
        assert!(output.status.success(), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        let answer = String::from_utf8(output.stdout).unwrap();
        PathBuf::from(answer.strip_prefix("unix://").unwrap())
    }

    /// A process of the group whose leader has this bundle: `relay` or `inner`.
    pub(crate) fn process(&self, which: &str) -> u32 {
        eventually("the record", || recorded(&self.dir, which))
    }
}

fn recorded(bundle: &Path, which: &str) -> Option<u32> {
    let record: Value =
        serde_json::from_slice(&fs::read(bundle.join("nvidia-shim.json")).ok()?).ok()?;
    record[which]["pid"].as_u64()?.try_into().ok()
}

/// Waits for the end of `child`, which reads `input`.
pub(crate) fn finish(mut child: Child, input: &[u8]) -> Output {
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

pub(crate) fn script(path: &Path, body: &str) {
    fs::write(path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

/// Its command line. A process that is just becoming another program has none for a moment.
pub(crate) fn words(pid: u32) -> Vec<String> {
    texts(pid, "cmdline")
}

pub(crate) fn environment(pid: u32) -> Vec<String> {
    texts(pid, "environ")
}

fn texts(pid: u32, file: &str) -> Vec<String> {
    let text = eventually(file, || {
        let text = fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        (!text.is_empty() || !is_alive(pid)).then_some(text)
    });
    text.split_terminator('\0').map(str::to_owned).collect()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()
}

pub(crate) fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap());
    // It may have ended by itself.
    let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
}

pub(crate) fn accepts(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// What `look` finds, looked for until it is there; the limit only ends a test that has failed.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{what} never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn eventually_gone(what: &str, look: impl Fn() -> bool) {
    eventually(&format!("the end of {what}"), || (!look()).then_some(()));
}
