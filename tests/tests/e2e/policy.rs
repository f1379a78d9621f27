//! Containers that may not have what they ask for: by the image's requirements, by the node's
//! policy.

use tests::{BUSYBOX, Containerd, Gpu, Node, Release, Sight, on_each_containerd};

on_each_containerd!(
    requirement_that_is_not_met,
    strict_policy_hears_the_scheduler_only,
    denial_that_fails,
);

fn with_busybox(release: Release) -> (Containerd, Node) {
    let containerd = Containerd::start(release);
    containerd.import(&BUSYBOX);
    (containerd, Node::new(2))
}

fn requirement_that_is_not_met(release: Release) {
    let (containerd, node) = with_busybox(release);
    let asking = |id| {
        let asking = containerd.container(&BUSYBOX, id).on(&node).gpus("all");
        asking.env("NVIDIA_REQUIRE_CUDA", "cuda>=99.0 driver>=9999")
    };
    let words = asking("c").run(&["true"]).refused();
    for word in ["NVS-107", "NVIDIA_REQUIRE_CUDA", "cuda>=99.0", "newer driver", "older image"] {
        assert!(words.contains(word), "{word} is not in: {words}");
    }
    containerd.ctr(&["containers", "delete", "c"]);
    asking("d").env("NVIDIA_DISABLE_REQUIRE", "true").run(&["true"]).ok();
    node.configure("", "requirements = 'warn'");
    asking("e").run(&["true"]).ok();
    assert!(containerd.log().contains("cuda>=99.0"));
    containerd.assert_clean();
}

fn strict_policy_hears_the_scheduler_only(release: Release) {
    let (containerd, node) = with_busybox(release);
    node.configure("", "policy = 'strict'");
    let gpus = |sight: &Sight| {
        let is_gpu = |path: &&str| node.gpus().iter().any(|gpu| gpu.node() == **path);
        sight.nodes().into_iter().filter(is_gpu).map(str::to_owned).collect::<Vec<_>>()
    };
    let numbers: Vec<String> = node.gpus().iter().map(Gpu::number).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();

    let image = containerd.container(&BUSYBOX, "c").on(&node).gpus("all");
    let sight = image.clone().look(&numbers);
    assert!(sight.devices.is_empty(), "{sight:?}");
    assert!(containerd.log().contains("policy is strict"));

    let place = "/var/run/nvidia-container-devices/1";
    let mount = format!("--mount=type=bind,src=/dev/null,dst={place},options=rbind:ro");
    let sight = image.flag(mount).look(&numbers);
    assert_eq!(gpus(&sight), [node.gpu(1).node()]);

    let privileged = containerd.container(&BUSYBOX, "c").on(&node).gpus("0");
    let sight = privileged.flag("--cap-add=CAP_SYS_ADMIN").look(&numbers);
    assert_eq!(gpus(&sight), [node.gpu(0).node()]);
    containerd.assert_clean();
}

fn denial_that_fails(release: Release) {
    let (containerd, node) = with_busybox(release);
    node.configure("", "policy = 'strict'\non-denied = 'fail'");
    let words = containerd.container(&BUSYBOX, "c").on(&node).gpus("0").run(&["true"]).refused();
    assert!(words.contains("NVS-109") && words.contains("policy is strict"), "{words}");
    containerd.ctr(&["containers", "delete", "c"]);
    containerd.container(&BUSYBOX, "d").on(&node).run(&["true"]).ok();
    containerd.assert_clean();
}
