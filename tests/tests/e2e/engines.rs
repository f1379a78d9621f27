//! Specs that we generate, for engines that inject CDI devices themselves: containerd and podman,
//! with plain runc and our hook, and no shim of ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MsFlags, mount};
use tests::cri::messages::{CDIDevice, ContainerConfig};
use tests::{Containerd, Cuda, GLIBC, Node, Output, Release, Setup, Sight, product};

use crate::pods::{Cluster, container_config};

/// Writes a spec of the node, which is the host itself where `containerd` runs.
fn generate(containerd: &Containerd, node: &Node, file: &Path, flags: &[&str]) {
    let root = node.root();
    let mut command = Command::new(product().join("nvidia-shim"));
    command.args(["cdi", "generate", "--output"]).arg(file);
    command.arg("--driver-root").arg(&root).arg("--dev-root").arg(&root);
    command.arg("--nvidia-cdi-hook-path").arg(product().join("nvidia-cdi-hook")).args(flags);
    containerd.output(&mut command).ok();
}

fn counting(count: i32) -> Option<Cuda> {
    Some(Cuda::Loaded { init: 0, result: 0, count })
}

/// The loader knows the driver's libraries.
fn assert_known(cache: &str, directory: &str) {
    for name in ["libcuda.so.1", "libnvidia-ml.so.1", "libc.so.6"] {
        let line = cache.lines().find(|line| line.trim_start().starts_with(&format!("{name} ")));
        let line = line.unwrap_or_else(|| panic!("{name} is not in\n{cache}"));
        assert!(name == "libc.so.6" || line.contains(directory), "{line}");
    }
}

/// Where the node has the driver, and so the container.
const DIRECTORY: &str = "/usr/lib/x86_64-linux-gnu/nvidia/current";

mod containerd_injects_generated_devices {
    #[test]
    fn v1_7() {
        super::injects(tests::Release::V1_7);
    }
    #[test]
    fn v2_1() {
        super::injects(tests::Release::V2_1);
    }
}

fn injects(release: Release) {
    let cluster = Cluster::with_stock(release);
    let Cluster { containerd, node, cri, .. } = &cluster;
    containerd.import(&GLIBC);
    for (name, flags) in [("nvidia.yaml", [].as_slice()), ("nvidia.json", &["--no-all-device"])] {
        fs::create_dir_all(containerd.path("cdi")).expect("cdi");
        let file = containerd.path("cdi").join(name);
        generate(containerd, node, &file, flags);
        let pod = cluster.run_pod();
        let run = |name: &str, devices: &[&str]| {
            let container = cluster.create_as(&pod, &asking(name, devices));
            cri.start(&container).expect("StartContainer");
            let exec = |words: &[&str]| {
                let output = cri.exec(&container, words).expect("ExecSync");
                String::from_utf8(output.stdout).expect("UTF-8")
            };
            let sight = Sight::parse(&exec(&["probe", "--cuda"]));
            assert_known(&exec(&["ldconfig", "-p"]), DIRECTORY);
            assert_eq!(exec(&["readlink", &format!("{DIRECTORY}/libcuda.so")]), "libcuda.so.1\n");
            sight
        };
        let gpu = node.gpu(1);
        let sight = run("one", &["1"]);
        assert_eq!(sight.cuda, counting(1));
        assert_eq!(sight.devices.get(&format!("/dev/{}", gpu.node())), Some(&0x6), "{sight:?}");
        assert_eq!(sight.env["NVIDIA_VISIBLE_DEVICES"], "void");
        let both = [gpu.uuid.as_str(), "0"];
        assert_eq!(run("two", &both).cuda, counting(2));
        if flags.is_empty() {
            assert_eq!(run("all", &["all"]).cuda, counting(2));
        }
        cluster.remove(&pod);
        fs::remove_file(file).expect("remove");
    }
}

fn asking(name: &str, devices: &[&str]) -> ContainerConfig {
    let mut config = container_config(name, None);
    config.image.mut_or_insert_default().image = GLIBC.reference();
    config.CDI_devices = devices
        .iter()
        .map(|device| {
            let mut named = CDIDevice::new();
            named.name = format!("nvidia.com/gpu={device}");
            named
        })
        .collect();
    config
}

/// Debian's podman 4.3, which reads CDI up to 0.5.0, and only in `/etc/cdi` and `/var/run/cdi`.
#[test]
fn podman_injects_generated_devices() {
    let node = Node::new(2);
    let setup = Setup { host: Some(&node), ..Setup::default() };
    let containerd = Containerd::start_as(Release::Installed, setup);
    let root = containerd.path("root-of-podman");
    GLIBC.unpack(&root);
    containerd.settled(|| own_etc(&containerd.path("etc")));
    let file = PathBuf::from("/etc/cdi/nvidia.json");
    generate(&containerd, &node, &file, &["--feature-flag=no-additional-gids-for-device-nodes"]);
    let text = containerd.inside(|| fs::read_to_string(&file)).expect("the spec");
    assert!(text.contains(r#""cdiVersion": "0.5.0""#), "{text}");

    let run = |device: &str, words: &[&str]| podman(&containerd, &root, device, words).ok();
    for (device, count) in [("0", 1), ("all", 2)] {
        let sight = Sight::parse(&run(device, &["probe", "--cuda"]));
        assert_eq!(sight.cuda, counting(count), "{sight:?}");
    }
    assert_known(&run(&node.gpu(0).uuid, &["ldconfig", "-p"]), DIRECTORY);
    assert_eq!(run("1", &["readlink", &format!("{DIRECTORY}/libcuda.so")]), "libcuda.so.1\n");
    podman(&containerd, &root, "7", &["true"]).refused();
    containerd.assert_clean();
}

/// A container of podman's, with nothing of the machine's own podman.
fn podman(containerd: &Containerd, root: &Path, device: &str, words: &[&str]) -> Output {
    let state = |name: &str| containerd.path("podman").join(name).display().to_string();
    let mut command = Command::new("podman");
    command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command.args(["--root", &state("root"), "--runroot", &state("run"), "--tmpdir", &state("tmp")]);
    command.args(["--storage-driver=vfs", "--runtime=runc", "--cgroup-manager=cgroupfs"]);
    command.args(["--events-backend=none", "run", "--rm", "--network=none", "--log-driver=none"]);
    // Higher limits need CAP_SYS_RESOURCE, which root of a test machine may lack.
    command.args(["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]);
    // It leaves that of its monitor behind.
    command.args(["--cgroups=no-conmon", &format!("--cgroup-parent=/{}", containerd.name())]);
    command.arg(format!("--device=nvidia.com/gpu={device}"));
    command.arg("--rootfs").arg(root).args(words);
    containerd.output(&mut command)
}

/// Lays a writable layer of its own over `/etc`.
fn own_etc(layers: &Path) {
    let none: Option<&str> = None;
    fs::create_dir(layers).expect("a directory");
    // An upper layer must not be on another overlay.
    mount(Some("tmpfs"), layers, Some("tmpfs"), MsFlags::empty(), none).expect("tmpfs");
    let [upper, work] = ["upper", "work"].map(|name| layers.join(name));
    fs::create_dir(&upper).and_then(|()| fs::create_dir(&work)).expect("layers");
    let options = format!("lowerdir=/etc,upperdir={},workdir={}", upper.display(), work.display());
    mount(Some("overlay"), "/etc", Some("overlay"), MsFlags::empty(), Some(options.as_str()))
        .expect("overlay");
    fs::create_dir_all("/etc/cdi").expect("/etc/cdi");
}
