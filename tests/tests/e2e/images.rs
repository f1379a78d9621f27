//! A real loader in the container finds the driver's libraries.

use nvidia_shim::simulate::Layout;
use tests::{
    BUSYBOX, Containerd, Cuda, GLIBC, GLIBC_LAYERED, Image, Node, Output, Release, Run,
    on_each_containerd,
};

on_each_containerd!(
    overlay_of_one_and_of_four_layers,
    native_snapshots,
    mounted_root,
    read_only_root,
    image_without_a_loader,
    layouts_of_other_hosts,
    libraries_at_the_path_of_the_host,
);

fn machine(release: Release, image: &Image) -> (Containerd, Node) {
    let containerd = Containerd::start(release);
    containerd.import(image);
    (containerd, Node::new(2))
}

/// Asserts that CUDA starts, counts one GPU, and that `ldconfig -p` knows the driver.
#[track_caller]
fn assert_cuda(container: &Run<'_>) {
    let sight = tests::Sight::parse(&container.clone().run(&["probe", "--cuda"]).ok());
    let cuda = sight.cuda.expect("an answer");
    assert_eq!(cuda, Cuda::Loaded { init: 0, result: 0, count: 1 });
    assert_known(container.clone().run(&["ldconfig", "-p"]));
}

#[track_caller]
fn assert_known(cache: Output) {
    let cache = cache.ok();
    for name in ["libcuda.so.1", "libnvidia-ml.so.1", "libc.so.6"] {
        let line = cache.lines().find(|line| line.trim_start().starts_with(name));
        assert!(line.is_some(), "{name} is not in\n{cache}");
    }
}

fn overlay_of_one_and_of_four_layers(release: Release) {
    for image in [GLIBC, GLIBC_LAYERED] {
        let (containerd, node) = machine(release, &image);
        assert_cuda(&containerd.container(&image, "c").on(&node).gpus("0"));
        // The image's own configuration stays the container's to change.
        let script = "echo x >> /etc/ld.so.conf && touch /etc/new && ldconfig && probe --cuda";
        let run = containerd.container(&image, "c").on(&node).gpus("0");
        let sight = tests::Sight::parse(&run.run(&["sh", "-c", script]).ok());
        assert_eq!(sight.cuda, Some(Cuda::Loaded { init: 0, result: 0, count: 1 }));
        containerd.assert_clean();
    }
}

fn native_snapshots(release: Release) {
    let (containerd, node) = machine(release, &GLIBC);
    assert_cuda(
        &containerd.container(&GLIBC, "c").flag("--snapshotter=native").on(&node).gpus("0"),
    );
    containerd.assert_clean();
}

fn mounted_root(release: Release) {
    let containerd = Containerd::start(release);
    let node = Node::new(2);
    let root = containerd.path("rootfs");
    GLIBC.unpack(&root);
    assert_cuda(&containerd.container_in(&root, "c").on(&node).gpus("0"));
    containerd.assert_clean();
}

fn read_only_root(release: Release) {
    let (containerd, node) = machine(release, &GLIBC);
    assert_cuda(&containerd.container(&GLIBC, "c").flag("--read-only").on(&node).gpus("0"));
    containerd.assert_clean();
}

fn image_without_a_loader(release: Release) {
    let (containerd, node) = machine(release, &BUSYBOX);
    let sight = containerd.container(&BUSYBOX, "c").on(&node).gpus("0").look(&[]);
    assert!(sight.mounts.iter().any(|point| point.contains("libcuda.so.")), "{sight:?}");
    containerd.assert_clean();
}

fn layouts_of_other_hosts(release: Release) {
    let containerd = Containerd::start(release);
    containerd.import(&GLIBC);
    for layout in [
        Layout::Rhel,
        Layout::Talos,
        Layout::DriverContainer,
        Layout::Nixos,
        Layout::Gke,
        Layout::Flatcar,
    ] {
        assert_cuda(&containerd.container(&GLIBC, "c").on(&Node::with(layout, 2)).gpus("0"));
    }
    containerd.assert_clean();
}

/// In a directory where the image's loader looks only if its cache says so.
fn libraries_at_the_path_of_the_host(release: Release) {
    let containerd = Containerd::start(release);
    containerd.import(&GLIBC);
    let node = Node::with(Layout::Talos, 2);
    node.configure("", "library-path = 'host'");
    let run = containerd.container(&GLIBC, "c").on(&node).gpus("0");
    let sight = run.clone().look(&[]);
    assert!(sight.mounts.iter().any(|point| point.starts_with("/usr/local/lib/libcuda.so.")));
    assert_cuda(&run);
    containerd.assert_clean();
}
