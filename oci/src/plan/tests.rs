//! The decision on hand-made nodes and drivers.

use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

mod capabilities;
mod cdi;
mod imex;
mod nodes;

use super::ways::Ways;
use super::*;
use crate::cdi::Registry;
use crate::{ControlNode, DriverFile, FileKind, Inventory, Library, NodeNumbers};

fn node(name: &str, major: u32, minor: u32) -> NodeNumbers {
    let path = Path::new("/dev").join(name);
    NodeNumbers {
        host_path: path.clone(),
        path,
        major,
        minor,
        mode: 0o666,
        uid: 0,
        gid: 0,
        exists: true,
    }
}

/// Minors run against indices, so that whoever mistakes one for the other is found out.
fn gpu(index: u32, count: u32) -> Gpu {
    let minor = count - 1 - index;
    let drm = NodeNumbers { gid: 44, mode: 0o660, ..node(&format!("dri/card{index}"), 226, index) };
    Gpu {
        index,
        bus_id: format!("0000:{:02x}:00.0", index + 0x0a),
        minor,
        uuid: Some(format!("GPU-{index:08x}-aaaa-bbbb-cccc-000000000000")),
        model: "NVIDIA L4".to_owned(),
        node: node(&format!("nvidia{minor}"), 195, minor),
        drm: vec![drm],
        drm_links: Vec::new(),
    }
}

fn inventory(count: u32) -> Inventory {
    let control = |name: &str, major, minor| ControlNode {
        name: name.to_owned(),
        node: node(name, major, minor),
        loaded: true,
    };
    Inventory {
        gpus: (0..count).map(|index| gpu(index, count)).collect(),
        excluded: Vec::new(),
        driver_version: Some("550.1".to_owned()),
        control: vec![control("nvidiactl", 195, 255), control("nvidia-uvm", 510, 0)],
        may_make_nodes: true,
        on_pci: true,
        imex: None,
        platform: None,
    }
}

fn library(path: &str, soname: &str) -> Library {
    Library {
        path: path.into(),
        soname: Some(soname.to_owned()),
        class: Class::Elf64,
        machine: Machine::X86_64,
        subdir: PathBuf::new(),
        links: vec![(soname.into(), Path::new(path).file_name().unwrap().into())],
    }
}

fn driver() -> Driver {
    let vdpau = library("/usr/lib64/vdpau/libvdpau_nvidia.so.550.1", "libvdpau_nvidia.so.1");
    let file = |kind, path: &str| DriverFile {
        kind,
        source: Path::new("/d").join(path.trim_start_matches('/')),
        destination: path.into(),
    };
    let mut allocator =
        library("/usr/lib64/libnvidia-allocator.so.550.1", "libnvidia-allocator.so.1");
    allocator.links.push(("gbm/nvidia-drm_gbm.so".into(), "../libnvidia-allocator.so.1".into()));
    Driver {
        root: "/d".into(),
        version: "550.1".to_owned(),
        libraries: vec![
            library("/usr/lib64/libcuda.so.550.1", "libcuda.so.1"),
            library("/usr/lib64/libnvidia-ml.so.550.1", "libnvidia-ml.so.1"),
            allocator,
            Library { subdir: "vdpau".into(), ..vdpau },
            Library {
                class: Class::Elf32,
                machine: Machine::X86,
                ..library("/usr/lib/libcuda.so.550.1", "libcuda.so.1")
            },
        ],
        files: vec![
            file(FileKind::Binary, "/usr/bin/nvidia-smi"),
            file(FileKind::Module, "/usr/lib64/xorg/modules/libglxserver_nvidia.so.550.1"),
        ],
        links: vec![(
            "/usr/lib64/xorg/modules/libglxserver_nvidia.so".into(),
            "libglxserver_nvidia.so.550.1".into(),
        )],
        left_out: vec![("/d/usr/lib64/libnvidia-x.so.550.1".into(), "truncated".to_owned())],
    }
}

/// A case, everything in it changeable.
pub(super) struct Case {
    host: Host,
    pub(super) config: Config,
    handler: Handler,
    image: Image,
    pub(super) spec: Value,
    inventory: Inventory,
    driver: Driver,
}

impl Case {
    pub(super) fn asking(value: &str) -> Self {
        Self {
            host: Host::new("/nonexistent"),
            config: Config::default(),
            handler: Handler::Nvidia,
            image: Image::default(),
            spec: json!({"process": {"env": [
                format!("NVIDIA_VISIBLE_DEVICES={value}"),
                "NVIDIA_DRIVER_CAPABILITIES=all",
            ]}}),
            inventory: inventory(2),
            driver: driver(),
        }
    }

    pub(super) fn plan(&self) -> Result<Plan> {
        let spec = Spec::new(self.spec.clone());
        let request = Request::of(&spec).unwrap().unwrap();
        let gpus = gpus::select(&request, &self.inventory, self.handler)?;
        let granted = Granted::of(&request, &self.config, self.handler)?;
        let decision = Decision {
            host: &self.host,
            config: &self.config,
            handler: self.handler,
            image: &self.image,
            spec: &spec,
            request: &request,
            granted: &granted,
            inventory: &self.inventory,
            manages: false,
        };
        let mut plan = Plan::of(Report::default());
        decision.make(&gpus, &self.driver, &mut plan)?;
        if self.handler == Handler::NvidiaCdi {
            plan.keep_others_off();
        }
        Ok(plan)
    }

    fn needs(&self) -> Vec<Need> {
        let request = Request::of(&Spec::new(self.spec.clone())).unwrap().unwrap();
        let (inventory, registry) = (self.inventory.clone(), Registry::default());
        let ways = Ways { live: Some(request.clone()), ..Ways::default() };
        Inquiry { request, inventory, registry, ways }.needs(&self.config, self.handler).unwrap()
    }

    fn refusal(&self) -> (Code, String) {
        let error = self.plan().unwrap_err();
        (error.code(), error.to_string())
    }

    fn devices(&self) -> Vec<String> {
        let devices = self.plan().unwrap().edits.devices;
        devices.iter().map(|device| device.path.display().to_string()).collect()
    }
}

#[test]
fn an_index_is_not_a_minor() {
    let control = ["/dev/nvidiactl", "/dev/nvidia-uvm"];
    assert_eq!(
        Case::asking("0").devices(),
        [&["/dev/nvidia1", "/dev/dri/card0"], &control[..]].concat()
    );
    assert_eq!(Case::asking("none").devices(), control);
}

#[test]
fn every_name_of_a_gpu_gives_it_once() {
    let names = "1,gpu-00000001-AAAA-bbbb-cccc-000000000000,00000000:0B:00.0,01, 1 ,";
    let devices = Case::asking(names).devices();
    assert_eq!(devices, ["/dev/nvidia0", "/dev/dri/card1", "/dev/nvidiactl", "/dev/nvidia-uvm"]);
    assert_eq!(Case::asking("1,0").devices(), Case::asking("all").devices());
}

#[test]
fn what_cannot_be_given_is_refused_in_one_line() {
    let (code, line) = Case::asking("0,7").refusal();
    assert_eq!(code, Code::UnknownGpu);
    assert_eq!(
        line,
        "NVS-101: NVIDIA_VISIBLE_DEVICES=0,7 asks for GPU 7, which does not exist; this node has \
         0 (GPU-00000000-aaaa-bbbb-cccc-000000000000, 0000:0a:00.0), \
         1 (GPU-00000001-aaaa-bbbb-cccc-000000000000, 0000:0b:00.0); \
         ask for a GPU that exists on this node"
    );
    for (value, expected) in [
        ("-1", Code::InvalidRequest),
        ("99999999999999999999", Code::UnknownGpu),
        ("GPU-0", Code::UnknownGpu),
        ("0001:0a:00.0", Code::UnknownGpu),
        ("0:0", Code::MigName),
        ("MIG-x", Code::MigName),
        ("nvidia.com/gpu=0", Code::InvalidRequest),
        ("ALL", Code::InvalidRequest),
    ] {
        let (code, line) = Case::asking(value).refusal();
        assert_eq!(code, expected, "{line}");
        assert!(line.contains(value), "{line}");
    }
    let cdi = Case { handler: Handler::NvidiaCdi, ..Case::asking("00") };
    assert_eq!(cdi.refusal().0, Code::UnknownGpu);
}

#[test]
fn no_gpu_an_excluded_one_and_one_that_sleeps_are_told_apart() {
    let mut case = Case::asking("all");
    case.inventory.gpus.clear();
    assert_eq!(case.refusal().0, Code::NoGpu);
    let mut case = Case::asking("0000:0b:00.0");
    case.inventory.excluded = vec![case.inventory.gpus.remove(1)];
    assert_eq!(case.refusal().0, Code::ExcludedGpu);
    let mut case = Case::asking("GPU-x");
    case.inventory.gpus[1].uuid = None;
    assert_eq!(case.refusal().0, Code::UuidUnknown);
}

#[test]
fn a_sleeping_gpu_is_woken_only_for_a_uuid_that_is_not_known() {
    let needs = |value: &str| {
        let mut case = Case::asking(value);
        case.inventory.gpus[1].uuid = None;
        case.needs()
    };
    assert_eq!(needs("GPU-x"), [Need::Wake { minor: 0, major: 195 }]);
    assert_eq!(needs("all"), []);
    assert_eq!(needs("GPU-00000000-aaaa-bbbb-cccc-000000000000"), []);
}

#[test]
fn a_module_that_is_not_loaded_is_needed_and_else_missed() {
    let mut case = Case::asking("0");
    case.inventory.control.pop();
    assert_eq!(case.needs(), [Need::Module("nvidia-uvm".to_owned())]);
    case.config.load_kmods = false;
    assert_eq!(case.needs(), []);
    assert_eq!(case.refusal().0, Code::ModuleNotLoaded);
}

#[test]
fn a_library_without_which_nothing_works_is_missed() {
    let mut case = Case::asking("none");
    case.driver.libraries.retain(|library| library.class == Class::Elf32);
    let (code, line) = case.refusal();
    assert_eq!(code, Code::LibraryMissing);
    assert!(line.contains("no libcuda.so, which compute"), "{line}");
}

#[test]
fn libraries_go_where_the_image_looks_and_links_with_them() {
    let mut case = Case::asking("0");
    case.image.library_dir = Some("/lib/deb".into());
    let plan = case.plan().unwrap();
    let mounts: Vec<_> = plan
        .edits
        .mounts
        .iter()
        .map(|mount| format!("{} {}", mount.source.display(), mount.destination.display()))
        .collect();
    assert_eq!(
        mounts,
        [
            "/d/usr/lib64/libcuda.so.550.1 /lib/deb/libcuda.so.550.1",
            "/d/usr/lib64/libnvidia-ml.so.550.1 /lib/deb/libnvidia-ml.so.550.1",
            "/d/usr/lib64/libnvidia-allocator.so.550.1 /lib/deb/libnvidia-allocator.so.550.1",
            "/d/usr/lib64/vdpau/libvdpau_nvidia.so.550.1 /lib/deb/vdpau/libvdpau_nvidia.so.550.1",
            "/d/usr/lib/libcuda.so.550.1 /usr/lib/libcuda.so.550.1",
            "/d/usr/bin/nvidia-smi /usr/bin/nvidia-smi",
            "/d/usr/lib64/xorg/modules/libglxserver_nvidia.so.550.1 \
             /usr/lib64/xorg/modules/libglxserver_nvidia.so.550.1",
        ]
    );
    let links: Vec<_> = plan
        .fixups
        .links
        .iter()
        .map(|link| format!("{} {}", link.link.display(), link.target.display()))
        .collect();
    assert_eq!(
        links,
        [
            "/lib/deb/libcuda.so.1 libcuda.so.550.1",
            "/lib/deb/libnvidia-ml.so.1 libnvidia-ml.so.550.1",
            "/lib/deb/libnvidia-allocator.so.1 libnvidia-allocator.so.550.1",
            "/lib/deb/gbm/nvidia-drm_gbm.so ../libnvidia-allocator.so.1",
            "/lib/deb/vdpau/libvdpau_nvidia.so.1 libvdpau_nvidia.so.550.1",
            "/usr/lib/libcuda.so.1 libcuda.so.550.1",
            "/usr/lib64/xorg/modules/libglxserver_nvidia.so libglxserver_nvidia.so.550.1",
        ]
    );
    let dirs = ["/lib/deb", "/lib/deb/vdpau", "/usr/lib"].map(PathBuf::from);
    assert_eq!(plan.fixups.library_dirs, dirs);
    assert_eq!(plan.edits.env, [("NVIDIA_CTK_LIBCUDA_DIR".to_owned(), "/lib/deb".to_owned())]);
    let entry = |name: &str| plan.fixups.libraries.iter().any(|it| it.soname == name);
    assert!(entry("libcuda.so.1") && !entry("nvidia-drm_gbm.so"));
}

#[test]
fn libraries_stay_at_the_hosts_path_for_cdi_and_for_an_image_without_loader() {
    let image = Image { library_dir: Some("/lib/deb".into()), ..Image::default() };
    let cdi = Case { handler: Handler::NvidiaCdi, image, ..Case::asking("0") };
    let plan = cdi.plan().unwrap();
    assert_eq!(plan.edits.mounts[0].destination, Path::new("/usr/lib64/libcuda.so.550.1"));
    assert!(plan.edits.env.contains(&(VISIBLE_DEVICES.to_owned(), "void".to_owned())));
    let plan = Case::asking("0").plan().unwrap();
    assert_eq!(plan.edits.mounts[0].destination, Path::new("/usr/lib64/libcuda.so.550.1"));
    assert_eq!(plan.edits.mounts[0].options, ["ro", "nosuid", "nodev", "rbind", "rprivate"]);
}

#[test]
fn a_directory_of_sockets_is_given_if_root_made_it() {
    let dir = tempfile::tempdir().unwrap();
    let mps = dir.path().join("tmp/nvidia-mps");
    std::fs::create_dir_all(&mps).unwrap();
    let mut case = Case { host: Host::new(dir.path()), ..Case::asking("0") };
    case.driver.files = vec![DriverFile {
        kind: FileKind::Socket,
        source: "/tmp/nvidia-mps".into(),
        destination: "/tmp/nvidia-mps".into(),
    }];
    let given = |case: &Case| {
        let mounts = case.plan().unwrap().edits.mounts;
        mounts.into_iter().find(|mount| mount.destination.starts_with("/tmp"))
    };
    let options = ["nosuid", "nodev", "rbind", "rprivate", "noexec"];
    assert_eq!(given(&case).unwrap().options, options);
    std::os::unix::fs::chown(&mps, Some(1000), None).unwrap();
    assert_eq!(given(&case), None);
    std::fs::remove_dir(&mps).unwrap();
    symlink("/etc", &mps).unwrap();
    assert_eq!(given(&case), None);
}

#[test]
fn a_node_without_driver_refuses_or_starts_as_it_is_set() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let spec = Spec::new(json!({"process": {"env": ["NVIDIA_VISIBLE_DEVICES=all"]}}));
    let outcome = |config: &Config| {
        plan(&host.afresh(), config, Handler::Nvidia, &Image::default(), &spec)
            .map_err(|error| error.code())
    };
    let start = Config { no_driver: NoDriver::Start, ..Config::default() };
    assert_eq!(outcome(&Config::default()).unwrap_err(), Code::NoKernelDriver);
    assert!(
        matches!(outcome(&start), Ok(Outcome::Untouched(report)) if report.warnings.len() == 1)
    );
    let function = dir.path().join("sys/bus/pci/devices/0000:0a:00.0");
    std::fs::create_dir_all(&function).unwrap();
    std::fs::write(function.join("vendor"), "0x10de\n").unwrap();
    assert_eq!(outcome(&start).unwrap_err(), Code::NoKernelDriver);
    std::fs::create_dir(dir.path().join("etc")).unwrap();
    std::fs::write(dir.path().join("etc/nv_tegra_release"), "").unwrap();
    assert_eq!(outcome(&start).unwrap_err(), Code::PlatformUnsupported);
}

#[test]
fn params_are_masked_where_other_gpus_could_be_made() {
    let masked = |gpus: &str, capability: &str, set: Option<(&str, &str)>| {
        let mut case = Case::asking(gpus);
        case.spec["process"]["capabilities"] = json!({"bounding": [capability]});
        if let Some((key, value)) = set {
            case.config.set(key, value).unwrap();
        }
        case.plan().unwrap().fixups.mask_params
    };
    assert!(masked("0", "CAP_MKNOD", None));
    assert!(masked("none", "CAP_MKNOD", None));
    assert!(!masked("all", "CAP_MKNOD", None) && !masked("0", "CAP_KILL", None));
    assert!(masked("all", "CAP_KILL", Some(("mask-params", "always"))));
    assert!(!masked("0", "CAP_MKNOD", Some(("mask-params", "never"))));
    let disabled = "nvidia-container-runtime.modes.jit-cdi.nvcdi-disable-hooks";
    assert!(!masked("0", "CAP_MKNOD", Some((disabled, "disable-device-node-modification"))));
}

#[test]
fn the_mode_of_tegra_is_refused_by_name() {
    let host = Host::new("/nonexistent");
    let spec = Spec::new(json!({"process": {"env": ["NVIDIA_VISIBLE_DEVICES=all"]}}));
    let mut config = Config::default();
    config.set("nvidia-container-runtime.mode", "csv").unwrap();
    let error = plan(&host, &config, Handler::Nvidia, &Image::default(), &spec).unwrap_err();
    assert_eq!(error.code(), Code::PlatformUnsupported);
    assert!(error.to_string().contains("mode is csv"), "{error}");
}

#[test]
fn who_asks_for_nothing_is_untouched_whatever_the_host() {
    let host = Host::new("/nonexistent");
    let spec = Spec::new(json!({"process": {"env": ["A=1"]}, "mounts": 3}));
    let config = Config::default();
    let outcome = plan(&host, &config, Handler::Nvidia, &Image::default(), &spec);
    assert!(matches!(outcome, Ok(Outcome::Untouched(_))));
    assert_eq!(policy::judge(&spec, &config, Handler::Nvidia).unwrap().request, None);
}

#[test]
fn a_device_that_is_not_nvidias_is_never_given() {
    let mut case = Case::asking("0");
    case.inventory.gpus[0].node.major = 1;
    assert_eq!(case.refusal().0, Code::UntrustedPath);
}

#[test]
fn links_by_bus_id_go_with_their_gpu() {
    let mut case = Case::asking("0");
    for gpu in &mut case.inventory.gpus {
        let link = format!("/dev/dri/by-path/pci-{}-card", gpu.bus_id);
        gpu.drm_links = vec![(link.into(), format!("../card{}", gpu.index).into())];
    }
    let links = case.plan().unwrap().fixups.links;
    let ours: Vec<_> = links.iter().filter(|link| link.link.starts_with("/dev")).collect();
    assert_eq!(ours.len(), 1);
    assert_eq!(ours[0].link, Path::new("/dev/dri/by-path/pci-0000:0a:00.0-card"));
}

#[test]
fn two_libraries_for_one_place_are_not_both_mounted() {
    let mut case = Case::asking("0");
    case.image.library_dir = Some("/lib/deb".into());
    case.driver.libraries.push(library("/opt/lib/libcuda.so.550.1", "libcuda.so.1"));
    let plan = case.plan().unwrap();
    assert_eq!(plan.report.withheld[0].name, "/d/opt/lib/libcuda.so.550.1");
}

proptest! {
    #[test]
    fn given_gpus_are_those_asked_for(
        count in 1..9u32,
        asked in prop::collection::vec(0..9u32, 1..9),
    ) {
        let asked: Vec<u32> = asked.into_iter().map(|index| index % count).collect();
        let list = asked.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let case = Case { inventory: inventory(count), ..Case::asking(&list) };
        let mut expected: Vec<u32> = asked.iter().map(|index| count - 1 - index).collect();
        expected.sort_unstable();
        expected.dedup();
        let devices = case.plan().unwrap().edits.devices;
        let mut given: Vec<u32> = devices
            .iter()
            .filter(|device| device.major == 195 && device.minor != 255)
            .map(|device| device.minor)
            .collect();
        given.sort_unstable();
        prop_assert_eq!(given, expected);
    }

    #[test]
    fn no_request_makes_the_decision_panic(value in "\\PC{0,30}|[0-9a-fGPUMI:.,/=-]{0,30}") {
        let case = Case::asking(&value);
        if Request::of(&Spec::new(case.spec.clone())).unwrap().is_some() {
            let _ = case.plan();
        }
    }
}
