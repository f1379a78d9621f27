use proptest::prelude::*;
use serde_json::json;

use super::*;

fn device(name: &str, minor: u32) -> DeviceNode {
    let path = Path::new("/dev").join(name);
    DeviceNode {
        host_path: path.clone(),
        path,
        major: 195,
        minor,
        kind: DeviceKind::Character,
        mode: Some(0o666),
        uid: 0,
        gid: 0,
        access: "rwm".to_owned(),
        bind: false,
    }
}

fn mount(source: &str, destination: &str) -> Mount {
    Mount {
        source: source.into(),
        destination: destination.into(),
        kind: "bind".to_owned(),
        options: vec!["ro".to_owned(), "rbind".to_owned()],
    }
}

fn edits() -> Edits {
    Edits {
        env: vec![("A".to_owned(), "1".to_owned())],
        devices: vec![device("nvidia0", 0), device("nvidiactl", 255)],
        mounts: vec![mount("/r/usr/lib/x", "/usr/lib/x"), mount("/r/bin", "/bin")],
        additional_gids: vec![44],
        ..Edits::default()
    }
}

fn hook(stage: &str, path: &str, timed: bool) -> Hook {
    Hook {
        hook_name: stage.to_owned(),
        path: path.to_owned(),
        timeout: timed.then_some(3),
        ..Hook::default()
    }
}

fn applied(edits: &Edits, before: Value) -> Value {
    let mut spec = Spec::new(before);
    edits.apply(&mut spec).unwrap();
    spec.value().clone()
}

#[test]
fn an_empty_spec_gets_exactly_the_edits() {
    let rule = |minor: u32| json!({"allow": true, "type": "c", "major": 195, "minor": minor, "access": "rwm"});
    let node = |path: &str, minor: u32| json!({"path": path, "type": "c", "major": 195, "minor": minor, "fileMode": 0o666});
    let bind = |source: &str, destination: &str| json!({"destination": destination, "type": "bind", "source": source, "options": ["ro", "rbind"]});
    assert_eq!(
        applied(&edits(), json!({})),
        json!({
            "process": {"env": ["A=1"], "user": {"additionalGids": [44]}},
            "linux": {
                "devices": [node("/dev/nvidia0", 0), node("/dev/nvidiactl", 255)],
                "resources": {"devices": [rule(0), rule(255)]},
            },
            "mounts": [bind("/r/bin", "/bin"), bind("/r/usr/lib/x", "/usr/lib/x")],
        })
    );
}

#[test]
fn no_edit_makes_nothing() {
    assert_eq!(applied(&Edits::default(), json!({"mounts": {}})), json!({"mounts": {}}));
}

#[test]
fn what_is_there_is_replaced_and_the_rest_stays() {
    let before = json!({
        "process": {"env": ["B=1", "A=0", "B=2", "A", "AB=3"], "user": {"additionalGids": [44, 7]}},
        "linux": {"devices": [{"path": "/dev/./nvidia0", "type": "b"}, {"path": "/dev/fuse"}],
                  "resources": {"devices": [{"allow": false, "access": "rwm"}]}},
        "mounts": [{"destination": "/usr/lib/x/"}, {"destination": "/proc"}, {"destination": "/a/b/c/d"}],
    });
    let after = applied(&edits(), before);
    assert_eq!(after["process"]["env"], json!(["B=1", "A=1", "B=2", "AB=3"]));
    assert_eq!(after["process"]["user"]["additionalGids"], json!([44, 7]));
    let paths = |list: &Value, key: &str| -> Vec<Value> {
        list.as_array().unwrap().iter().map(|entry| entry[key].clone()).collect()
    };
    assert_eq!(
        paths(&after["linux"]["devices"], "path"),
        ["/dev/fuse", "/dev/nvidia0", "/dev/nvidiactl"]
    );
    assert_eq!(after["linux"]["resources"]["devices"][0], json!({"allow": false, "access": "rwm"}));
    assert_eq!(paths(&after["mounts"], "destination"), ["/proc", "/bin", "/usr/lib/x", "/a/b/c/d"]);
}

#[test]
fn hooks_interfaces_and_resource_control_are_written() {
    let rdt = IntelRdt { clos_id: "c".to_owned(), enable_cmt: true, ..IntelRdt::default() };
    let run = Hook {
        args: vec!["h".to_owned()],
        env: vec!["A=1".to_owned()],
        ..hook("poststart", "/h", true)
    };
    let interface = NetDevice { host_interface_name: "eth1".to_owned(), name: "net0".to_owned() };
    let edits = Edits {
        hooks: vec![hook("prestart", "/h", false), run],
        net_devices: vec![interface],
        intel_rdt: Some(rdt),
        ..Edits::default()
    };
    let before =
        json!({"hooks": {"prestart": [{"path": "/x"}]}, "linux": {"intelRdt": {"closID": "d"}}});
    assert_eq!(
        applied(&edits, before),
        json!({
            "hooks": {
                "prestart": [{"path": "/x"}, {"path": "/h"}],
                "poststart": [{"path": "/h", "args": ["h"], "env": ["A=1"], "timeout": 3}],
            },
            "linux": {
                "intelRdt": {"closID": "c", "enableCMT": true},
                "netDevices": {"eth1": {"name": "net0"}},
            },
        })
    );
}

#[test]
fn other_kinds_of_nodes_have_their_own_rules_or_none() {
    let of = |kind, mode, access: &str| DeviceNode {
        kind,
        mode,
        access: access.to_owned(),
        ..device("x", 1)
    };
    let after = |node| applied(&Edits { devices: vec![node], ..Edits::default() }, json!({}));
    let block = after(of(DeviceKind::Block, Some(0o600), "r"));
    assert_eq!(block["linux"]["devices"][0]["type"], "b");
    assert_eq!(block["linux"]["resources"]["devices"][0]["type"], "b");
    assert_eq!(block["linux"]["resources"]["devices"][0]["access"], "r");
    let fifo = after(of(DeviceKind::Fifo, None, "rwm"));
    assert_eq!(fifo["linux"]["devices"][0].get("fileMode"), None);
    assert_eq!(fifo["linux"]["resources"]["devices"], json!([]));
}

#[test]
fn of_two_edits_of_one_place_the_later_counts() {
    let edits = Edits {
        devices: vec![device("x", 1), device("y", 2), device("./x", 3)],
        mounts: vec![mount("/1", "/m"), mount("/2", "/m/")],
        ..Edits::default()
    };
    let after = applied(&edits, json!({}));
    let minors: Vec<_> =
        after["linux"]["devices"].as_array().unwrap().iter().map(|d| &d["minor"]).collect();
    assert_eq!(minors, [2, 3]);
    assert_eq!(after["mounts"].as_array().unwrap().len(), 1);
    assert_eq!(after["mounts"][0]["source"], "/2");
}

#[test]
fn a_bound_device_is_a_mount_with_its_rule() {
    let bound =
        DeviceNode { bind: true, host_path: "/r/dev/nvidia0".into(), ..device("nvidia0", 0) };
    let edits = Edits { devices: vec![bound], ..Edits::default() };
    let after = applied(&edits, json!({"linux": {"devices": [{"path": "/dev/nvidia0"}]}}));
    assert_eq!(after["linux"]["devices"], json!([]));
    assert_eq!(after["linux"]["resources"]["devices"][0]["minor"], 0);
    assert_eq!(after["mounts"][0]["source"], "/r/dev/nvidia0");
    assert_eq!(after["mounts"][0]["options"], json!(["bind", "rprivate"]));
}

#[test]
fn an_owner_is_written_where_it_is_not_root() {
    let owned = DeviceNode { uid: 1000, gid: 44, ..device("nvidia0", 0) };
    let edits = Edits { devices: vec![owned], ..Edits::default() };
    let entry = &applied(&edits, json!({}))["linux"]["devices"][0];
    assert_eq!((&entry["uid"], &entry["gid"]), (&json!(1000), &json!(44)));
}

#[test]
fn nvidias_own_hook_is_removed_and_no_other() {
    let hooks = json!({"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}, {"path": "/x"}],
                       "poststop": [{"path": "/y/nvidia-container-toolkit"}]});
    let after = applied(&edits(), json!({"hooks": hooks}));
    assert_eq!(after["hooks"]["prestart"], json!([{"path": "/x"}]));
    assert_eq!(after["hooks"]["poststop"].as_array().unwrap().len(), 1);
}

#[test]
fn a_spec_of_another_shape_is_refused_by_name() {
    let error = edits().apply(&mut Spec::new(json!({"mounts": {}}))).unwrap_err();
    assert!(error.to_string().contains("mounts is not a list"), "{error}");
    edits().apply(&mut Spec::new(json!({"linux": {"resources": 3}}))).unwrap_err();
}

#[test]
fn sources_of_a_simulated_node_lie_below_its_prefix() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("run/d")).unwrap();
    std::os::unix::fs::symlink("/run", dir.path().join("r")).unwrap();
    let edits = Edits {
        mounts: vec![mount("/r/d", "/d")],
        devices: vec![device("nvidia0", 0)],
        hooks: vec![hook("prestart", "/r/h", false), hook("startContainer", "/r/h", false)],
        ..Edits::default()
    };
    std::fs::write(dir.path().join("run/h"), "").unwrap();
    let here = edits.clone().on(&Host::new(dir.path()));
    assert_eq!(here.mounts[0].source, dir.path().join("run/d"));
    assert_eq!(here.devices[0].host_path, dir.path().join("dev/nvidia0"));
    let paths: Vec<_> = here.hooks.iter().map(|hook| Path::new(&hook.path)).collect();
    assert_eq!(paths, [&dir.path().join("run/h"), Path::new("/r/h")]);
    assert_eq!(edits.clone().on(&Host::new("/")), edits);
}

fn any_name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["nvidia0", "nvidia1", "x/y", "./nvidia0", "a/../nvidia1"])
        .prop_map(str::to_owned)
}

#[test]
fn a_part_applied_again_moves_nothing() {
    let part = |names: &[&str], minor| Edits {
        devices: names.iter().map(|name| device(name, minor)).collect(),
        mounts: names.iter().map(|name| mount("/s", &format!("/m/{name}"))).collect(),
        hooks: names.iter().map(|name| hook("prestart", &format!("/{name}"), false)).collect(),
        ..Edits::default()
    };
    let (ours, others) = (part(&["a", "b"], 1), part(&["c"], 2));
    let both = applied(&others, applied(&ours, json!({})));
    assert_eq!(applied(&ours, both.clone()), both);
    // One that denies comes between: what allows must come after it.
    let mut denied = both.clone();
    let rules = denied["linux"]["resources"]["devices"].as_array_mut().unwrap();
    rules.push(json!({"allow": false, "access": "rwm"}));
    let after = applied(&ours, denied);
    let rules = after["linux"]["resources"]["devices"].as_array().unwrap();
    assert_eq!((rules.len(), &rules[2]["minor"]), (3, &json!(1)));
}

#[test]
fn a_hook_that_was_given_without_environment_has_ours() {
    let with_env = Hook { env: vec!["A=b".to_owned()], ..hook("prestart", "/h", false) };
    let edits = Edits { hooks: vec![with_env], ..Edits::default() };
    let after = applied(&edits, json!({"hooks": {"prestart": [{"path": "/h"}, {"path": "/x"}]}}));
    let expected = json!([{"path": "/h", "env": ["A=b"]}, {"path": "/x"}]);
    assert_eq!(after["hooks"]["prestart"], expected);
}

prop_compose! {
    fn any_edits()(
        names in prop::collection::vec((any_name(), 0..4u32, any::<bool>()), 0..4),
        mounts in prop::collection::vec(any_name(), 0..4),
        env in prop::collection::vec(("[AB]{1,2}", "[a=]{0,2}"), 0..3),
        additional_gids in prop::collection::vec(0..3u32, 0..3),
        hooks in prop::collection::vec(("prestart|poststop", "/[ab]", any::<bool>()), 0..3),
        interfaces in prop::collection::vec(("[ab]", "[cd]"), 0..3),
        clos in prop::option::of("[a-c]"),
    ) -> Edits {
        let devices = names.iter().map(|(name, minor, bind)| {
            DeviceNode { bind: *bind, ..device(name, *minor) }
        });
        Edits {
            env,
            devices: devices.collect(),
            mounts: mounts.iter().map(|name| mount("/s", &format!("/m/{name}"))).collect(),
            additional_gids,
            hooks: hooks.into_iter().map(|(stage, path, timed)| hook(&stage, &path, timed)).collect(),
            net_devices: interfaces
                .into_iter()
                .map(|(host_interface_name, name)| NetDevice { host_interface_name, name })
                .collect(),
            intel_rdt: clos.map(|clos_id| IntelRdt { clos_id, ..IntelRdt::default() }),
        }
    }
}

prop_compose! {
    fn any_spec()(
        env in prop::collection::vec("[AB]{1,2}(=[ab]{0,2})?", 0..4),
        devices in prop::collection::vec(any_name(), 0..3),
        mounts in prop::collection::vec(any_name(), 0..3),
        rules in prop::collection::vec((any::<bool>(), 0..4u32), 0..3),
    ) -> Value {
        let path = |key: &'static str, above: &'static str| {
            move |name: &String| json!({ key: format!("{above}{name}") })
        };
        json!({
            "process": {"env": env},
            "linux": {
                "devices": devices.iter().map(path("path", "/dev/")).collect::<Vec<_>>(),
                "resources": {"devices": rules.iter().map(|(allow, minor)| {
                    json!({"allow": allow, "type": "c", "major": 195, "minor": minor, "access": "rwm"})
                }).collect::<Vec<_>>()},
            },
            "mounts": mounts.iter().map(path("destination", "/m/")).collect::<Vec<_>>(),
        })
    }
}

proptest! {
    #[test]
    fn twice_is_once(edits in any_edits(), spec in any_spec()) {
        let once = applied(&edits, spec);
        prop_assert_eq!(applied(&edits, once.clone()), once);
    }

    /// What the device cgroup says in the end, the last rule first: as if ours were put last.
    #[test]
    fn rules_count_as_if_they_were_last(edits in any_edits(), spec in any_spec()) {
        let list = |spec: &Value| {
            let rules = spec["linux"]["resources"]["devices"].as_array();
            rules.cloned().unwrap_or_default()
        };
        let allowed = |rules: &[Value], minor: u64| {
            rules.iter().rev().find(|rule| rule["minor"] == minor).map(|rule| rule["allow"].clone())
        };
        let mut simple = list(&spec);
        for device in &edits.devices {
            simple.push(json!({"allow": true, "minor": device.minor}));
        }
        let after = list(&applied(&edits, spec));
        for minor in 0..4 {
            prop_assert_eq!(allowed(&after, minor), allowed(&simple, minor));
        }
    }

    #[test]
    fn each_device_has_one_rule_of_its_own_and_none_is_a_wildcard(edits in any_edits()) {
        let after = applied(&edits, json!({}));
        let rules = after["linux"]["resources"]["devices"].as_array().cloned().unwrap_or_default();
        let mut minors: Vec<u32> = edits.devices.iter().map(|device| device.minor).collect();
        minors.sort_unstable();
        minors.dedup();
        prop_assert_eq!(rules.len(), minors.len());
        for rule in rules {
            prop_assert_eq!(&rule["type"], "c");
            prop_assert_eq!(&rule["major"], 195);
            prop_assert!(rule["minor"].is_u64());
        }
    }
}

/// Specs of any shape, with the names of the keys that edits look for.
fn any_json() -> impl Strategy<Value = Value> {
    const KEYS: [&str; 19] = [
        "netDevices",
        "intelRdt",
        "process",
        "env",
        "user",
        "additionalGids",
        "linux",
        "devices",
        "resources",
        "mounts",
        "destination",
        "path",
        "hooks",
        "prestart",
        "uidMappings",
        "namespaces",
        "root",
        "annotations",
        "capabilities",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "NVIDIA_VISIBLE_DEVICES(=(all|none|0|,){0,3})?|\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(KEYS.to_vec()), inner), 0..6).prop_map(
                |fields| fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            ),
        ]
    })
}

proptest! {
    #[test]
    fn a_spec_of_any_shape_is_edited_or_refused(edits in any_edits(), json in any_json()) {
        let mut spec = Spec::new(json);
        let _ = crate::Request::of(&spec);
        let _ = (spec.mounts().count(), spec.user(), spec.in_user_namespace(), spec.root_path());
        let _ = (spec.uid_mappings(), spec.may_have("CAP_MKNOD"), spec.root_readonly());
        let _ = crate::request::asks(&spec.to_json(), &crate::ConfigSource::default());
        if edits.apply(&mut spec).is_ok() {
            let once = spec.clone();
            edits.apply(&mut spec).unwrap();
            prop_assert_eq!(spec, once);
        }
    }
}
