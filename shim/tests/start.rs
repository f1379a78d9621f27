//! `start`, as containerd sees it.

mod node;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use containerd_shim_protos::bootstrap_api::{BootstrapParams, BootstrapResult};
use containerd_shim_protos::protobuf::Message;
use node::{
    Node, SHIM, SILENT_INNER, accepts, environment, eventually, eventually_gone, finish, is_alive,
    kill, words,
};

const POD: &str = r#"{"io.kubernetes.cri.sandbox-id":"pod"}"#;

#[test]
fn the_answer_is_a_socket_that_accepts_at_once_and_nothing_else() {
    let node = Node::new(SILENT_INNER);
    let bundle = node.bundle("one", "null");
    let socket = bundle.started();
    assert!(accepts(&socket));
    assert_eq!(socket.parent(), Some(Path::new("/run/containerd/s")));
    assert_eq!(socket.file_name().unwrap().len(), 64);
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let written = fs::read_to_string(bundle.dir.join("address")).unwrap();
    assert_eq!(written, format!("unix://{}", socket.display()));
    assert!(!socket.with_extension("lock").exists());
}

#[test]
fn containers_of_a_pod_share_a_relay_and_others_do_not() {
    let node = Node::new(SILENT_INNER);
    let (pause, app, other) =
        (node.bundle("pod", POD), node.bundle("app", POD), node.bundle("other", "{}"));
    let socket = pause.started();
    assert_eq!(app.started(), socket);
    assert!(app.dir.join("address").exists());
    assert_ne!(other.started(), socket);
    assert_eq!(node.relays().len(), 2);
}

#[test]
fn racing_first_starts_make_one_relay() {
    let node = Node::new(SILENT_INNER);
    let bundles: Vec<_> = (0..20).map(|i| node.bundle(&format!("c{i}"), POD)).collect();
    let starts: Vec<_> =
        bundles.iter().map(|bundle| bundle.shim(&["start"]).spawn().unwrap()).collect();
    let answers: BTreeSet<_> = starts
        .into_iter()
        .map(|start| finish(start, b""))
        .inspect(|output| assert!(output.status.success(), "{output:?}"))
        .map(|output| output.stdout)
        .collect();
    assert_eq!(answers.len(), 1);
    assert_eq!(node.relays().len(), 1);
}

#[test]
fn the_inner_shim_gets_what_its_own_start_would_give_it() {
    let node = Node::new(SILENT_INNER);
    let bundle = node.bundle("one", "{}");
    let mut start = bundle.shim(&["-debug", "start"]);
    start.env("NOTIFY_SOCKET", "/run/systemd/notify").env("GOMAXPROCS", "2");
    let output = finish(start.spawn().unwrap(), b"");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let (relay, inner) = (bundle.process("relay"), bundle.process("inner"));

    let proc = |pid: u32, name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    // The script is sleep by the time it is looked at, or soon.
    eventually("sleep", || (words(inner)[0] == "sleep").then_some(()));
    let environment = environment(inner);
    for variable in ["GOMAXPROCS=4", "OTEL_SERVICE_NAME=containerd-shim-one"] {
        assert!(environment.iter().any(|it| it == variable), "{variable}");
    }
    let ttrpc =
        format!("TTRPC_ADDRESS={}.ttrpc", node.dir.path().join("containerd.sock").display());
    assert!(environment.contains(&ttrpc));
    assert!(!environment.iter().any(|it| it.starts_with("NOTIFY_SOCKET=")));

    let expected = proc(std::process::id(), "oom_score_adj").trim().parse::<i32>().unwrap() + 1;
    for pid in [relay, inner] {
        assert_eq!(proc(pid, "oom_score_adj").trim(), expected.to_string());
        assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), bundle.dir);
        let fields = proc(pid, "stat").rsplit(") ").next().unwrap().to_owned();
        assert_eq!(fields.split(' ').nth(2).unwrap(), pid.to_string(), "leads its process group");
        assert!(proc(pid, "status").contains("Umask:\t0022"));
    }
    assert_eq!(words(relay)[..2], ["containerd-shim-nvidia-v2", "relay"]);
    assert_eq!(proc(relay, "comm").trim(), "containerd-shim");
    let target = |fd: u32| fs::read_link(format!("/proc/{inner}/fd/{fd}")).unwrap();
    assert_eq!(target(0), Path::new("/dev/null"));
    assert_eq!(target(1), Path::new("/dev/null"));
    assert!(target(3).to_str().unwrap().starts_with("socket:"));
    assert!(target(4).to_str().unwrap().starts_with("socket:"));
    // Files it may have opened itself; what it was given besides would be one of these.
    let given = fs::read_dir(format!("/proc/{inner}/fd")).unwrap().flatten().filter(|fd| {
        let target = fs::read_link(fd.path()).unwrap_or_default().display().to_string();
        ["socket:", "pipe:", "anon_inode:"].iter().any(|kind| target.starts_with(kind))
    });
    assert_eq!(given.count(), 3, "standard error and the two listeners");
    for fd in 0..3 {
        assert_eq!(
            fs::read_link(format!("/proc/{relay}/fd/{fd}")).unwrap(),
            Path::new("/dev/null")
        );
    }
}

#[test]
fn the_end_of_the_inner_shim_is_the_end_of_everything() {
    let node = Node::new(SILENT_INNER);
    let bundle = node.bundle("one", "{}");
    let socket = bundle.started();
    let relay = bundle.process("relay");
    kill(bundle.process("inner"));
    eventually_gone("the relay", || is_alive(relay));
    assert!(!socket.exists());
    // The next one of that name finds no trace of it.
    let again = bundle.started();
    assert_eq!(again, socket);
    assert!(accepts(&again));
}

#[test]
fn sockets_of_the_dead_are_replaced() {
    let node = Node::new(SILENT_INNER);
    let bundle = node.bundle("one", "{}");
    let socket = bundle.started();
    let (relay, inner) = (bundle.process("relay"), bundle.process("inner"));
    kill(relay);
    // The last of its threads closes the socket, after the process looks dead.
    eventually_gone("the listener", || accepts(&socket));
    assert!(socket.exists());
    assert_eq!(bundle.started(), socket);
    assert!(accepts(&socket));
    kill(inner);
}

#[test]
fn containerd_2_3_is_answered_in_its_own_dialect() {
    let node = Node::new(SILENT_INNER);
    let bundle = node.bundle("one", "{}");
    let sockets = node.dir.path().join("s");
    let params = BootstrapParams {
        instance_id: "one".to_owned(),
        namespace: "test".to_owned(),
        containerd_ttrpc_address: "unix:///ttrpc".to_owned(),
        containerd_grpc_address: "unix:///grpc".to_owned(),
        containerd_binary: node.dir.path().join("containerd").display().to_string(),
        socket_dir: Some(sockets.display().to_string()),
        ..Default::default()
    };
    let input = params.write_to_bytes().unwrap();
    let output = finish(bundle.shim(&["start"]).spawn().unwrap(), &input);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let result = BootstrapResult::parse_from_bytes(&output.stdout).unwrap();
    assert_eq!((result.version, result.protocol.as_str()), (2, "ttrpc"));
    let socket = result.address.strip_prefix("unix://").unwrap();
    assert_eq!(Path::new(socket).parent().unwrap(), sockets);
    assert!(accepts(Path::new(socket)));
    let environment = environment(bundle.process("inner"));
    assert!(environment.iter().any(|it| it == "TTRPC_ADDRESS=unix:///ttrpc"));
}

#[test]
fn a_start_that_fails_says_why_and_leaves_nothing() {
    let node = Node::new(SILENT_INNER);
    let bundle = node.bundle("one", "{}");
    fs::write(bundle.dir.join("config.json"), "{").unwrap();
    let output = bundle.start();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("/one/config.json: EOF while parsing"), "{words}");
    assert!(node.relays().is_empty());

    let noise = finish(node.bundle("two", "{}").shim(&["start"]).spawn().unwrap(), b"\xff\xff");
    assert_eq!(noise.status.code(), Some(1));
    assert!(String::from_utf8(noise.stderr).unwrap().contains("neither runtime options nor"));
}

#[test]
fn a_shim_cgroup_is_joined_before_anything_is_started() {
    // A cgroup of v1 or v2, whatever this machine has; where none can be made, nothing is to test.
    let Some(cgroup) = Cgroup::new() else { return };
    let node = Node::new(SILENT_INNER);
    let bundle = node.bundle("one", "{}");
    let options = containerd_shim_protos::shim::oci::Options {
        shim_cgroup: cgroup.name.clone(),
        ..Default::default()
    };
    let any = containerd_shim_protos::protobuf::well_known_types::any::Any {
        type_url: "containerd.runc.v1.Options".to_owned(),
        value: options.write_to_bytes().unwrap(),
        ..Default::default()
    };
    let input = any.write_to_bytes().unwrap();
    let output = finish(bundle.shim(&["start"]).spawn().unwrap(), &input);
    assert!(output.status.success(), "{output:?}");
    for which in ["relay", "inner"] {
        let pid = bundle.process(which);
        let membership = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        assert!(membership.contains(&cgroup.name), "{which}: {membership}");
    }
    let missing = containerd_shim_protos::shim::oci::Options {
        shim_cgroup: "/nvidia-shim-test-missing".to_owned(),
        ..Default::default()
    };
    let any = containerd_shim_protos::protobuf::well_known_types::any::Any {
        value: missing.write_to_bytes().unwrap(),
        ..any
    };
    let refused = finish(
        node.bundle("two", "{}").shim(&["start"]).spawn().unwrap(),
        &any.write_to_bytes().unwrap(),
    );
    assert!(!refused.status.success());
    assert_eq!(node.relays().len(), 1);
    drop(node);
}

/// A cgroup of this test's own, removed when its processes are gone.
struct Cgroup {
    name: String,
    dir: std::path::PathBuf,
}

impl Cgroup {
    fn new() -> Option<Self> {
        let name = format!("/nvidia-shim-test-{}", std::process::id());
        let roots = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"];
        let root = roots.iter().find(|root| Path::new(root).join("cgroup.procs").exists())?;
        let dir = Path::new(root).join(name.trim_start_matches('/'));
        fs::create_dir(&dir).ok()?;
        Some(Self { name, dir })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for pid in fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default().lines() {
            kill(pid.parse().unwrap());
        }
        eventually("an empty cgroup", || fs::remove_dir(&self.dir).ok());
    }
}

#[test]
fn descriptors_that_leaked_into_containerd_do_not_disturb() {
    let node = Node::new(SILENT_INNER);
    let bundle = node.bundle("one", "{}");
    let start = bundle.shim(&["start"]);
    let words: Vec<_> = start.get_args().map(|word| word.to_str().unwrap().to_owned()).collect();
    let output = Command::new("sh")
        .arg("-c")
        .arg("exec 3</dev/zero 4</dev/zero 9</dev/zero; exec \"$@\"")
        .args(["sh", SHIM])
        .args(words)
        .current_dir(&bundle.dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    for which in ["relay", "inner"] {
        let pid = bundle.process(which);
        for fd in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
            let target = fs::read_link(fd.path()).unwrap_or_default();
            assert_ne!(target, Path::new("/dev/zero"), "{which}");
        }
    }
}

#[test]
fn our_own_verbs_do_nothing_for_others() {
    for verb in ["relay", "worker"] {
        let dir = tempfile::tempdir().unwrap();
        let output = Command::new(SHIM)
            .args([verb, "-namespace", "n", "-id", "i", "-shim", "/bin/true"])
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(!output.status.success(), "{verb}: {output:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{verb}");
    }
    assert!(fs::metadata(SHIM).unwrap().size() > 0);
}
