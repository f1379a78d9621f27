//! What each driver capability gives, and what is missed.

use std::path::Path;

use super::*;

/// A node of all control nodes, and a driver with a library or file of each capability.
fn asking_for(capabilities: &str) -> Case {
    let mut case = Case::asking("0");
    case.spec["process"]["env"][1] = json!(format!("NVIDIA_DRIVER_CAPABILITIES={capabilities}"));
    for (name, major, minor) in [("nvidia-uvm-tools", 510, 1), ("nvidia-modeset", 195, 254)] {
        let node = node(name, major, minor);
        case.inventory.control.push(ControlNode { name: name.to_owned(), node, loaded: true });
    }
    for (name, soname) in [
        ("libEGL_nvidia", "libEGL_nvidia.so.0"),
        ("libnvcuvid", "libnvcuvid.so.1"),
        ("libnvidia-ngx", "libnvidia-ngx.so.1"),
        ("libnvidia-novel", "libnvidia-novel.so.1"),
    ] {
        case.driver.libraries.push(library(&format!("/usr/lib64/{name}.so.550.1"), soname));
    }
    let file = |kind, path: &str| DriverFile {
        kind,
        source: Path::new("/d").join(path.trim_start_matches('/')),
        destination: path.into(),
    };
    case.driver.files.extend([
        file(FileKind::Binary, "/usr/bin/nvidia-cuda-mps-server"),
        file(FileKind::Firmware, "/lib/firmware/nvidia/550.1/gsp_ga10x.bin"),
        file(FileKind::Data, "/usr/share/glvnd/egl_vendor.d/10_nvidia.json"),
        file(FileKind::Data, "/etc/OpenCL/vendors/nvidia.icd"),
    ]);
    case
}

/// Names of devices and files that are given, without their directories and the driver's version.
fn given(case: &Case) -> Vec<String> {
    let plan = case.plan().unwrap();
    let devices = plan.edits.devices.iter().map(|device| device.path.as_path());
    let files = plan.edits.mounts.iter().map(|mount| mount.destination.as_path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().replace(".so.550.1", "");
    devices.chain(files).map(name).collect()
}

#[test]
fn a_container_gets_what_its_capabilities_need() {
    let always = ["nvidia1", "nvidiactl", "libnvidia-novel", "gsp_ga10x.bin"];
    let compute = [
        "nvidia-uvm",
        "nvidia-uvm-tools",
        "libcuda",
        "libnvidia-allocator",
        "nvidia-cuda-mps-server",
        "nvidia.icd",
    ];
    let graphics = [
        "card0",
        "libnvidia-allocator",
        "libEGL_nvidia",
        "libglxserver_nvidia",
        "10_nvidia.json",
        "nvidia.icd",
    ];
    for (capabilities, expected) in [
        ("utility", vec!["libnvidia-ml", "nvidia-smi"]),
        ("compute", compute.to_vec()),
        ("video", [&compute[..], &["libnvcuvid", "libvdpau_nvidia"]].concat()),
        ("graphics", graphics.to_vec()),
        ("display", [&graphics[..], &["nvidia-modeset"]].concat()),
        ("ngx", vec!["libnvidia-ngx"]),
        ("compat32", vec![]),
    ] {
        let mut expected = [&always[..], &expected].concat();
        let mut given = given(&asking_for(capabilities));
        expected.sort_unstable();
        given.sort_unstable();
        assert_eq!(given, expected, "{capabilities}");
    }
}

#[test]
fn libraries_of_32_bits_go_with_their_capability() {
    let libcudas = |capabilities: &str| {
        given(&asking_for(capabilities)).into_iter().filter(|name| name == "libcuda").count()
    };
    assert_eq!(libcudas("compute"), 1);
    assert_eq!(libcudas("compute,compat32"), 2);
    assert_eq!(libcudas("utility,compat32"), 0);
    let cdi = Case { handler: Handler::NvidiaCdi, ..asking_for("compute") };
    assert_eq!(given(&cdi).into_iter().filter(|name| name == "libcuda").count(), 2);
}

#[test]
fn what_was_withheld_is_named_with_what_it_is_for() {
    let report = asking_for("utility").plan().unwrap().report;
    let reason = |name: &str| {
        let mut withheld = report.withheld.iter();
        withheld.find(|item| item.name == name).unwrap().reason.clone()
    };
    assert_eq!(reason("/d/usr/lib64/libcuda.so.550.1"), "for compute; granted are utility");
    assert_eq!(reason("/d/usr/lib/libcuda.so.550.1"), "for compute,compat32; granted are utility");
    assert_eq!(reason("/dev/nvidia-modeset"), "for display; granted are utility");
    assert_eq!(reason("/dev/dri/card0"), "for graphics; granted are utility");
    let allocator = reason("/d/usr/lib64/libnvidia-allocator.so.550.1");
    assert_eq!(allocator, "for compute,graphics; granted are utility");
}

#[test]
fn only_what_was_asked_for_by_name_is_missed() {
    let refused = |capabilities: &str, missing: &str| {
        let mut case = asking_for(capabilities);
        case.driver.libraries.retain(|library| library.name() != missing);
        case.plan().err().map(|error| (error.code(), error.to_string()))
    };
    let (code, line) = refused("graphics", "libEGL_nvidia").unwrap();
    assert_eq!(code, Code::LibraryMissing);
    assert!(line.contains("no libEGL_nvidia.so or libGLX_nvidia.so, which graphics"), "{line}");
    assert_eq!(refused("utility", "libnvidia-ml").unwrap().0, Code::LibraryMissing);
    assert_eq!(refused("video", "libcuda").unwrap().0, Code::LibraryMissing);
    assert_eq!(refused("compute", "libnvidia-ml"), None);
    assert_eq!(refused("graphics", "libcuda"), None);
    assert_eq!(refused("all", "libEGL_nvidia"), None);
    assert_eq!(refused("all", "libcuda").unwrap().0, Code::LibraryMissing);
}

#[test]
fn a_damaged_library_is_told_from_a_missing_one() {
    let mut case = asking_for("compute");
    case.driver.libraries.retain(|library| library.name() != "libcuda");
    case.driver.left_out.push(("/d/usr/lib64/libcuda.so.550.1".into(), "truncated".to_owned()));
    let (code, line) = case.refusal();
    assert_eq!(code, Code::LibraryUnreadable);
    assert!(line.contains("/d/usr/lib64/libcuda.so.550.1, which compute"), "{line}");
    assert!(line.contains("truncated"), "{line}");
}

#[test]
fn a_module_is_needed_for_what_computes_only() {
    let without_uvm = |capabilities: &str| {
        let mut case = asking_for(capabilities);
        case.inventory.control.retain(|control| !control.name.starts_with("nvidia-uvm"));
        case.plan().err().map(|error| error.code())
    };
    assert_eq!(without_uvm("utility,graphics"), None);
    assert_eq!(without_uvm("video"), Some(Code::ModuleNotLoaded));
    let needs = |capabilities: &str| {
        let mut case = asking_for(capabilities);
        case.inventory.control.retain(|control| !control.name.starts_with("nvidia-uvm"));
        case.needs()
    };
    assert_eq!(needs("utility"), []);
    assert_eq!(needs("compute"), [Need::Module("nvidia-uvm".to_owned())]);
}

#[test]
fn a_vendor_file_that_the_driver_came_without_is_written() {
    let mut case = asking_for("graphics");
    let paths = |case: &Case| -> Vec<String> {
        let files = case.plan().unwrap().fixups.files;
        files.iter().map(|file| file.path.display().to_string()).collect()
    };
    let vulkan = "/etc/vulkan/icd.d/nvidia_icd.json";
    assert_eq!(paths(&case), [vulkan]);
    case.driver.files.retain(|file| file.kind != FileKind::Data);
    assert_eq!(paths(&case), ["/usr/share/glvnd/egl_vendor.d/10_nvidia.json", vulkan]);
    assert_eq!(paths(&asking_for("compute,utility")), [""; 0]);
}

proptest! {
    #[test]
    fn given_nodes_are_those_asked_for(
        count in 1..9u32,
        asked in prop::collection::btree_set(0..9u32, 1..9),
        bits in prop::collection::vec(any::<bool>(), 7),
    ) {
        let names = ["compute", "utility", "graphics", "display", "video", "ngx", "compat32"];
        let named: Vec<&str> =
            names.into_iter().zip(&bits).filter(|(_, on)| **on).map(|(name, _)| name).collect();
        let mut case = asking_for(&named.join(","));
        case.inventory.gpus = inventory(count).gpus;
        let asked: std::collections::BTreeSet<u32> =
            asked.into_iter().map(|index| index % count).collect();
        let list = asked.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        case.spec["process"]["env"][0] = json!(format!("NVIDIA_VISIBLE_DEVICES={list}"));

        let is = |name: &str| named.contains(&name);
        let compute = is("compute") || is("video") || named.is_empty();
        let graphics = is("graphics") || is("display");
        let mut expected = vec!["/dev/nvidiactl".to_owned()];
        for index in asked {
            expected.push(format!("/dev/nvidia{}", count - 1 - index));
            if graphics {
                expected.push(format!("/dev/dri/card{index}"));
            }
        }
        if compute {
            expected.extend(["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"].map(Into::into));
        }
        if is("display") {
            expected.push("/dev/nvidia-modeset".to_owned());
        }
        expected.sort_unstable();
        let mut devices = case.devices();
        devices.sort_unstable();
        prop_assert_eq!(devices, expected);
    }
}
