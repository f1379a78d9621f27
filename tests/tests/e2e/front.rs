//! The OCI-runtime front on the stock shim: `runtime_type = "io.containerd.runc.v2"` and a
//! `BinaryName`, as k3s, RKE2 and the GPU operator write it.

use std::fs;

use nix::errno::Errno;
use nix::mount::umount;
use serde_json::Value;
use tests::{
    BUSYBOX, Containerd, Cuda, GLIBC, Image, Node, Release, Run, Setup, Sight, eventually,
    on_each_containerd, product,
};

use crate::pods::Cluster;

on_each_containerd!(
    sees_its_gpu_and_loads_the_driver,
    starts_again_on_the_same_snapshot,
    lives_and_is_killed,
    crun_behind_it,
    says_no_as_runc_does,
    who_asks_for_nothing_is_not_touched,
    every_name_is_a_runtime,
    pods_as_k3s_runs_them,
);

/// A node that is the host itself.
fn machine(release: Release, image: &Image) -> (Containerd, Node) {
    let node = Node::new(2);
    let setup = Setup { host: Some(&node), ..Setup::default() };
    let containerd = Containerd::start_as(release, setup);
    containerd.import(image);
    (containerd, node)
}

fn container<'a>(containerd: &'a Containerd, image: &Image, id: &'a str) -> Run<'a> {
    containerd.container(image, id).oci_runtime(&product().join("nvidia-container-runtime"))
}

const ONE_GPU: Option<Cuda> = Some(Cuda::Loaded { init: 0, result: 0, count: 1 });

fn sees_its_gpu_and_loads_the_driver(release: Release) {
    let (containerd, node) = machine(release, &GLIBC);
    let run = container(&containerd, &GLIBC, "c").gpus("0").run(&["probe", "--cuda"]);
    let sight = Sight::parse(&run.ok());
    assert_eq!(sight.cuda, ONE_GPU);
    assert!(sight.nodes().contains(&node.gpu(0).node().as_str()), "{sight:?}");
    assert!(!sight.nodes().contains(&node.gpu(1).node().as_str()), "{sight:?}");
    let line = "runtime=\"nvidia-container-runtime\" id=\"c\"";
    let decided = || containerd.log().contains(line);
    assert!(eventually(decided), "the decision is not in containerd's log");
    containerd.assert_clean();
}

/// Here the upper directory is written, and a task on it finds what an earlier one left.
fn starts_again_on_the_same_snapshot(release: Release) {
    let (containerd, _node) = machine(release, &GLIBC);
    container(&containerd, &GLIBC, "c").gpus("1").detach(&["sleep", "1000"]);
    for _ in 0..2 {
        let output = containerd.exec("c", &["sh", "-c", "ldconfig && probe --cuda"]).ok();
        assert_eq!(Sight::parse(&output).cuda, ONE_GPU);
        containerd.ctr(&["tasks", "kill", "--signal", "SIGKILL", "c"]).ok();
        assert!(eventually(|| containerd.state("c").as_deref() == Some("STOPPED")));
        containerd.ctr(&["tasks", "delete", "c"]);
        containerd.ctr(&["tasks", "start", "--detach", "--null-io", "c"]).ok();
    }
    let output = containerd.exec("c", &["probe", "--cuda"]).ok();
    assert_eq!(Sight::parse(&output).cuda, ONE_GPU);
    containerd.remove("c");
    containerd.assert_clean();
}

fn lives_and_is_killed(release: Release) {
    let (containerd, node) = machine(release, &BUSYBOX);
    container(&containerd, &BUSYBOX, "c").gpus("0").detach(&["sleep", "1000"]);
    assert_eq!(containerd.state("c").as_deref(), Some("RUNNING"));
    let config = containerd.bundle(containerd.name(), "c").join("config.json");
    let config: Value = serde_json::from_slice(&fs::read(config).expect("config.json")).unwrap();
    // It could make nodes, and there is a GPU that is not its own.
    let masks = |hook: &Value| {
        let words = hook["args"].as_array().into_iter().flatten();
        words.filter_map(Value::as_str).any(|word| word == "--disable-device-node-modification")
    };
    let hooks = config["hooks"]["createContainer"].as_array().expect("hooks");
    assert_eq!(hooks.iter().filter(|hook| masks(hook)).count(), 1);
    let sight = Sight::parse(&containerd.exec("c", &["probe"]).ok());
    assert!(sight.nodes().contains(&node.gpu(0).node().as_str()), "{sight:?}");
    let output = containerd.exec("c", &["sh", "-c", "exit 4"]);
    assert_eq!(output.status.code(), Some(4), "{output}");
    containerd.ctr(&["tasks", "pause", "c"]).ok();
    containerd.ctr(&["tasks", "resume", "c"]).ok();
    containerd.ctr(&["tasks", "kill", "--signal", "SIGKILL", "c"]).ok();
    assert!(eventually(|| containerd.state("c").as_deref() == Some("STOPPED")));
    containerd.remove("c");
    containerd.assert_clean();
}

fn says_no_as_runc_does(release: Release) {
    let (containerd, node) = machine(release, &BUSYBOX);
    let words = container(&containerd, &BUSYBOX, "c").gpus("7").run(&["true"]).refused();
    let uuid = node.gpu(0).uuid;
    for word in ["OCI runtime create failed", "NVS-101", "NVIDIA_VISIBLE_DEVICES", &uuid] {
        assert!(words.contains(word), "{word} is not in: {words}");
    }
    containerd.ctr(&["containers", "delete", "c"]);
    containerd.assert_clean();
}

fn who_asks_for_nothing_is_not_touched(release: Release) {
    let (containerd, _node) = machine(release, &BUSYBOX);
    let config = containerd.bundle(containerd.name(), "c").join("config.json");
    let bytes = |run: Run<'_>| {
        run.detach(&["sleep", "1000"]);
        let bytes = fs::read(&config).expect("config.json");
        containerd.remove("c");
        bytes
    };
    let stock = bytes(containerd.container(&BUSYBOX, "c").runtime("io.containerd.runc.v2"));
    assert_eq!(bytes(container(&containerd, &BUSYBOX, "c")), stock);
    containerd.assert_clean();
}

fn every_name_is_a_runtime(release: Release) {
    let (containerd, node) = machine(release, &BUSYBOX);
    for name in ["", ".cdi", ".legacy", "-experimental"] {
        let program = product().join(format!("nvidia-container-runtime{name}"));
        let run = containerd.container(&BUSYBOX, "c").oci_runtime(&program);
        let sight = run.gpus("0").look(&[]);
        assert!(sight.nodes().contains(&node.gpu(0).node().as_str()), "{name}: {sight:?}");
    }
    containerd.assert_clean();
}

fn pods_as_k3s_runs_them(release: Release) {
    let cluster = Cluster::with_front(release);
    let pod = cluster.run_pod();
    let plain = cluster.create(&pod, "plain", None);
    let asking = cluster.create(&pod, "asking", Some("0"));
    for container in [&plain, &asking] {
        cluster.cri.start(container).expect("StartContainer");
    }
    assert!(cluster.look(&plain).devices.is_empty());
    let sight = cluster.look(&asking);
    assert!(sight.nodes().contains(&cluster.node.gpu(0).node().as_str()), "{sight:?}");
    let impossible = cluster.create(&pod, "impossible", Some("9"));
    let refusal = cluster.cri.start(&impossible).expect_err("GPU 9 does not exist");
    assert!(refusal.message.contains("NVS-101"), "{refusal:?}");
    assert!(cluster.containerd.processes("containerd-shim-nvidia-v2").is_empty());
    cluster.remove(&pod);
}

/// Debian's crun is of the installed containerd's age: newer ones write specs that it does not know,
/// and trixie's does.
fn crun_behind_it(release: Release) {
    let (containerd, node) = machine(release, &GLIBC);
    let dir = containerd.path("");
    let crun = match release {
        Release::Installed => tests::crun(&dir),
        Release::V1_7 | Release::V2_1 => tests::newer_crun(&dir),
    };
    node.set_runtimes(&[&crun]);
    // It refuses to work where version 2 of cgroups lies beside version 1.
    let alone = containerd.inside(|| umount("/sys/fs/cgroup/unified"));
    assert!(matches!(alone, Ok(()) | Err(Errno::ENOENT | Errno::EINVAL)), "{alone:?}");

    container(&containerd, &GLIBC, "c").gpus("0").detach(&["sleep", "1000"]);
    let sight = Sight::parse(&containerd.exec("c", &["probe", "--cuda"]).ok());
    assert_eq!(sight.cuda, ONE_GPU);
    assert!(sight.nodes().contains(&node.gpu(0).node().as_str()), "{sight:?}");
    containerd.remove("c");
    let words = container(&containerd, &GLIBC, "d").gpus("7").run(&["true"]).refused();
    assert!(words.contains("NVS-101"), "{words}");
    containerd.ctr(&["containers", "delete", "d"]);
    container(&containerd, &GLIBC, "e").run(&["true"]).ok();
    containerd.assert_clean();
}
