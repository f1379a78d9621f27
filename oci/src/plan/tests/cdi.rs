//! Which way CDI names go, and what the container has of them in the end, on a host of two GPUs
//! with specs as each case has them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::super::functions::{self, Function};
use super::*;
use crate::request::Selection;
use crate::{DeviceKind, DeviceNode};

/// A host with kernel driver 550.1, GPUs 0 and 1, and their nodes; libraries it has none.
struct Node(tempfile::TempDir);

impl Node {
    fn new() -> Self {
        let node = Self(tempfile::tempdir().unwrap());
        node.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA Module  550.1.2  x\n");
        node.write("/proc/devices", "Character devices:\n195 nvidia\n510 nvidia-uvm\n");
        for (bus, minor) in [("0000:07:00.0", 1), ("0000:08:00.0", 0)] {
            let information = format!(
                "Model: \t x\nGPU UUID: \t GPU-a0000000-1111-2222-3333-{minor:012}\n\
                 Device Minor: \t {minor}\n"
            );
            node.write(&format!("/proc/driver/nvidia/gpus/{bus}/information"), &information);
        }
        for (name, major, minor) in [
            ("nvidia0", 195, 0),
            ("nvidia1", 195, 1),
            ("nvidiactl", 195, 255),
            ("nvidia-modeset", 195, 254),
            ("nvidia-uvm", 510, 0),
        ] {
            node.device(name, major, minor);
        }
        node
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn device(&self, name: &str, major: u32, minor: u32) {
        let path = self.0.path().join("dev").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut mknod = Command::new("mknod");
        mknod.arg(path).args(["c", &major.to_string(), &minor.to_string()]);
        assert!(mknod.status().unwrap().success());
    }

    /// A spec of one device.
    fn spec(&self, kind: &str, device: &str, edits: &Value) {
        let spec = json!({
            "cdiVersion": "1.1.0", "kind": kind,
            "devices": [{"name": device, "containerEdits": edits}],
        });
        let file = format!("{}-{device}.json", kind.replace('/', "-"));
        self.write(&format!("/etc/cdi/{file}"), &spec.to_string());
    }

    fn host(&self) -> Host {
        Host::new(self.0.path())
    }

    fn inquiry(&self, ask: &Ask) -> Result<Inquiry> {
        let (spec, config) = (ask.spec(), ask.config());
        let request = policy::judge(&spec, &config, ask.handler)?.request.unwrap();
        Inquiry::read(&self.host(), &config, ask.handler, &spec, request)
    }

    /// Where what is asked for comes from: `live GPUs; described; functions`, or the code.
    fn ways(&self, ask: &Ask) -> String {
        let ways = match self.inquiry(ask) {
            Ok(inquiry) => inquiry.ways,
            Err(error) => return error.code().id().to_owned(),
        };
        let live = match ways.live.map(|request| request.gpus) {
            None => "-".to_owned(),
            Some(Selection::All) if ways.manages => "manage".to_owned(),
            Some(Selection::All) => "all".to_owned(),
            Some(Selection::DriverOnly) => "none".to_owned(),
            Some(Selection::Listed(list)) => {
                list.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
            }
        };
        let described: Vec<_> = ways.described.iter().map(ToString::to_string).collect();
        let functions = match ways.functions.len() {
            0 => String::new(),
            count => format!("; {count}"),
        };
        format!("{live}; {}{functions}", described.join(","))
    }

    fn plan(&self, ask: &Ask) -> Result<Plan> {
        let (spec, image) = (ask.spec(), Image::default());
        match self.inquiry(ask)?.plan(&self.host(), &ask.config(), ask.handler, &image, &spec)? {
            Outcome::Edited(plan) => Ok(*plan),
            Outcome::Untouched(report) => panic!("untouched: {report:?}"),
        }
    }
}

/// What is asked, and of whom.
struct Ask {
    names: String,
    handler: Handler,
    set: Vec<(&'static str, &'static str)>,
    privileged: bool,
    annotation: bool,
}

impl Ask {
    fn of(names: &str) -> Self {
        let names = names.to_owned();
        Self {
            names,
            handler: Handler::NvidiaCdi,
            set: vec![],
            privileged: false,
            annotation: true,
        }
    }

    fn by_variable(names: &str, handler: Handler) -> Self {
        Self { handler, annotation: false, ..Self::of(names) }
    }

    fn spec(&self) -> Spec {
        let mut spec = json!({"process": {"env": ["A=b"], "user": {"uid": 7, "gid": 8}}});
        if self.annotation {
            spec["annotations"] = json!({"cdi.k8s.io/x": self.names});
        } else {
            spec["process"]["env"] = json!([format!("NVIDIA_VISIBLE_DEVICES={}", self.names)]);
        }
        if self.privileged {
            spec["process"]["capabilities"] = json!({"bounding": ["CAP_SYS_ADMIN"]});
        }
        Spec::new(spec)
    }

    fn config(&self) -> Config {
        let mut config = Config::default();
        for (key, value) in &self.set {
            config.set(key, value).unwrap();
        }
        config
    }
}

fn env(value: &str) -> Value {
    json!({"env": [value]})
}

const KIND: &str = "nvidia-container-runtime.modes.cdi.default-kind";

#[test]
fn names_go_to_the_spec_that_describes_them_or_to_what_is_there() {
    let node = Node::new();
    node.spec("vendor.com/nic", "eth0", &env("NIC=0"));
    node.spec("nvidia.com/gpu", "0", &env("GPU=0"));
    node.spec("k8s.device-plugin.nvidia.com/gpu", "GPU-x", &env("GPU=x"));
    node.spec("management.nvidia.com/gpu", "tools", &env("TOOLS=1"));
    for (names, expected) in [
        ("vendor.com/nic=eth0", "-; vendor.com/nic=eth0"),
        ("vendor.com/nic=eth0,vendor.com/nic=eth0", "-; vendor.com/nic=eth0"),
        ("vendor.com/nic=eth0,all", "all; vendor.com/nic=eth0"),
        ("all,nvidia.com/gpu=0,vendor.com/nic=eth0", "all; vendor.com/nic=eth0"),
        ("vendor.com/nic=eth0,none", "none; vendor.com/nic=eth0"),
        ("vendor.com/nic=eth1", "NVS-111"),
        ("vendor.com/nic=eth0 ", "NVS-102"),
        ("nvidia.com/gpu=0", "-; nvidia.com/gpu=0"),
        ("0", "-; nvidia.com/gpu=0"),
        ("nvidia.com/gpu=1", "1; "),
        ("1,nvidia.com/gpu=0", "1; nvidia.com/gpu=0"),
        ("GPU-x", "-; k8s.device-plugin.nvidia.com/gpu=GPU-x"),
        ("runtime.nvidia.com/gpu=0", "0; "),
        ("nvidia.com/gpu=all,runtime.nvidia.com/gpu=0", "all; "),
        ("nvidia.com/gds=all,runtime.nvidia.com/gds=all", "-; ; 1"),
        ("nvidia.com/gds=all,all", "all; ; 1"),
        ("nvidia.com/gds=0", "NVS-111"),
        ("nvidia.com/imex-channel=0,nvidia.com/imex-channel=channel1", "-; ; 2"),
        ("nvidia.com/imex-channel=1048576", "NVS-111"),
        ("nvidia.com/other=0", "NVS-111"),
        ("management.nvidia.com/gpu=all", "NVS-109"),
        ("management.nvidia.com/gpu=tools", "NVS-109"),
        ("tools", "tools; "),
    ] {
        assert_eq!(node.ways(&Ask::of(names)), expected, "{names}");
    }
    let privileged = |names| Ask { privileged: true, ..Ask::of(names) };
    assert_eq!(node.ways(&privileged("management.nvidia.com/gpu=all")), "manage; ");
    let tools = "-; management.nvidia.com/gpu=tools";
    assert_eq!(node.ways(&privileged("management.nvidia.com/gpu=tools")), tools);
}

#[test]
fn a_default_kind_that_manages_is_for_those_alone_who_may() {
    let node = Node::new();
    node.spec("management.nvidia.com/gpu", "tools", &env("TOOLS=1"));
    let set = || vec![(KIND, "management.nvidia.com/gpu")];
    for (names, privileged, expected) in [
        ("all", false, "all; "),
        ("tools", false, "tools; "),
        ("1", false, "1; "),
        ("all", true, "manage; "),
        ("tools", true, "-; management.nvidia.com/gpu=tools"),
        ("1", true, "1; "),
    ] {
        let ask = Ask { set: set(), privileged, ..Ask::of(names) };
        assert_eq!(node.ways(&ask), expected, "{names}, privileged: {privileged}");
    }
    let other = Ask { set: vec![(KIND, "vendor.com/nic")], ..Ask::of("eth0") };
    assert_eq!(node.ways(&other), "NVS-111");
}

#[test]
fn the_environment_means_what_is_there_first() {
    let node = Node::new();
    node.spec("vendor.com/nic", "eth0", &env("NIC=0"));
    node.spec("nvidia.com/gpu", "0", &env("GPU=0"));
    node.spec("nvidia.com/gpu", "all", &env("GPU=all"));
    for (names, expected) in [
        ("0", "0; "),
        ("all", "all; "),
        ("all,vendor.com/nic=eth0", "all; vendor.com/nic=eth0"),
        ("nvidia.com/gpu=0", "-; nvidia.com/gpu=0"),
        ("1,vendor.com/nic=eth0", "1; vendor.com/nic=eth0"),
    ] {
        assert_eq!(node.ways(&Ask::by_variable(names, Handler::Nvidia)), expected, "{names}");
    }
    let forbidden =
        Ask { set: vec![("just-in-time", "false")], ..Ask::by_variable("1", Handler::NvidiaCdi) };
    assert_eq!(node.ways(&forbidden), "NVS-111");
    let set = vec![("just-in-time", "false"), (KIND, "management.nvidia.com/gpu")];
    let manages = Ask { set, privileged: true, ..Ask::of("all") };
    assert_eq!(node.ways(&manages), "-; nvidia.com/gpu=all");
    node.spec("management.nvidia.com/gpu", "all", &env("M=1"));
    assert_eq!(node.ways(&manages), "-; management.nvidia.com/gpu=all");
}

#[test]
fn an_image_does_not_take_every_channel_of_a_node() {
    let node = Node::new();
    let all = "nvidia.com/imex-channel=all";
    assert_eq!(node.ways(&Ask::of(all)), "-; ; 1");
    assert_eq!(node.ways(&Ask::by_variable(all, Handler::Nvidia)), "-; ");
    let one = "nvidia.com/imex-channel=0";
    assert_eq!(node.ways(&Ask::by_variable(one, Handler::Nvidia)), "-; ; 1");
    let set = vec![("features.ignore-imex-channel-requests", "true")];
    assert_eq!(node.ways(&Ask { set, ..Ask::of(one) }), "-; ");
}

#[test]
fn a_stale_spec_is_healed_where_what_it_names_is_there() {
    let node = Node::new();
    let nodes = |nodes: Value| json!({"deviceNodes": nodes});
    let mount = |path: &str| json!({"mounts": [{"hostPath": path, "containerPath": "/x"}]});
    node.write("/lib/libcuda.so.550.1.2", "");
    node.write("/lib/libcuda.so.535.1", "");
    for (edits, told) in [
        (mount("/lib/libcuda.so.550.1.2"), None),
        (mount("/lib/libcuda.so.535.1"), Some("of driver 535.1, and 550.1.2 is loaded")),
        (mount("/lib/libcuda.so.550.2"), Some("and 550.1.2 is loaded")),
        (mount("/lib/gone"), Some("/lib/gone, which is not there")),
        (nodes(json!([{"path": "/dev/nvidia7"}])), Some("/dev/nvidia7, which is not there")),
        (nodes(json!([{"path": "/dev/x", "hostPath": "/dev/nvidia0"}])), None),
        (nodes(json!([{"path": "/dev/nvidia-uvm", "major": 510}])), None),
        (
            nodes(json!([{"path": "/dev/nvidia-uvm", "major": 511}])),
            Some("says 511:0 of /dev/nvidia-uvm, which is 510:0"),
        ),
    ] {
        for name in ["0", "gpu0"] {
            node.spec("nvidia.com/gpu", name, &edits);
            node.spec("vendor.com/gpu", name, &edits);
        }
        let by_spec = "-; nvidia.com/gpu=0";
        let expected = if told.is_some() { "0; " } else { by_spec };
        assert_eq!(node.ways(&Ask::of("nvidia.com/gpu=0")), expected, "{edits}");
        // A name that only the spec knows, and a node whose owner wants no other way.
        let fail = Ask { set: vec![("stale-spec", "fail")], ..Ask::of("nvidia.com/gpu=0") };
        for (ask, fresh) in [(fail, by_spec), (Ask::of("gpu0"), "-; nvidia.com/gpu=gpu0")] {
            let expected = if told.is_some() { "NVS-212" } else { fresh };
            assert_eq!(node.ways(&ask), expected, "{edits}");
            if let (Some(told), Err(error)) = (told, node.inquiry(&ask)) {
                assert!(error.to_string().contains(told), "{error}");
            }
        }
        assert_eq!(node.ways(&Ask::of("vendor.com/gpu=0")), "-; vendor.com/gpu=0", "{edits}");
    }
}

#[test]
fn edits_of_a_spec_are_filled_from_the_host() {
    let node = Node::new();
    node.device("mine", 240, 7);
    for (said, expected) in [
        (json!({"path": "/dev/mine"}), Some("/dev/mine c 240:7 7:8 rwm")),
        (json!({"path": "/dev/x", "hostPath": "/dev/mine"}), Some("/dev/x c 240:7 7:8 rwm")),
        (
            json!({"path": "/dev/mine", "gid": 0, "permissions": "r"}),
            Some("/dev/mine c 240:7 7:0 r"),
        ),
        (json!({"path": "/dev/mine", "permissions": "none"}), Some("/dev/mine c 240:7 7:8 ")),
        (json!({"path": "/dev/mine", "major": 5, "minor": 6}), Some("/dev/mine c 5:6 7:8 rwm")),
        (json!({"path": "/dev/gone", "type": "b", "major": 8}), Some("/dev/gone b 8:0 7:8 rwm")),
        (json!({"path": "/dev/gone", "type": "p"}), Some("/dev/gone p 0:0 7:8 rwm")),
        (json!({"path": "/dev/gone"}), None),
        (json!({"path": "/dev/gone", "type": "c", "minor": 3}), None),
        (json!({"path": "/dev/mine", "type": "b"}), None),
        (json!({"path": "/etc", "hostPath": "/etc"}), None),
    ] {
        node.spec("vendor.com/x", "x", &json!({"deviceNodes": [said]}));
        let given = node.plan(&Ask::of("vendor.com/x=x")).map(|plan| {
            let DeviceNode { path, kind, major, minor, uid, gid, access, .. } =
                plan.edits.devices.first().unwrap().clone();
            let kind = match kind {
                DeviceKind::Character => "c",
                DeviceKind::Block => "b",
                DeviceKind::Fifo => "p",
                DeviceKind::Unbuffered => "u",
            };
            format!("{} {kind} {major}:{minor} {uid}:{gid} {access}", path.display())
        });
        match (given, expected) {
            (Ok(given), Some(expected)) => assert_eq!(given, expected, "{said}"),
            (Err(error), None) => assert_eq!(error.code(), Code::CdiDeviceUnusable, "{said}"),
            (given, _) => panic!("{said}: {given:?}"),
        }
    }
}

#[test]
fn a_spec_of_nvidias_gives_no_device_of_the_kernels_own() {
    let node = Node::new();
    node.device("null", 1, 3);
    node.spec("nvidia.com/x", "x", &json!({"deviceNodes": [{"path": "/dev/null"}]}));
    node.spec("vendor.com/x", "x", &json!({"deviceNodes": [{"path": "/dev/null"}]}));
    let error = node.plan(&Ask::of("nvidia.com/x=x")).unwrap_err();
    assert_eq!(error.code(), Code::CdiDeviceUnusable);
    assert!(error.to_string().contains("/etc/cdi/nvidia.com-x-x.json"), "{error}");
    node.plan(&Ask::of("vendor.com/x=x")).unwrap();
}

#[test]
fn hooks_of_nvidias_are_done_without_and_others_must_be_there() {
    let node = Node::new();
    let hook = |path: &str, args: &[&str]| json!({"hooks": [{"hookName": "createContainer", "path": path, "args": args}]});
    node.spec(
        "nvidia.com/x",
        "x",
        &hook("/a/nvidia-ctk", &["x", "hook", "create-symlinks", "--link", "a::/b"]),
    );
    let plan = node.plan(&Ask::of("nvidia.com/x=x")).unwrap();
    assert_eq!((plan.fixups.links.len(), plan.edits.hooks.len()), (1, 0));
    // A device of nothing but such a hook changes the container all the same.
    node.spec(
        "vendor.com/x",
        "x",
        &hook("/a/nvidia-cdi-hook", &["x", "create-symlinks", "--link", "a::/b"]),
    );
    let plan = node.plan(&Ask::of("vendor.com/x=x")).unwrap();
    assert_eq!(plan.fixups.links.len(), 1);
    assert_eq!(plan.edits, Edits::default());
    node.spec("vendor.com/x", "x", &hook("/bin/other", &["other"]));
    assert_eq!(node.plan(&Ask::of("vendor.com/x=x")).unwrap_err().code(), Code::HookMissing);
    node.write("/bin/other", "");
    assert_eq!(node.plan(&Ask::of("vendor.com/x=x")).unwrap_err().code(), Code::HookMissing);
    assert!(
        Command::new("chmod")
            .arg("755")
            .arg(node.0.path().join("bin/other"))
            .status()
            .unwrap()
            .success()
    );
    let plan = node.plan(&Ask::of("vendor.com/x=x")).unwrap();
    let env = plan.edits.hooks.first().map(|hook| hook.env.len());
    assert_eq!(env, Some(1), "never without: runc would give it the image's");
}

#[test]
fn functions_are_their_nodes_or_refused_with_what_helps() {
    let node = Node::new();
    for (names, code, told) in [
        ("nvidia.com/gds=all", Code::FunctionMissing, "nvidia-fs"),
        ("nvidia.com/mofed=all", Code::FunctionMissing, "ib_uverbs"),
        ("nvidia.com/gdrcopy=all", Code::FunctionMissing, "gdrdrv"),
        ("nvidia.com/nvswitch=all", Code::FunctionMissing, "switches"),
        ("nvidia.com/imex-channel=3", Code::ImexChannel, "channel 3"),
        ("nvidia.com/imex-channel=all", Code::ImexChannel, "has none"),
    ] {
        let error = node.plan(&Ask::of(names)).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(told), "{error}");
    }
    let dev = node.0.path().join("dev");
    symlink("null", dev.join("nvidia-fs9")).unwrap();
    fs::create_dir(dev.join("nvidia-fs-devices")).unwrap();
    for (name, major) in [
        ("nvidia-fs0", 240),
        ("infiniband/uverbs0", 231),
        ("infiniband/rdma_cm", 10),
        ("infiniband/umad0", 231),
        ("gdrdrv", 241),
        ("nvidia-nvswitchctl", 242),
        ("nvidia-nvswitch0", 242),
        ("nvidia-caps-imex-channels/channel0", 243),
        ("nvidia-caps-imex-channels/channel3", 243),
    ] {
        node.device(name, major, 3);
    }
    for (names, expected) in [
        ("nvidia.com/gds=all", &["nvidia-fs0"][..]),
        ("nvidia.com/mofed=all", &["rdma_cm", "uverbs0"]),
        ("nvidia.com/gdrcopy=all", &["gdrdrv"]),
        ("nvidia.com/nvswitch=all", &["nvidia-nvswitch0", "nvidia-nvswitchctl"]),
        ("nvidia.com/imex-channel=3", &["channel3"]),
        ("nvidia.com/imex-channel=all,nvidia.com/imex-channel=3", &["channel0", "channel3"]),
    ] {
        let plan = node.plan(&Ask::of(names)).unwrap();
        assert_eq!(names_of(&plan), expected, "{names}");
    }
}

#[test]
fn a_dev_root_that_others_can_write_is_not_believed() {
    let node = Node::new();
    node.device("../d/dev/gdrdrv", 241, 0);
    let ask = || Ask { set: vec![("dev-root", "/d")], ..Ask::of("nvidia.com/gdrcopy=all") };
    let root = node.0.path().join("d");
    assert_eq!(names_of(&node.plan(&ask()).unwrap()), ["gdrdrv"]);
    fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(node.plan(&ask()).unwrap_err().code(), Code::UntrustedPath);
}

#[test]
fn who_manages_has_every_node_of_the_driver_once() {
    let node = Node::new();
    for (name, major) in [
        ("nvidia7", 195),
        ("nvidia-uvm-tools", 510),
        ("nvidia-fs0", 240),
        ("nvidia-nvswitchctl", 242),
        ("nvidia-nvlink", 242),
        ("nvidia-caps/nvidia-cap1", 244),
        ("nvidia-caps-imex-channels/channel0", 243),
    ] {
        node.device(name, major, 1);
    }
    symlink("null", node.0.path().join("dev/nvidia-link")).unwrap();
    let (host, config, spec) = (node.host(), Config::default(), Spec::new(json!({})));
    let inventory = Inventory::read(&host, &config).unwrap();
    let mut plan = Plan::of(Report::default());
    let granted = Granted::of_management();
    let mut nodes = plan.nodes(&host, &config, &spec, &granted, true);
    inventory.gpus.iter().for_each(|gpu| nodes.give_gpu(gpu).unwrap());
    nodes.give_control(&inventory).unwrap();
    functions::give_management(&config, &mut nodes).unwrap();
    assert!(nodes.report.withheld.is_empty(), "{:?}", nodes.report.withheld);
    assert_eq!(
        names_of(&plan),
        [
            "channel0",
            "nvidia-cap1",
            "nvidia-modeset",
            "nvidia-uvm",
            "nvidia-uvm-tools",
            "nvidia0",
            "nvidia1",
            "nvidia7",
            "nvidiactl",
        ]
    );
}

#[test]
fn a_name_means_a_function_only_of_nvidias() {
    let named = |text: &str| Function::named(&crate::cdi::QualifiedName::parse(text).unwrap());
    assert_eq!(named("nvidia.com/gds=all").unwrap(), Some(Function::Gds));
    assert_eq!(named("vendor.com/gds=all").unwrap(), None);
    assert_eq!(named("nvidia.com/gpu=all").unwrap(), None);
}

fn names_of(plan: &Plan) -> Vec<&str> {
    let devices = plan.edits.devices.iter();
    let mut names: Vec<_> =
        devices.map(|device| device.path.file_name().unwrap().to_str().unwrap()).collect();
    names.sort_unstable();
    names
}
