//! IMEX channels, on a host of which the driver has three and nodes of two.

use std::fs;
use std::process::Command;

use super::*;

fn host(count: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("proc/devices", "Character devices:\n195 nvidia\n507 nvidia-caps-imex-channels\n");
    write("proc/driver/nvidia/params", &format!("ImexChannelCount: {count}\n"));
    write("dev/nvidia-caps-imex-channels/README", "");
    for id in [0, 2] {
        let path = dir.path().join(format!("dev/nvidia-caps-imex-channels/channel{id}"));
        let id = id.to_string();
        assert!(
            Command::new("mknod").arg(&path).args(["c", "507", &id]).status().unwrap().success()
        );
    }
    dir
}

/// The channels that are given, `+` before those that are made.
fn given(channels: &str, privileged: bool, setting: Option<(&str, &str)>) -> Result<Vec<String>> {
    let dir = host("3");
    let mut case = Case::asking("0");
    case.host = Host::new(dir.path());
    if let Some((key, value)) = setting {
        case.config.set(key, value).unwrap();
    }
    let entry = format!("NVIDIA_IMEX_CHANNELS={channels}");
    case.spec["process"]["env"].as_array_mut().unwrap().push(json!(entry));
    if privileged {
        case.spec["process"]["capabilities"] = json!({"bounding": ["CAP_SYS_ADMIN"]});
    }
    let request = Request::of(&Spec::new(case.spec.clone())).unwrap().unwrap();
    case.inventory.read_imex(&case.host, &case.config, request.imex.as_ref().unwrap())?;
    let plan = case.plan()?;
    let mut spec = Spec::new(case.spec.clone());
    plan.edits.apply(&mut spec).unwrap();
    let rules = spec.value()["linux"]["resources"]["devices"].as_array().unwrap();
    let mut names = Vec::new();
    for device in plan.edits.devices.iter().filter(|device| device.major == 507) {
        let is_its = |rule: &&Value| rule["major"] == 507 && rule["minor"] == device.minor;
        assert_eq!(rules.iter().filter(is_its).count(), 1);
        let made = plan.missing_nodes.iter().any(|node| node.path == device.host_path);
        let name = device.path.file_name().unwrap().to_str().unwrap();
        names.push(format!("{}{name}", if made { "+" } else { "" }));
    }
    assert_eq!(rules.iter().filter(|rule| rule["major"] == 507).count(), names.len());
    Ok(names)
}

#[test]
fn channels_that_exist_are_given_once() {
    assert_eq!(given("2,channel0,2", false, None).unwrap(), ["channel0", "channel2"]);
}

#[test]
fn one_that_does_not_is_made_for_the_privileged_only() {
    let error = given("0,1", false, None).unwrap_err();
    assert_eq!(error.code(), Code::ImexChannel);
    let text = error.to_string();
    let says = "NVIDIA_IMEX_CHANNELS=0,1 asks for IMEX channel 1, which does not exist; this node \
                has 0, 2";
    assert!(text.contains(says), "{text}");
    assert_eq!(given("0,1", true, None).unwrap(), ["channel0", "+channel1"]);
    let off = ("features.disable-imex-channel-creation", "true");
    assert_eq!(given("1", true, Some(off)).unwrap_err().code(), Code::ImexChannel);
}

#[test]
fn more_than_the_driver_has_is_made_for_nobody() {
    let error = given("3", true, None).unwrap_err();
    assert!(error.to_string().contains("IMEX channel 3, which this driver cannot have"), "{error}");
}

#[test]
fn the_handler_of_cdi_knows_them_by_its_own_names_alone() {
    let mode = ("nvidia-container-runtime.mode", "cdi");
    assert_eq!(given("1", false, Some(mode)).unwrap(), [""; 0]);
}
