use std::fs;

use super::*;

struct Node(tempfile::TempDir);

impl Node {
    fn loaded() -> Self {
        let node = Self(tempfile::tempdir().unwrap());
        node.write(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8\n",
        );
        node.write(
            "proc/devices",
            "Character devices:\n195 nvidia\n195 nvidiactl\n510 nvidia-uvm\n",
        );
        node
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn gpu(&self, bus_id: &str, minor: u32, excluded: bool) {
        let excluded = if excluded { "Yes" } else { "No" };
        self.write(
            &format!("proc/driver/nvidia/gpus/{bus_id}/information"),
            &format!(
                "Model: \t\t NVIDIA L4\nGPU UUID: \t GPU-a0000000-1111-2222-3333-{minor:012}\n\
                 Bus Location: \t {bus_id}\nDevice Minor: \t {minor}\nGPU Excluded:\t {excluded}\n"
            ),
        );
    }

    fn read(&self) -> Result<Inventory> {
        Inventory::read(&Host::new(self.0.path()), &Config::default())
    }
}

#[test]
fn the_index_is_the_order_on_the_bus_without_excluded_ones() {
    let node = Node::loaded();
    node.gpu("0001:01:00.0", 0, false);
    node.gpu("0000:0F:00.0", 2, false);
    node.gpu("0000:07:00.0", 1, true);
    node.gpu("10000:01:00.0", 3, false);
    let inventory = node.read().unwrap();
    let order: Vec<_> =
        inventory.gpus.iter().map(|gpu| (gpu.index, gpu.bus_id.as_str(), gpu.minor)).collect();
    assert_eq!(order, [(0, "0000:0f:00.0", 2), (1, "0001:01:00.0", 0), (2, "10000:01:00.0", 3)]);
    let excluded: Vec<_> = inventory.excluded.iter().map(|gpu| gpu.minor).collect();
    assert_eq!(excluded, [1]);
    assert!(inventory.on_pci && inventory.may_make_nodes);
}

#[test]
fn missing_nodes_are_as_the_parameters_say() {
    let node = Node::loaded();
    node.gpu("0000:07:00.0", 4, false);
    node.write(
        "proc/driver/nvidia/params",
        "ModifyDeviceFiles: 0\nDeviceFileUID: 7\nDeviceFileGID: 44\nDeviceFileMode: 432\n",
    );
    let inventory = node.read().unwrap();
    assert!(!inventory.may_make_nodes);
    assert_eq!(
        inventory.gpus.first().unwrap().node,
        NodeNumbers {
            path: "/dev/nvidia4".into(),
            host_path: "/dev/nvidia4".into(),
            major: 195,
            minor: 4,
            mode: 0o660,
            uid: 7,
            gid: 44,
            exists: false,
        }
    );
    let control: Vec<_> = inventory
        .control
        .iter()
        .map(|control| (control.name.as_str(), control.node.major, control.node.minor))
        .collect();
    assert_eq!(
        control,
        [("nvidiactl", 195, 255), ("nvidia-uvm", 510, 0), ("nvidia-uvm-tools", 510, 1)]
    );
}

#[test]
fn modesetting_of_older_drivers_is_known_by_its_module() {
    let node = Node::loaded();
    node.write("sys/module/nvidia_modeset/refcnt", "0\n");
    let control = node.read().unwrap().control;
    let modeset = control.iter().find(|control| control.name == "nvidia-modeset").unwrap();
    assert_eq!((modeset.node.major, modeset.node.minor, modeset.loaded), (195, 254, true));
}

#[test]
fn a_host_without_driver_is_no_error() {
    let node = Node(tempfile::tempdir().unwrap());
    assert_eq!(node.read().unwrap(), Inventory::default());
    node.write("sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n");
    assert!(!node.read().unwrap().on_pci);
    node.write("sys/bus/pci/devices/0000:07:00.0/vendor", "0x10de\n");
    assert!(node.read().unwrap().on_pci);
}

#[test]
fn the_version_of_sysfs_does_too() {
    let node = Node(tempfile::tempdir().unwrap());
    node.write("sys/module/nvidia/version", "570.1.2\n");
    assert_eq!(node.read().unwrap().driver_version.as_deref(), Some("570.1.2"));
    node.write("sys/module/nvidia/version", "../../x\n");
    assert_eq!(node.read().unwrap_err().code(), Code::ProcfsUnreadable);
}

#[test]
fn a_malformed_file_is_named() {
    let node = Node::loaded();
    node.write("proc/driver/nvidia/gpus/0000:07:00.0/information", "Device Minor: x\n");
    let error = node.read().unwrap_err();
    assert_eq!(error.code(), Code::ProcfsUnreadable);
    let place = "line 1 of /proc/driver/nvidia/gpus/0000:07:00.0/information";
    assert!(error.to_string().contains(place), "{error}");
}

#[test]
fn another_device_by_the_name_of_a_drm_node_is_refused() {
    let node = Node::loaded();
    node.gpu("0000:07:00.0", 0, false);
    node.write("sys/bus/pci/devices/0000:07:00.0/drm/card1/dev", "226:1\n");
    node.write("sys/bus/pci/devices/0000:07:00.0/drm/card/x", "");
    let dir = node.0.path().join("dev/dri");
    fs::create_dir_all(&dir).unwrap();
    let mknod = |major, minor| {
        let path = dir.join("card1");
        let made = std::process::Command::new("mknod").arg(path).args(["c", major, minor]).status();
        assert!(made.unwrap().success());
    };
    // 10:232 is /dev/kvm.
    for (major, minor) in [("10", "232"), ("226", "2")] {
        mknod(major, minor);
        let error = node.read().unwrap_err();
        let what = format!("/dev/dri/card1 is device {major}:{minor}, not 226:1");
        assert!(error.to_string().contains(&what), "{error}");
        fs::remove_file(dir.join("card1")).unwrap();
    }
    mknod("226", "1");
    let inventory = node.read().unwrap();
    let drm: Vec<_> = inventory.gpus[0].drm.iter().map(|node| (node.major, node.minor)).collect();
    assert_eq!(drm, [(226, 1)]);
}
