//! Whose device nodes are in a container, how they get there, and which are missed.

use super::*;

#[test]
fn a_node_belongs_to_the_user_of_the_container_and_its_group_is_joined() {
    let mut case = Case::asking("0");
    case.spec["process"]["user"] = json!({"uid": 1000, "gid": 1000});
    let edits = case.plan().unwrap().edits;
    let owners: Vec<_> = edits.devices.iter().map(|device| (device.uid, device.gid)).collect();
    assert_eq!(owners, [(1000, 1000), (1000, 44), (1000, 1000), (1000, 1000)]);
    assert_eq!(edits.additional_gids, [44]);
}

#[test]
fn in_a_user_namespace_a_device_is_bound_and_no_group_is_joined() {
    let mut case = Case::asking("0");
    case.spec["linux"] = json!({"namespaces": [{"type": "user"}]});
    let edits = case.plan().unwrap().edits;
    assert!(edits.devices.iter().all(|device| device.bind));
    assert!(edits.additional_gids.is_empty());
}

#[test]
fn a_node_elsewhere_on_the_host_is_bound_unless_the_host_has_it_here_too() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("dev")).unwrap();
    let mut case = Case { host: Host::new(dir.path()), ..Case::asking("0") };
    case.inventory.gpus[0].node.host_path = "/run/d/dev/nvidia1".into();
    assert!(case.plan().unwrap().edits.devices[0].bind);
    let here = dir.path().join("dev/nvidia1");
    let mknod = |minor: &str| {
        let mut command = std::process::Command::new("mknod");
        assert!(command.arg(&here).args(["c", "195", minor]).status().unwrap().success());
    };
    mknod("0");
    assert!(case.plan().unwrap().edits.devices[0].bind, "another device");
    std::fs::remove_file(&here).unwrap();
    mknod("1");
    assert!(!case.plan().unwrap().edits.devices[0].bind);
}

#[test]
fn a_node_that_is_not_there_is_made_where_the_driver_lets() {
    let mut case = Case::asking("0");
    case.inventory.gpus[0].node.exists = false;
    let plan = case.plan().unwrap();
    let missing: Vec<_> = plan.missing_nodes.iter().map(|node| node.path.as_path()).collect();
    assert_eq!(missing, [Path::new("/dev/nvidia1")]);
    case.inventory.may_make_nodes = false;
    assert_eq!(case.refusal().0, Code::NodeMissing);
}

#[test]
fn an_optional_node_that_cannot_be_had_is_withheld() {
    let mut case = Case::asking("0");
    let mut modeset = case.inventory.control[0].clone();
    modeset.name = "nvidia-modeset".to_owned();
    modeset.node = node("nvidia-modeset", 195, 254);
    modeset.loaded = false;
    case.inventory.control.push(modeset);
    let plan = case.plan().unwrap();
    assert_eq!(plan.report.withheld[0].name, "/dev/nvidia-modeset");
    assert!(!case.devices().contains(&"/dev/nvidia-modeset".to_owned()));
}
