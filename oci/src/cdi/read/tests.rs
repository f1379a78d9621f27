use std::fs;

use proptest::prelude::*;
use serde_json::json;

use super::super::{ContainerEdits, DeviceNode, Hook, Mount, Version};
use super::*;

const WHOLE: &str = r#"{
  "cdiVersion": "1.1.0",
  "kind": "vendor.example/dev",
  "annotations": { "a": "b" },
  "devices": [
    {
      "name": "0",
      "annotations": { "c": "d" },
      "containerEdits": {
        "env": [ "A=1" ],
        "deviceNodes": [
          {
            "path": "/dev/x",
            "hostPath": "/dev/y",
            "type": "c",
            "major": 195,
            "minor": 1,
            "fileMode": 438,
            "permissions": "rw",
            "uid": 1,
            "gid": 2
          }
        ],
        "netDevices": [ { "hostInterfaceName": "eth0", "name": "net0" } ],
        "hooks": [
          { "hookName": "poststop", "path": "/h", "args": [ "h", "x" ], "env": [ "B=2" ], "timeout": 3 }
        ],
        "mounts": [
          { "hostPath": "/h", "containerPath": "/c", "options": [ "ro" ], "type": "none" }
        ],
        "intelRdt": {
          "closID": "c",
          "l3CacheSchema": "L3:0=f",
          "memBwSchema": "MB:0=1",
          "schemata": [ "x" ],
          "enableMonitoring": true
        },
        "additionalGids": [ 5 ]
      }
    }
  ],
  "containerEdits": { "env": [ "C=3" ] }
}"#;

/// What is wrong with a spec of one device with these edits, in that version.
fn problem(version: &str, edits: &serde_json::Value) -> Option<Problem> {
    let spec = json!({
        "cdiVersion": version, "kind": "a.b/c",
        "devices": [{"name": "x", "containerEdits": edits}],
    });
    parse(spec.to_string().as_bytes()).err()
}

fn said(problem: Option<Problem>) -> String {
    problem.map(|problem| problem.to_string()).unwrap_or_default()
}

#[test]
fn all_fields_are_read_and_written_in_the_order_of_the_specification() {
    let spec = parse(WHOLE.as_bytes()).unwrap();
    let compact = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(compact(&serde_json::to_string(&spec).unwrap()), compact(WHOLE));
    assert_eq!(spec.lowest_version(), Version::V1_1_0);
    assert_eq!(spec.device("0").unwrap().edits.device_nodes[0].file_mode, Some(0o666));
}

#[test]
fn yaml_says_the_same() {
    let yaml = "---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
    fileMode: 0666
  env: [\"A=yes\", 'B=#1']
  hooks:
  mounts: []
devices:
- containerEdits: &edits
    additionalGids: null
    deviceNodes:
    - {path: /dev/nvidia0, hostPath: /dev/nvidia1, major: 195, permissions: rw}
    mounts:
    - containerPath: /c
      hostPath: /h
      options: [ro]
  name: 0
- name: GPU-1
  containerEdits: *edits
kind: nvidia.com/gpu
";
    let spec = parse(yaml.as_bytes()).unwrap();
    assert_eq!(spec.edits.env, ["A=yes", "B=#1"]);
    assert_eq!(spec.edits.device_nodes[0].file_mode, Some(0o666));
    let names: Vec<_> = spec.devices.iter().map(|device| &device.name).collect();
    assert_eq!(names, ["0", "GPU-1"]);
    assert_eq!(spec.devices[0].edits, spec.devices[1].edits);
    assert_eq!(spec.devices[0].edits.device_nodes[0].major, 195);
    let json = serde_json::to_string(&spec).unwrap();
    assert_eq!(parse(json.as_bytes()).unwrap(), spec);
    assert_eq!(parse(format!(" {{kind: x, {}", json.get(1..).unwrap()).as_bytes()).ok(), None);
    for lax in [
        json.replace("\"kind\":", "kind: "),
        json.replace("}]}", "}],}"),
        json.replace("\"0\"", "0"),
        json.replace("\"0.5.0\"", "0.5.0"),
    ] {
        assert_ne!(lax, json);
        assert_eq!(parse(lax.as_bytes()).unwrap(), spec, "{lax}");
    }
}

#[test]
fn what_is_not_in_the_specification_is_refused() {
    for unknown in [
        r#"{"cdiVersion": "0.6.0", "kind": "a/b", "future": 1, "devices": []}"#,
        "cdiVersion: 0.6.0\nkind: a/b\nfuture: 1\ndevices: []\n",
    ] {
        let error = said(parse(unknown.as_bytes()).err());
        assert!(error.contains("future") && error.contains("line"), "{error}");
    }
    for (not, place) in [
        ("", "empty"),
        ("# only words\n", "empty"),
        ("[]", "line 1"),
        ("{not json", "line 2"),
        ("a: b: c", "line 1"),
        ("\u{0}", "line 1"),
        ("cdiVersion: [1]\n", "line 1"),
        ("kind: a/b\nkind: a/b\n", "duplicate"),
    ] {
        let error = said(parse(not.as_bytes()).err());
        assert!(error.contains(place), "{not:?}: {error}");
    }
    assert!(parse(b"\xff").is_err());
}

#[test]
fn a_number_is_a_name_in_json_too() {
    let spec = r#"{"cdiVersion": "0.5.0", "kind": "a.b/c",
        "devices": [{"name": 0, "containerEdits": {"env": ["A=1"]}}]}"#;
    assert_eq!(parse(spec.as_bytes()).unwrap().devices[0].name, "0");
}

#[test]
fn a_version_has_what_it_says() {
    let gids = json!({"additionalGids": [1]});
    let low = said(problem("0.6.0", &gids));
    assert_eq!(low, "is of CDI version 0.6.0 and has additionalGids, which needs 0.7.0");
    assert_eq!(problem("v0.7.0", &gids), None);
    let env = json!({"env": ["A=1"]});
    assert_eq!(problem("0.3.0", &env), None);
    assert!(matches!(problem("1.2.0", &env), Some(Problem::TooNew(_))));
    assert!(matches!(problem("9.9.9", &env), Some(Problem::TooNew(_))));
    for unknown in ["0.2.0", "", "1.1", "x", "0.6.1"] {
        let problem = problem(unknown, &env);
        assert!(matches!(problem, Some(Problem::UnknownVersion(_))), "{unknown}: {problem:?}");
    }
    for (edits, lowest) in [
        (json!({"mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "x"}]}), "0.4.0"),
        (json!({"deviceNodes": [{"path": "/a", "hostPath": "/b"}]}), "0.5.0"),
        (json!({"intelRdt": {}}), "0.7.0"),
        (json!({"intelRdt": {"enableMonitoring": true}}), "1.1.0"),
        (json!({"netDevices": [{"hostInterfaceName": "a", "name": "b"}]}), "1.1.0"),
    ] {
        assert_eq!(problem(lowest, &edits), None, "{edits}");
        let position = Version::ALL.iter().position(|version| version.as_str() == lowest).unwrap();
        let before = Version::ALL[position - 1].as_str();
        let low = problem(before, &edits);
        assert!(matches!(low, Some(Problem::VersionTooLow { .. })), "{low:?}");
    }
    let dropped = json!({"intelRdt": {"enableCMT": true}});
    assert_eq!(problem("1.0.0", &dropped), None);
    assert!(matches!(problem("1.1.0", &dropped), Some(Problem::Dropped { .. })));
}

#[test]
fn edits_that_mean_nothing_are_refused() {
    for (edits, word) in [
        (json!({}), "change nothing"),
        (json!({"env": ["X"]}), "NAME=value"),
        (json!({"env": ["=x"]}), "NAME=value"),
        (json!({"deviceNodes": [{"path": ""}]}), "no path"),
        (json!({"deviceNodes": [{"path": "/x", "type": "q"}]}), "of type"),
        (json!({"deviceNodes": [{"path": "/x", "permissions": "rwx"}]}), "permissions"),
        (json!({"deviceNodes": [{"path": "/x", "major": -1}]}), "number"),
        (json!({"hooks": [{"hookName": "bogus", "path": "/h"}]}), "stage"),
        (json!({"hooks": [{"hookName": "prestart"}]}), "no path"),
        (json!({"hooks": [{"hookName": "prestart", "path": "/h", "env": ["x"]}]}), "NAME=value"),
        (json!({"mounts": [{"hostPath": "", "containerPath": "/a"}]}), "lacks a path"),
        (json!({"intelRdt": {"closID": "../x"}}), "closID"),
        (json!({"netDevices": [{"hostInterfaceName": "a", "name": ""}]}), "lacks a name"),
        (
            json!({"netDevices": [
                {"hostInterfaceName": "a", "name": "b"}, {"hostInterfaceName": "c", "name": "b"},
            ]}),
            "twice",
        ),
    ] {
        let said = said(problem("1.1.0", &edits));
        assert!(said.contains("device x") && said.contains(word), "{edits}: {said}");
    }
    let none = json!({"deviceNodes": [{"path": "/x", "permissions": "none"}]});
    assert_eq!(problem("0.3.0", &none), None);
}

#[test]
fn names_are_checked() {
    let of = |kind: &str, names: &[&str]| {
        let device = |name: &&str| json!({"name": name, "containerEdits": {"env": ["A=1"]}});
        let devices: Vec<_> = names.iter().map(device).collect();
        let spec = json!({"cdiVersion": "0.6.0", "kind": kind, "devices": devices});
        parse(spec.to_string().as_bytes()).err()
    };
    assert_eq!(of("a.b/c.d", &["x", "0:1"]), None);
    assert!(matches!(of("a.b", &["x"]), Some(Problem::Name(_))));
    assert!(matches!(of("a.b/c", &["x="]), Some(Problem::Name(_))));
    assert_eq!(of("a.b/c", &["x", "y", "x"]), Some(Problem::Twice("x".to_owned())));
    assert_eq!(of("a.b/c", &[]), Some(Problem::NoDevices));
}

#[test]
fn a_file_is_regular_and_not_large() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let large = format!("{}{}", " ".repeat(10 << 20), WHOLE);
    fs::write(dir.path().join("large.json"), large).unwrap();
    fs::create_dir(dir.path().join("dir.json")).unwrap();
    fs::write(dir.path().join("good.json"), WHOLE).unwrap();
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("zero.json")).unwrap();
    for name in ["large", "dir", "none", "zero"] {
        let problem = read(&host, Path::new(&format!("/{name}.json"))).unwrap_err();
        assert!(matches!(problem, Problem::Unreadable(_)), "{name}: {problem}");
    }
    read(&host, Path::new("/good.json")).unwrap();
}

fn text() -> impl Strategy<Value = String> {
    "[ -~]{0,12}|[a-z0-9:#&*!%@`'\" ]{0,8}|true|null|0x1f|~|\\PC{0,6}"
}

fn edits() -> impl Strategy<Value = ContainerEdits> {
    let node = (text(), text(), any::<i64>(), any::<Option<u32>>(), any::<Option<u32>>()).prop_map(
        |(path, host_path, major, file_mode, uid)| DeviceNode {
            path,
            host_path,
            major,
            file_mode,
            uid,
            ..DeviceNode::default()
        },
    );
    let mount = (text(), text(), prop::collection::vec(text(), 0..3)).prop_map(
        |(host_path, container_path, options)| Mount {
            host_path,
            container_path,
            options,
            ..Mount::default()
        },
    );
    let hook = (text(), prop::collection::vec(text(), 0..3), any::<Option<i64>>()).prop_map(
        |(path, args, timeout)| Hook {
            hook_name: "prestart".to_owned(),
            path,
            args,
            timeout,
            ..Hook::default()
        },
    );
    let few = |range| prop::collection::vec(text(), range);
    (
        few(0..3),
        prop::collection::vec(node, 0..3),
        prop::collection::vec(mount, 0..3),
        prop::collection::vec(hook, 0..3),
        prop::collection::vec(any::<u32>(), 0..3),
    )
        .prop_map(|(env, device_nodes, mounts, hooks, additional_gids)| ContainerEdits {
            env,
            device_nodes,
            mounts,
            hooks,
            additional_gids,
            ..ContainerEdits::default()
        })
}

proptest! {
    /// JSON is YAML, so that both readers must make the same of what serde wrote.
    #[test]
    fn what_is_written_is_read_back_by_both_readers(edits in edits(), name in text()) {
        let spec = Spec {
            devices: vec![super::super::Device { name, edits, ..Default::default() }],
            ..Spec::default()
        };
        let json = serde_json::to_string(&spec).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Spec>(&json).unwrap(), &spec);
        prop_assert_eq!(&yaml::from_str::<Spec>(&json).unwrap(), &spec, "{}", json);
    }

    #[test]
    fn no_bytes_make_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        lines in prop::collection::vec("( {0,4}|\t)(- |\\? |: |&a |\\*a |!!str |!x |%YAML |--- |\\.\\.\\. |[\\[\\]{}|>,]|kind: |devices: |[a-z]{0,3}|\"|'|#){0,6}", 0..12),
    ) {
        let _ = parse(&bytes);
        let _ = parse(lines.join("\n").as_bytes());
    }

    /// A spec with one thing changed: an error or a spec that passes its own check.
    #[test]
    fn a_changed_spec_is_no_surprise(at in 0..WHOLE.len(), byte: u8) {
        let mut bytes = WHOLE.as_bytes().to_vec();
        bytes[at] = byte;
        if let Ok(spec) = parse(&bytes) {
            prop_assert_eq!(spec.check(), Ok(()));
        }
    }
}
