//! Containers in a user namespace.

use tests::{Containerd, Cuda, GLIBC, Node, Release, Setup, Sight, on_each_containerd};

on_each_containerd!(gpu_in_a_user_namespace);

/// On 1.6 and 1.7 `ctr` sends the old `CreateOptions` with it, which must be translated.
fn gpu_in_a_user_namespace(release: Release) {
    // 2.x refuses options of our type together with user namespaces, so the node is the host.
    let node = Node::new(2);
    let setup = Setup { host: Some(&node), ..Setup::default() };
    let containerd = Containerd::start_as(release, setup);
    containerd.import(&GLIBC);
    let run = containerd
        .container(&GLIBC, "c")
        .flag("--uidmap=0:100000:65536")
        .flag("--gidmap=0:100000:65536")
        .gpus("0");
    let script = "touch /etc/mine && probe --cuda";
    let sight = Sight::parse(&run.run(&["sh", "-c", script]).ok());
    assert_eq!(sight.cuda, Some(Cuda::Loaded { init: 0, result: 0, count: 1 }));
    containerd.assert_clean();
}
