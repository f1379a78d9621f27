//! `nvidia-cdi-hook`: what our own plan leaves to it, and specs written for NVIDIA's program with
//! ours in its place, on the stock shim and plain runc.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount, umount};
use nix::sys::stat::{Mode, major, minor};
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use tests::{
    BUSYBOX, Containerd, Cuda, GLIBC, Node, Output, Release, Setup, Sight, on_each_containerd,
    product,
};

use crate::attacks::{UPWARDS, refused_or_run, replace, unharmed};

on_each_containerd!(
    finds_gpus_by_bus_id,
    writes_into_volumes,
    serves_specs_for_nvidias_program,
    leads_nowhere_from_a_hostile_image,
    works_in_a_user_namespace,
);

/// Where the node has the driver's libraries.
const DRIVER: &str = "usr/lib/x86_64-linux-gnu/nvidia/current";

const ONE_GPU: Option<Cuda> = Some(Cuda::Loaded { init: 0, result: 0, count: 1 });

/// The spec of a container that runs.
fn spec(containerd: &Containerd, id: &str) -> Value {
    let file = containerd.bundle(containerd.name(), id).join("config.json");
    let text = containerd.inside(|| fs::read(file)).expect("config.json");
    serde_json::from_slice(&text).expect("JSON")
}

/// udev's names lie in the tmpfs that `/dev` is.
fn finds_gpus_by_bus_id(release: Release) {
    let containerd = Containerd::start(release);
    containerd.import(&BUSYBOX);
    let node = Node::new(2);
    let bus_id = node.gpu(1).bus_id;
    let run = |id, capabilities| {
        let run = containerd.container(&BUSYBOX, id).on(&node).gpus("1");
        run.env("NVIDIA_DRIVER_CAPABILITIES", capabilities)
    };
    run("c", "graphics").detach(&["sleep", "1000"]);
    for kind in ["card", "render"] {
        let name = format!("/dev/dri/by-path/pci-{bus_id}-{kind}");
        containerd.exec("c", &["test", "-L", &name, "-a", "-c", &name]).ok();
    }
    let hooks = &spec(&containerd, "c")["hooks"]["createContainer"];
    assert_eq!(hooks.as_array().map(Vec::len), Some(1), "{hooks}");
    assert_eq!(hooks[0]["env"], json!(["NVIDIA_CTK_DEBUG=false"]));
    containerd.remove("c");
    // Whatever needs no hook has none.
    run("d", "compute,utility").detach(&["sleep", "1000"]);
    assert_eq!(spec(&containerd, "d").pointer("/hooks/createContainer"), None);
    containerd.remove("d");
    containerd.assert_clean();
}

/// A volume over `/etc` with a cache of its own, and one where the driver's files lead.
fn writes_into_volumes(release: Release) {
    let containerd = Containerd::start(release);
    containerd.import(&GLIBC);
    let node = Node::new(1);
    node.configure("", "library-path = 'host'");
    let image = containerd.path("image");
    GLIBC.unpack(&image);
    let (etc, vulkan) = (image.join("etc"), containerd.path("vulkan"));
    fs::create_dir(&vulkan).expect("a volume");
    let volume = |source: &Path, place: &str, access: &str| {
        format!("--mount=type=bind,src={},dst={place},options=rbind:{access}", source.display())
    };
    let run = |access: &str| {
        containerd
            .container(&GLIBC, "c")
            .flag(volume(&etc, "/etc", access))
            .flag(volume(&vulkan, "/opt", access))
            .on(&node)
            .gpus("0")
            .env("NVIDIA_DRIVER_CAPABILITIES", "all")
    };
    for _ in 0..2 {
        let output = run("rw").run(&["probe", "--cuda"]).ok();
        assert_eq!(Sight::parse(&output).cuda, ONE_GPU);
    }
    let cache = fs::read(etc.join("ld.so.cache")).expect("the cache in the volume");
    assert!(cache.windows(12).any(|window| window == b"libcuda.so.1"));
    // Nothing can be written there: the container starts, and a line says what it misses.
    run("ro").run(&["true"]).ok();
    let said = |words: &str| {
        let log = containerd.log();
        assert!(log.contains(words), "{words} is not in {log}");
    };
    said("left out, as the mount at /etc would hide it: /etc/ld.so.cache");
    // The same where the program is not beside the shim, which is then a name of nothing.
    let program = product().join("nvidia-cdi-hook");
    let none: Option<&str> = None;
    let hide = || mount(Some("/dev/null"), &program, none, MsFlags::MS_BIND, none);
    containerd.inside(hide).expect("mount");
    run("rw").run(&["true"]).ok();
    said(&format!("left out, as mounts would hide it and {} is missing: ", program.display()));
    containerd.inside(|| umount(&program)).expect("umount");
    containerd.assert_clean();
}

/// A bundle as a CDI spec of NVIDIA's makes one for the only GPU of `node`, in the directory of an
/// image: its driver in a directory that no loader searches by itself, and the list of its hooks,
/// one of which nobody knows.
fn bundle(containerd: &Containerd, node: &Node, root: &Path, command: &[&str]) -> PathBuf {
    let (host, hook) = (node.root(), product().join("nvidia-cdi-hook"));
    let mut mounts = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc"}),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]}),
    ];
    for entry in fs::read_dir(host.join(DRIVER)).expect("the driver's libraries").flatten() {
        let name = entry.file_name().into_string().expect("text");
        let wanted =
            ["libcuda.so.", "libnvidia-ml.so."].iter().any(|start| name.starts_with(start));
        if wanted && entry.file_type().expect("a type").is_file() {
            mounts.push(json!({
                "destination": format!("/opt/driver/{name}"), "type": "bind",
                "source": entry.path(), "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
            }));
        }
    }
    let device = |name: &str| {
        let number = fs::metadata(host.join("dev").join(name)).expect(name).rdev();
        json!({
            "path": format!("/dev/{name}"), "type": "c", "fileMode": 0o666,
            "major": major(number), "minor": minor(number),
        })
    };
    let hooks = [
        "create-symlinks --link libcuda.so.1::/opt/driver/libcuda.so --link ../x::/usr/local/new/x",
        "enable-cuda-compat --host-driver-version=550.163.01",
        "update-ldcache --folder /opt/driver --ldconfig-path /sbin/ldconfig",
        "chmod --mode 755 --path /opt/driver",
        "disable-device-node-modification",
        "update-application-profile",
        "some-hook-of-the-future --flag",
    ];
    let hooks = hooks.map(|words| {
        let words: Vec<&str> = ["nvidia-cdi-hook"].into_iter().chain(words.split(' ')).collect();
        json!({"path": hook, "args": words, "env": ["NVIDIA_CTK_DEBUG=false"]})
    });
    let spec = json!({
        "ociVersion": "1.0.2",
        "process": {
            "cwd": "/", "args": command, "user": {"uid": 0, "gid": 0},
            "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LD_PRELOAD=/proc/self/cwd/preload.so"],
        },
        "root": {"path": root},
        "mounts": mounts,
        "hooks": {"createContainer": hooks},
        "linux": {
            // Those of other tests are called `c` too.
            "cgroupsPath": format!("/{}/c", containerd.name()),
            "namespaces": [{"type": "mount"}, {"type": "pid"}, {"type": "ipc"}, {"type": "uts"}],
            "devices": [device(&node.gpu(0).node()), device("nvidiactl"), device("nvidia-uvm")],
            "resources": {"devices": [{"allow": true, "access": "rwm"}]},
        },
    });
    let file = containerd.path("spec.json");
    fs::write(&file, spec.to_string()).expect("spec.json");
    file
}

/// The same with a root that the container may not write.
fn read_only(bundle: PathBuf) -> PathBuf {
    let text = fs::read_to_string(&bundle).expect("spec.json");
    let text = text.replace(r#""root":{"#, r#""root":{"readonly":true,"#);
    fs::write(&bundle, text).expect("spec.json");
    bundle
}

/// Runs such a bundle on the stock shim and runc; `None`: runc, else that runtime.
fn run_bundle(containerd: &Containerd, file: &Path, runtime: Option<&Path>) -> Output {
    let config = format!("--config={}", file.display());
    let mut words = vec!["run", "--rm", "--runtime=io.containerd.runc.v2", &config];
    let binary = runtime.map(|program| format!("--runc-binary={}", program.display()));
    words.extend(binary.as_deref());
    words.push("c");
    containerd.ctr(&words)
}

/// Specs that were written for NVIDIA's program, without any of NVIDIA's programs or ours but this.
fn serves_specs_for_nvidias_program(release: Release) {
    let containerd = Containerd::start(release);
    let node = Node::new(1);
    let root = containerd.path("root");
    GLIBC.unpack(&root);
    let bundle = |command: &[&str]| bundle(&containerd, &node, &root, command);
    // Hooks run at each start, on what an earlier one left.
    for _ in 0..2 {
        let file = bundle(&["probe", "--cuda"]);
        assert_eq!(Sight::parse(&run_bundle(&containerd, &file, None).ok()).cuda, ONE_GPU);
    }
    // runc makes a root read-only only after its hooks.
    let file = bundle(&["ldconfig", "-p"]);
    let text = fs::read_to_string(&file).expect("spec.json");
    fs::write(&file, text.replace(r#""root":{"#, r#""root":{"readonly":true,"#))
        .expect("spec.json");
    fs::remove_file(root.join("etc/ld.so.conf.d/00-nvidia-shim.conf")).expect("remove");
    let list = run_bundle(&containerd, &file, None).ok();
    for line in ["libcuda.so.1 (libc6,x86-64) => /opt/driver/libcuda.so.1", "libc.so.6 "] {
        assert!(list.contains(line), "{line} is not in {list}");
    }
    let links =
        run_bundle(&containerd, &bundle(&["readlink", "/opt/driver/libcuda.so"]), None).ok();
    assert_eq!(links, "libcuda.so.1\n");
    let profile = "etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf";
    let profile = fs::read_to_string(root.join(profile)).expect("the profile");
    assert!(profile.contains(&format!("{:#x}", 1 << node.gpu(0).minor)), "{profile}");
    // A compatible libcuda of the image goes before the driver's, as long as it is newer.
    let compat = root.join("usr/local/cuda/compat");
    fs::create_dir_all(&compat).expect("mkdir");
    let driver = fs::read_dir(node.root().join(DRIVER)).expect("libraries").flatten();
    let driver = driver.map(|entry| entry.path()).find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libcuda.so.5"))
    });
    fs::copy(driver.expect("libcuda"), compat.join("libcuda.so.575.57.08")).expect("copy");
    let path = |list: &str| {
        let line = list.lines().find(|line| line.contains("libcuda.so.1 ")).unwrap_or_default();
        line.rsplit(' ').next().unwrap_or_default().to_owned()
    };
    let list = run_bundle(&containerd, &bundle(&["ldconfig", "-p"]), None).ok();
    assert_eq!(path(&list), "/usr/local/cuda/compat/libcuda.so.1");
    let list =
        run_bundle(&containerd, &bundle(&["sh", "-c", "ldconfig && ldconfig -p"]), None).ok();
    assert_eq!(path(&list), "/usr/local/cuda/compat/libcuda.so.1", "after the container's own");
    fs::rename(compat.join("libcuda.so.575.57.08"), compat.join("libcuda.so.535.1.1")).expect("mv");
    let list = run_bundle(&containerd, &bundle(&["ldconfig", "-p"]), None).ok();
    assert_eq!(path(&list), "/opt/driver/libcuda.so.1");
    containerd.assert_clean();
}

/// Debian's crun, which tells a hook the root filesystem itself.
#[test]
fn crun_runs_them_too() {
    let containerd = Containerd::start(Release::Installed);
    let node = Node::new(1);
    let crun = tests::crun(&containerd.path(""));
    // It refuses to work where version 2 of cgroups lies beside version 1.
    let alone = containerd.inside(|| umount("/sys/fs/cgroup/unified"));
    assert!(matches!(alone, Ok(()) | Err(Errno::ENOENT | Errno::EINVAL)), "{alone:?}");
    let root = containerd.path("root");
    GLIBC.unpack(&root);
    for _ in 0..2 {
        let file = bundle(&containerd, &node, &root, &["probe", "--cuda"]);
        let output = run_bundle(&containerd, &file, Some(&crun)).ok();
        assert_eq!(Sight::parse(&output).cuda, ONE_GPU);
    }
    // There the root is read-only already when hooks are called, and must be afterwards.
    fs::remove_dir_all(&root).expect("remove");
    GLIBC.unpack(&root);
    let script = ["sh", "-c", "probe --cuda && ! touch /new"];
    let file = read_only(bundle(&containerd, &node, &root, &script));
    let output = run_bundle(&containerd, &file, Some(&crun)).ok();
    assert_eq!(Sight::parse(&output).cuda, ONE_GPU);
    containerd.assert_clean();
}

/// Links to the outside at all that is written, and at parents of it; a FIFO where a file is read.
fn leads_nowhere_from_a_hostile_image(release: Release) {
    const PATHS: [&str; 8] = [
        "etc",
        "etc/ld.so.cache",
        "etc/ld.so.conf",
        "etc/ld.so.conf.d",
        "etc/ld.so.conf.d/00-nvidia-shim.conf",
        "etc/ld.so.conf.d/00-compat-nvidia-shim.conf",
        "etc/nvidia",
        "usr/local",
    ];
    let containerd = Containerd::start(release);
    let node = Node::new(1);
    let attempt = |name: &str, attack: &dyn Fn(&Path)| {
        let root = containerd.path(name);
        GLIBC.unpack(&root);
        attack(&root);
        fs::create_dir_all(root.join("usr/local/cuda/compat")).ok();
        let file = bundle(&containerd, &node, &root, &["true"]);
        refused_or_run(&containerd, &run_bundle(&containerd, &file, None));
        fs::remove_dir_all(root).expect("remove");
    };
    unharmed(&containerd, || {
        for (number, path) in PATHS.iter().enumerate() {
            for (kind, target) in
                [UPWARDS, "/run/containerd/canary", "/proc/1/root/run"].iter().enumerate()
            {
                attempt(&format!("link-{number}-{kind}"), &|root| replace(root, path, target));
            }
            attempt(&format!("fifo-{number}"), &|root| {
                replace(root, path, "x");
                fs::remove_file(root.join(path)).expect("remove");
                mkfifo(&root.join(path), Mode::S_IRWXU).expect("a fifo");
            });
        }
        // Where file systems of the kernel will be mounted.
        attempt("kernel", &|root| replace(root, "etc/nvidia", "/proc/sys"));
    });
    containerd.assert_clean();
}

/// There a hook is nobody on the host: where nobody can execute it, there is none.
fn works_in_a_user_namespace(release: Release) {
    let node = Node::new(2);
    let setup = Setup { host: Some(&node), ..Setup::default() };
    let containerd = Containerd::start_as(release, setup);
    containerd.import(&GLIBC);
    let run = containerd
        .container(&GLIBC, "c")
        .flag("--uidmap=0:100000:65536")
        .flag("--gidmap=0:100000:65536")
        .gpus("0")
        .env("NVIDIA_DRIVER_CAPABILITIES", "all");
    let script = "probe --cuda && ls /dev/dri/by-path >&2 || true";
    let output = run.run(&["sh", "-c", script]);
    assert!(output.success(), "{output}");
    let program = product().join("nvidia-cdi-hook");
    let may_all = |path: &Path| fs::metadata(path).is_ok_and(|found| found.mode() & 0o001 != 0);
    let hooked = output.stderr.contains(&format!("pci-{}-card", node.gpu(0).bus_id));
    assert_eq!(hooked, program.ancestors().all(may_all), "{output}");
    assert_eq!(Sight::parse(&output.stdout).cuda, ONE_GPU);
    containerd.assert_clean();
}
