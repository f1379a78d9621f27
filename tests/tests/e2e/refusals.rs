//! Containers that asked for a GPU and cannot have it, and others that must not suffer for it.

use std::fs;

use tests::{BUSYBOX, Containerd, Node, Release, on_each_containerd};

on_each_containerd!(
    names_what_was_asked_and_what_exists,
    broken_settings_refuse_only_who_asks,
    node_without_driver,
);

/// The one line that a person gets.
#[track_caller]
fn refusal(containerd: &Containerd, node: &Node, ask: &str) -> String {
    let output = containerd.container(&BUSYBOX, "c").on(node).gpus(ask).run(&["true"]);
    let words = output.refused();
    let lines: Vec<_> = words.lines().filter(|line| line.starts_with("ctr: ")).collect();
    assert_eq!(lines.len(), 1, "{words}");
    // The container is there although its task is not: `ctr run --rm` gave up before.
    containerd.ctr(&["containers", "delete", "c"]);
    lines[0].to_owned()
}

fn with_busybox(release: Release) -> Containerd {
    let containerd = Containerd::start(release);
    containerd.import(&BUSYBOX);
    containerd
}

fn names_what_was_asked_and_what_exists(release: Release) {
    let containerd = with_busybox(release);
    let node = Node::new(2);
    let line = refusal(&containerd, &node, "7");
    let uuids: Vec<String> = node.gpus().into_iter().map(|gpu| gpu.uuid).collect();
    for word in ["NVS-101", "NVIDIA_VISIBLE_DEVICES", "7", &uuids[0], &uuids[1]] {
        assert!(line.contains(word), "{word} is not in: {line}");
    }
    assert!(refusal(&containerd, &node, "GPU-00000000").contains("GPU-00000000"));
    containerd.assert_clean();
}

fn broken_settings_refuse_only_who_asks(release: Release) {
    let containerd = with_busybox(release);
    let node = Node::new(1);
    fs::write(node.config(), "[nvidia-shim\n").expect("config.toml");
    let line = refusal(&containerd, &node, "all");
    assert!(line.contains("NVS-002") && line.contains("config.toml"), "{line}");
    containerd.container(&BUSYBOX, "d").on(&node).run(&["true"]).ok();
    containerd.assert_clean();
}

fn node_without_driver(release: Release) {
    let containerd = with_busybox(release);
    let node = Node::new(1);
    node.unload();
    let line = refusal(&containerd, &node, "all");
    assert!(line.contains("NVS-201"), "{line}");
    containerd.container(&BUSYBOX, "d").on(&node).run(&["true"]).ok();
    containerd.assert_clean();
}
