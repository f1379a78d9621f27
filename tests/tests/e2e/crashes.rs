//! Daemons that end in the middle.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tests::{BUSYBOX, Containerd, Node, Release, eventually, on_each_containerd};

on_each_containerd!(
    containerd_restarts_under_a_container,
    containerd_is_killed_under_a_container,
    inner_shim_is_killed,
    relay_is_killed,
    relay_outlives_signals,
);

const SLEEP: [&str; 2] = ["sleep", "1000"];

fn running(release: Release, node: &Node) -> Containerd {
    let containerd = Containerd::start(release);
    containerd.import(&BUSYBOX);
    containerd.container(&BUSYBOX, "c").on(node).gpus("0").detach(&SLEEP);
    containerd
}

fn containerd_restarts_under_a_container(release: Release) {
    let node = Node::new(2);
    let mut containerd = running(release, &node);
    containerd.stop();
    containerd.launch();
    goes_on(&containerd);
}

fn containerd_is_killed_under_a_container(release: Release) {
    let node = Node::new(2);
    let mut containerd = running(release, &node);
    containerd.kill();
    containerd.launch();
    goes_on(&containerd);
}

fn goes_on(containerd: &Containerd) {
    assert_eq!(containerd.state("c").as_deref(), Some("RUNNING"));
    assert_eq!(containerd.exec("c", &["echo", "here"]).ok(), "here\n");
    containerd.container(&BUSYBOX, "d").run(&["true"]).ok();
    containerd.remove("c");
    containerd.assert_clean();
}

fn inner_shim_is_killed(release: Release) {
    ends_with(release, "containerd-shim-runc-v2");
}

fn relay_is_killed(release: Release) {
    if tests::runtime() == "io.containerd.runc.v2" {
        return;
    }
    ends_with(release, "containerd-shim-nvidia-v2");
}

/// A service manager that stops everything must not end the relay before the inner shim.
fn relay_outlives_signals(release: Release) {
    if tests::runtime() == "io.containerd.runc.v2" {
        return;
    }
    let node = Node::new(2);
    let containerd = running(release, &node);
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM] {
        for pid in containerd.processes("containerd-shim-nvidia-v2") {
            kill(Pid::from_raw(pid), signal).expect("kill");
        }
    }
    goes_on(&containerd);
}

/// Kills a process of the shim: containerd ends the container, and nothing stays behind.
fn ends_with(release: Release, program: &str) {
    let node = Node::new(2);
    let containerd = running(release, &node);
    let pids = containerd.processes(program);
    assert!(!pids.is_empty(), "no {program} runs");
    for pid in pids {
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("kill");
    }
    assert!(eventually(|| containerd.state("c").as_deref() != Some("RUNNING")));
    containerd.remove("c");
    containerd.assert_clean();
    containerd.container(&BUSYBOX, "c").run(&["true"]).ok();
}
