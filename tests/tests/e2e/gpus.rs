//! Which GPUs a container gets, proven from inside.

use std::collections::BTreeMap;

use nix::libc::{ENXIO, EPERM};
use tests::{BUSYBOX, Containerd, Gpu, Node, Release, Sight, on_each_containerd};

on_each_containerd!(
    gives_what_is_asked,
    gives_gpus_to_exec_too,
    lists_in_any_form,
    says_one_line_in_the_log,
);

/// A node of two GPUs, whose minors are not their indices.
fn machine(release: Release) -> (Containerd, Node) {
    let containerd = Containerd::start(release);
    containerd.import(&BUSYBOX);
    let node = Node::new(2);
    assert_ne!(node.gpu(0).minor, 0);
    (containerd, node)
}

fn look(containerd: &Containerd, node: &Node, ask: Option<&str>) -> Sight {
    let numbers: Vec<String> = node.gpus().iter().map(Gpu::number).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    let mut run = containerd.container(&BUSYBOX, "c").on(node);
    if let Some(value) = ask {
        run = run.gpus(value);
    }
    run.look(&numbers)
}

/// Asserts that a container sees just these GPUs, with the control nodes, and may use no other.
#[track_caller]
fn assert_gpus(sight: &Sight, node: &Node, given: &[Gpu]) {
    let mut nodes: Vec<String> = given.iter().map(Gpu::node).collect();
    nodes.extend(["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"].map(Into::into));
    nodes.sort();
    let mut seen = sight.nodes();
    seen.sort_unstable();
    assert_eq!(seen, nodes);
    // No driver is behind them: ENXIO is what an allowed node answers.
    for (path, errno) in &sight.devices {
        assert_eq!(*errno, ENXIO, "{path}");
    }
    let numbers = node.gpus().into_iter().map(|gpu| {
        let errno = if given.contains(&gpu) { ENXIO } else { EPERM };
        (gpu.number(), errno)
    });
    assert_eq!(sight.made, numbers.collect::<BTreeMap<_, _>>());
}

#[track_caller]
fn assert_nothing(sight: &Sight) {
    assert!(sight.devices.is_empty(), "{sight:?}");
    assert!(sight.made.values().all(|errno| *errno == EPERM), "{sight:?}");
    assert!(!sight.mounts.iter().any(|point| point.contains("nvidia")), "{sight:?}");
}

fn gives_what_is_asked(release: Release) {
    let (containerd, node) = machine(release);
    let [first, second] = <[Gpu; 2]>::try_from(node.gpus()).expect("two GPUs");

    assert_gpus(&look(&containerd, &node, Some("0")), &node, std::slice::from_ref(&first));
    assert_gpus(&look(&containerd, &node, Some("1")), &node, std::slice::from_ref(&second));
    assert_gpus(&look(&containerd, &node, Some("all")), &node, &[first.clone(), second.clone()]);
    assert_gpus(&look(&containerd, &node, Some(&first.uuid)), &node, std::slice::from_ref(&first));
    assert_gpus(&look(&containerd, &node, Some(&second.bus_id)), &node, &[second]);
    assert_gpus(&look(&containerd, &node, Some("none")), &node, &[]);
    for ask in [None, Some("void"), Some("")] {
        assert_nothing(&look(&containerd, &node, ask));
    }
    containerd.assert_clean();
}

fn lists_in_any_form(release: Release) {
    let (containerd, node) = machine(release);
    let [first, second] = <[Gpu; 2]>::try_from(node.gpus()).expect("two GPUs");
    let both = [first.clone(), second.clone()];

    assert_gpus(&look(&containerd, &node, Some("1,0")), &node, &both);
    assert_gpus(&look(&containerd, &node, Some("0,0")), &node, std::slice::from_ref(&first));
    let mixed = format!("{} , {}", second.uuid, first.bus_id.to_uppercase());
    assert_gpus(&look(&containerd, &node, Some(&mixed)), &node, &both);
    containerd.assert_clean();
}

fn gives_gpus_to_exec_too(release: Release) {
    let (containerd, node) = machine(release);
    let [first, second] = <[Gpu; 2]>::try_from(node.gpus()).expect("two GPUs");
    containerd.container(&BUSYBOX, "c").on(&node).gpus("0").detach(&["sleep", "1000"]);
    let output = containerd.exec("c", &["probe", &first.number(), &second.number()]).ok();
    assert_gpus(&Sight::parse(&output), &node, &[first]);
    containerd.remove("c");
    containerd.assert_clean();
}

/// One line for each container that has a GPU, in containerd's own log; none for others.
fn says_one_line_in_the_log(release: Release) {
    let (containerd, node) = machine(release);
    containerd.container(&BUSYBOX, "with").on(&node).gpus("0").run(&["true"]).ok();
    containerd.container(&BUSYBOX, "without").on(&node).run(&["true"]).ok();
    containerd.assert_clean();
    let log = containerd.log();
    let ours: Vec<_> = log.lines().filter(|line| line.contains("shim=")).collect();
    assert_eq!(ours.len(), 1, "{ours:#?}");
    for word in
        ["time=\"", " level=info msg=\"with: NVIDIA_VISIBLE_DEVICES=0 is given ", "id=\"with\""]
    {
        assert!(ours[0].contains(word), "{word} is not in: {}", ours[0]);
    }
}
