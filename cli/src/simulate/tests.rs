//! Tests of the whole node.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::sys::stat::{major, minor};
use nvidia_oci::Host;

use super::*;

const LAYOUTS: [Layout; 7] = [
    Layout::Debian,
    Layout::Rhel,
    Layout::Talos,
    Layout::DriverContainer,
    Layout::Nixos,
    Layout::Gke,
    Layout::Flatcar,
];

/// Every path of the tree with what it is and holds.
fn contents(root: &Path) -> BTreeMap<PathBuf, String> {
    fn collect(dir: &Path, into: &mut BTreeMap<PathBuf, String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let mode = meta.mode();
            let what = if meta.is_symlink() {
                fs::read_link(&path).unwrap().display().to_string()
            } else if meta.is_file() {
                format!("{mode:o} {}", String::from_utf8_lossy(&fs::read(&path).unwrap()))
            } else {
                format!("{mode:o} {}", meta.rdev())
            };
            into.insert(path.clone(), what);
            if meta.is_dir() {
                collect(&path, into);
            }
        }
    }
    let mut found = BTreeMap::new();
    collect(root, &mut found);
    found
}

#[test]
fn a_node_is_the_same_each_time() {
    let dir = tempfile::tempdir().unwrap();
    for layout in LAYOUTS {
        Node::new(layout, 3).write(dir.path()).unwrap();
        let first = contents(dir.path());
        Node::new(layout, 3).write(dir.path()).unwrap();
        assert_eq!(first, contents(dir.path()), "{layout:?}");
    }
}

#[test]
fn every_link_of_every_layout_leads_to_something() {
    for layout in LAYOUTS {
        let dir = tempfile::tempdir().unwrap();
        Node::new(layout, 2).write(dir.path()).unwrap();
        let root = dir.path().to_owned();
        // Links of a driver container are meant below its own root.
        let container = root.join(driver::DRIVER_CONTAINER);
        for path in contents(&root).into_keys().filter(|path| path.is_symlink()) {
            let prefix = if path.starts_with(&container) { &container } else { &root };
            let inside = Path::new("/").join(path.strip_prefix(prefix).unwrap());
            assert!(Host::new(prefix).exists(&inside), "{layout:?}: {}", inside.display());
        }
    }
}

#[test]
fn a_debian_node_reaches_libcuda_through_alternatives() {
    let dir = tempfile::tempdir().unwrap();
    Node::new(Layout::Debian, 1).write(dir.path()).unwrap();
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    let library =
        Host::new(dir.path()).resolve(&Path::new("/usr/lib").join(&triplet).join("libcuda.so.1"));
    let expected = format!("/usr/lib/{triplet}/nvidia/current/libcuda.so.550.163.01");
    assert_eq!(library.unwrap(), Path::new(&expected));
}

#[test]
fn minors_are_not_indices_and_nodes_have_the_numbers_of_procfs() {
    let dir = tempfile::tempdir().unwrap();
    let made = Node::new(Layout::Debian, 2).write(dir.path()).unwrap();
    let gpu = dir.path().join("proc/driver/nvidia/gpus/0000:07:00.0/information");
    assert!(fs::read_to_string(gpu).unwrap().contains("\nDevice Minor: \t 1\n"));
    if made == DeviceNodes::LeftOut {
        return;
    }
    let numbers = |name: &str| {
        let meta = fs::symlink_metadata(dir.path().join("dev").join(name)).unwrap();
        assert!(meta.file_type().is_char_device(), "{name}");
        (major(meta.rdev()), minor(meta.rdev()), meta.mode() & 0o777, meta.gid())
    };
    assert_eq!(numbers("nvidia1"), (195, 1, 0o666, 0));
    assert_eq!(numbers("nvidiactl"), (195, 255, 0o666, 0));
    assert_eq!(numbers("dri/renderD129"), (226, 129, 0o660, 105));
    let devices = fs::read_to_string(dir.path().join("proc/devices")).unwrap();
    assert!(devices.contains(&format!("{} nvidia-uvm\n", numbers("nvidia-uvm").0)));
}

#[test]
fn another_directory_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("precious"), "").unwrap();
    let error = Node::new(Layout::Debian, 1).write(dir.path()).unwrap_err().to_string();
    assert!(error.contains("neither empty nor a simulated node"), "{error}");
    assert!(dir.path().join("precious").exists());
}

#[test]
fn the_directory_of_another_user_is_left_alone() {
    if !geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), Some(65_534), None).unwrap();
    let error = Node::new(Layout::Debian, 1).write(dir.path()).unwrap_err().to_string();
    assert!(error.contains("another user"), "{error}");
}

#[test]
fn nonsense_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node");
    let mut node = Node::new(Layout::Debian, 33);
    assert!(node.write(&path).unwrap_err().to_string().contains("at most 32"));
    node.gpus = 1;
    for version in ["", "550", "550.", "../../etc", "550.1/../x"] {
        version.clone_into(&mut node.driver_version);
        assert!(node.write(&path).unwrap_err().to_string().contains("driver version"));
    }
    assert!(!path.exists());
}

#[test]
fn thirty_two_gpus_are_told_apart() {
    let gpus = Gpu::all(32);
    let distinct = |of: fn(&Gpu) -> String| {
        gpus.iter().map(of).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(distinct(|gpu| gpu.bus_id.clone()), 32);
    assert_eq!(distinct(|gpu| gpu.uuid.clone()), 32);
    assert_eq!(distinct(|gpu| gpu.minor.to_string()), 32);
    assert!(gpus.is_sorted_by_key(|gpu| &gpu.bus_id));
}
