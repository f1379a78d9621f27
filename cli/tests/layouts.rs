//! Whatever the host is, a container gets the same driver in the same places.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use nvidia_oci::elf::Machine;
use nvidia_oci::report::ItemKind;
use nvidia_oci::{Config, Handler, Host, Image, Libc, Outcome, Plan, Spec, plan};
use nvidia_shim::simulate::{Layout, Node};
use serde_json::json;

const LAYOUTS: [(Layout, &str); 7] = [
    (Layout::Debian, "/"),
    (Layout::Rhel, "/"),
    (Layout::Talos, "/"),
    (Layout::DriverContainer, "/run/nvidia/driver"),
    (Layout::Nixos, "/"),
    (Layout::Gke, "/home/kubernetes/bin/nvidia"),
    (Layout::Flatcar, "/opt/nvidia/current"),
];
const IMAGE_LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

fn decide(host: &Host, capabilities: &str) -> Plan {
    let spec = Spec::new(json!({"process": {"env": [
        "NVIDIA_VISIBLE_DEVICES=0",
        format!("NVIDIA_DRIVER_CAPABILITIES={capabilities}"),
    ]}}));
    let image = Image {
        machine: Some(Machine::X86_64),
        libc: Some(Libc::Glibc),
        library_dir: Some(IMAGE_LIBRARIES.into()),
        library_dir_32: None,
    };
    match plan(host, &Config::default(), Handler::Nvidia, &image, &spec).unwrap() {
        Outcome::Edited(plan) => *plan,
        Outcome::Untouched(_) => panic!("untouched"),
    }
}

#[test]
fn every_layout_gives_the_same_driver() {
    let mut libraries: BTreeSet<Vec<String>> = BTreeSet::new();
    for (layout, root) in LAYOUTS {
        let dir = tempfile::tempdir().unwrap();
        Node::new(layout, 1).write(dir.path()).unwrap();
        let host = Host::new(dir.path());
        let plan = decide(&host, "compute,utility,graphics,video,ngx");
        assert_eq!(plan.report.driver.as_ref().unwrap().root, Path::new(root), "{layout:?}");

        let mounts: Vec<String> =
            plan.edits.mounts.iter().map(|it| it.destination.display().to_string()).collect();
        let in_image = mounts.iter().filter(|path| path.starts_with(IMAGE_LIBRARIES));
        let name = |path: &String| path.rsplit('/').next().unwrap().to_owned();
        let mut found: Vec<String> = in_image.map(name).collect();
        found.sort();
        assert!(found.len() > 20, "{layout:?}: {found:?}");
        libraries.insert(found);
        for mount in &plan.edits.mounts {
            let source = host.metadata(&mount.source).unwrap();
            assert!(!source.is_dir(), "{layout:?}: {mount:?}");
            assert!(!mount.destination.starts_with("/run/current-system/sw"), "{mount:?}");
        }
        assert!(mounts.iter().any(|path| path.ends_with("bin/nvidia-smi")), "{layout:?}");
        let firmware = mounts.iter().filter(|path| path.ends_with(".bin") && path.contains("gsp"));
        assert_eq!(firmware.count(), 2, "{layout:?}");

        // Mounted where the driver has it, written where not; never one that names host paths.
        let written: Vec<String> =
            plan.fixups.files.iter().map(|file| file.path.display().to_string()).collect();
        for vendor in [
            "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
            "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
            "/etc/vulkan/icd.d/nvidia_icd.json",
            "/etc/OpenCL/vendors/nvidia.icd",
        ] {
            let mounted = mounts.iter().filter(|path| *path == vendor).count();
            let written = written.iter().filter(|path| *path == vendor).count();
            assert_eq!(mounted + written, 1, "{layout:?}: {vendor}");
        }
        for mount in &plan.edits.mounts {
            if mount.source.extension().is_some_and(|it| it == "json" || it == "icd") {
                let text = fs::read_to_string(host.join(&host.resolve(&mount.source).unwrap()));
                assert!(!text.unwrap().contains("/nix/store"), "{mount:?}");
            }
        }
    }
    assert_eq!(libraries.len(), 1, "{libraries:#?}");
}

#[test]
fn nixos_names_what_it_left_out_and_keeps_its_links() {
    let dir = tempfile::tempdir().unwrap();
    Node::new(Layout::Nixos, 1).write(dir.path()).unwrap();
    let host = Host::new(dir.path());
    let report = decide(&host, "graphics,compute").report;
    let icd = report.withheld.iter().find(|item| item.name.ends_with("nvidia_icd.x86_64.json"));
    let icd = icd.unwrap();
    assert!(icd.kind == ItemKind::File && icd.reason.contains("/nix/store/"), "{icd:?}");
    // Links by bare name are those of the directory of links.
    let plan = decide(&host, "compute,utility");
    let has = |link: &str| {
        plan.fixups.links.iter().any(|it| it.link == Path::new(IMAGE_LIBRARIES).join(link))
    };
    assert!(has("libcuda.so") && has("libnvidia-ml.so") && has("libnvidia-ml.so.1"));
}
