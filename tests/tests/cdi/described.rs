//! Devices that specs describe.

use std::cell::Cell;

use nvidia_oci::{Code, DeviceKind, Handler, Outcome};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::scene::{Scene, env, set};

#[test]
fn several_vendors_are_given_in_the_order_of_the_request() {
    let scene = Scene::on("deb535-2gpu")
        .described("a", "vendor.example/dev", &[("x", env("WHO=x")), ("y", env("WHO=y"))])
        .described("b", "other.example/net", &[("x", env("NET=1"))])
        .asking(
            "other.example/net=x,vendor.example/dev=y,vendor.example/dev=x,other.example/net=x",
        );
    for handler in [Handler::Nvidia, Handler::NvidiaCdi] {
        let env = Scene { handler, ..scene_of(&scene) }.plan().edits.env;
        let values: Vec<_> = env.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, ["1", "y", "x"]);
    }
    // And they need no driver of NVIDIA's.
    let report = scene.plan().report;
    assert!(report.driver.is_none() && report.warnings.is_empty(), "{report}");
    assert!(report.to_string().contains("vendor.example/dev=y, /etc/cdi/a.json"), "{report}");
}

fn scene_of(scene: &Scene) -> Scene {
    let copy = Scene::on("deb535-2gpu")
        .described("a", "vendor.example/dev", &[("x", env("WHO=x")), ("y", env("WHO=y"))])
        .described("b", "other.example/net", &[("x", env("NET=1"))]);
    Scene { spec: scene.spec.clone(), ..copy }
}

#[test]
fn an_unknown_name_is_refused_with_what_there_is_instead() {
    let scene = Scene::on("deb535-2gpu")
        .described("a", "vendor.example/dev", &[("x", env("A=1"))])
        .file("/etc/cdi/bad.yaml", "kind: vendor.example/dev\n- x\n");
    for (name, told) in [
        ("vendor.example/dev=z", "of vendor.example/dev /etc/cdi/a.json has x; /etc/cdi/bad.yaml"),
        ("none.example/dev=z", "the CDI specs of this node have vendor.example/dev"),
    ] {
        let error = scene_asking(&scene, name).unwrap_err();
        assert_eq!(error.code(), Code::UnknownDevice);
        assert!(error.to_string().contains(told), "{error}");
    }
    for name in
        ["vendor.example/dev=", "vendor.example/dev=a b", "a/b/c=d", "vendor.example/dev=x,"]
    {
        let error = scene_asking(&scene, name).unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest, "{error}");
    }
}

fn scene_asking(scene: &Scene, names: &str) -> nvidia_oci::Result<Outcome> {
    let mut spec = scene.spec.clone();
    spec["annotations"] = json!({"cdi.k8s.io/x": names});
    nvidia_oci::plan(
        &scene.tree.host(),
        &scene.config,
        scene.handler,
        &nvidia_oci::Image::default(),
        &nvidia_oci::Spec::new(spec),
    )
}

#[test]
fn a_bare_name_is_looked_for_in_every_kind_that_knows_it() {
    let plugin = "k8s.device-plugin.nvidia.com/gpu";
    let of = |name: &str, handler| {
        Scene::on("deb535-2gpu")
            .described("p", plugin, &[("MIG-1", env("FROM=plugin")), ("0", env("FROM=plugin"))])
            .described("v", "vendor.example/dev", &[("own", env("FROM=vendor"))])
            .set("nvidia-container-runtime.modes.cdi.default-kind", "vendor.example/dev")
            .handler(handler)
            .asking(name)
            .plan()
            .edits
            .env
            .iter()
            .find(|(name, _)| name == "FROM")
            .map(|(_, value)| value.clone())
    };
    let of_plugin = Some("plugin".to_owned());
    assert_eq!(of("MIG-1", Handler::NvidiaCdi), of_plugin);
    assert_eq!(of("MIG-1", Handler::Nvidia), of_plugin);
    assert_eq!(of("own", Handler::NvidiaCdi), Some("vendor".to_owned()));
    // The environment's own contract: what is there.
    assert_eq!(of("0", Handler::Nvidia), None);
    assert_eq!(of("0", Handler::NvidiaCdi), of_plugin);
}

/// What containerd makes of a spec that it injects itself.
fn injected(plan: &nvidia_oci::Plan) -> Value {
    let devices: Vec<_> = plan
        .edits
        .devices
        .iter()
        .map(|it| json!({"path": it.path, "type": "c", "major": it.major, "minor": it.minor}))
        .collect();
    let mounts: Vec<_> = plan
        .edits
        .mounts
        .iter()
        .map(|it| json!({"source": it.source, "destination": it.destination}))
        .collect();
    let env = plan.edits.env.iter().map(|(name, value)| format!("{name}={value}"));
    let env: Vec<_> = env.collect();
    json!({"linux": {"devices": devices}, "mounts": mounts, "process": {"env": env}})
}

#[test]
fn what_containerd_gave_already_is_not_given_again() {
    let edits = json!({
        "deviceNodes": [{"path": "/dev/nvidia0"}, {"path": "/dev/nvidiactl"}],
        "mounts": [{"hostPath": "/usr/bin/nvidia-smi", "containerPath": "/usr/bin/nvidia-smi"}],
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
    });
    let other = json!({"deviceNodes": [{"path": "/dev/nvidia1"}]});
    let mut scene = Scene::on("deb535-2gpu")
        .described("n", "nvidia.com/gpu", &[("0", edits), ("1", other)])
        .annotated("nvidia.com/gpu=0");
    let given = scene.plan();
    assert_eq!(given.edits.devices.len(), 2);
    let annotations = scene.spec["annotations"].clone();
    scene.spec = injected(&given);
    scene.spec["annotations"] = annotations;
    let Outcome::Untouched(report) = scene.outcome().unwrap() else { panic!("given twice") };
    assert!(report.withheld[0].reason.contains("has it already"), "{report}");
    // With the nodes alone, as a privileged container has them, something is still missing.
    let env = std::mem::take(&mut scene.spec["process"]["env"]);
    assert_eq!(scene.plan().edits.devices.len(), 2);
    scene.spec["process"]["env"] = env;
    // Nor by NVIDIA's own hook.
    scene.spec["hooks"] = json!({"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]});
    assert_eq!(scene.edited()["hooks"]["prestart"], json!([]));
    // Of two the one that is missing.
    let scene = scene.annotated("nvidia.com/gpu=0,nvidia.com/gpu=1");
    assert_eq!(scene.nodes(), set(&["/dev/nvidia1"]));
    // A node of that name that is something else is not what was asked for.
    let mut scene = scene.annotated("nvidia.com/gpu=0");
    scene.spec["linux"]["devices"][0]["minor"] = json!(77);
    assert_eq!(scene.nodes(), set(&["/dev/nvidia0", "/dev/nvidiactl"]));
}

#[test]
fn void_means_hands_off() {
    let scene = Scene::on("deb535-2gpu").described("a", "vendor.example/dev", &[("x", env("A=1"))]);
    for value in ["void", "vendor.example/dev=x,void"] {
        let outcome = scene_of_value(&scene, value);
        assert!(matches!(outcome, Outcome::Untouched(_)), "{value}");
    }
}

fn scene_of_value(scene: &Scene, value: &str) -> Outcome {
    let spec = json!({"process": {"env": [format!("NVIDIA_VISIBLE_DEVICES={value}")]}});
    let (host, image) = (scene.tree.host(), nvidia_oci::Image::default());
    nvidia_oci::plan(&host, &scene.config, scene.handler, &image, &nvidia_oci::Spec::new(spec))
        .unwrap()
}

#[test]
fn a_disk_is_none_of_nvidias_devices_but_may_be_anothers() {
    let node = |kind: &str, major: u32| {
        json!({"deviceNodes": [
            {"path": "/dev/x", "type": kind, "major": major, "minor": 1, "permissions": "r"},
        ]})
    };
    for (kind, major) in [("b", 259), ("c", 1), ("c", 9), ("p", 0), ("u", 195)] {
        let scene = |vendor: &str| {
            Scene::on("deb535-2gpu")
                .described("a", &format!("{vendor}/dev"), &[("x", node(kind, major))])
                .asking(&format!("{vendor}/dev=x"))
        };
        let error = scene("nvidia.com").refusal();
        assert_eq!(error.code(), Code::CdiDeviceUnusable, "{error}");
        let plan = scene("vendor.example").plan();
        assert_eq!(plan.edits.devices[0].access, "r");
        assert_eq!(plan.edits.devices[0].kind == DeviceKind::Block, kind == "b");
    }
}

#[test]
fn what_a_node_lacks_is_the_hosts() {
    let nodes = |nodes: Value| {
        Scene::on("deb535-2gpu")
            .described("a", "vendor.example/dev", &[("x", json!({"deviceNodes": nodes}))])
            .asking("vendor.example/dev=x")
    };
    let mut scene = nodes(json!([
        {"path": "/dev/x", "hostPath": "/dev/nvidia0"},
        {"path": "/dev/y", "hostPath": "/dev/nvidiactl", "fileMode": 0o600, "uid": 7, "gid": 0},
        {"path": "/dev/none", "type": "c", "major": 33, "minor": 4, "permissions": "none"},
    ]));
    scene.spec["process"]["user"] = json!({"uid": 1000, "gid": 1001});
    let edited = scene.edited();
    assert_eq!(
        edited["linux"]["devices"],
        json!([
            {"path": "/dev/x", "type": "c", "major": 195, "minor": 0, "fileMode": 0o666, "uid": 1000, "gid": 1001},
            {"path": "/dev/y", "type": "c", "major": 195, "minor": 255, "fileMode": 0o600, "uid": 7},
            {"path": "/dev/none", "type": "c", "major": 33, "minor": 4, "uid": 1000, "gid": 1001},
        ])
    );
    assert_eq!(edited["linux"]["resources"]["devices"][2]["access"], "");
    for (node, told) in [
        (json!({"path": "/dev/none"}), "cannot be looked at"),
        (json!({"path": "/etc/os-release"}), "is none"),
        (json!({"path": "/dev/nvidia0", "type": "b"}), "its spec says Block"),
    ] {
        let error = nodes(json!([node])).refusal();
        assert_eq!(error.code(), Code::CdiDeviceUnusable);
        assert!(error.to_string().contains(told) && error.to_string().contains("/etc/cdi/a.json"));
    }
}

#[test]
fn in_a_user_namespace_a_node_is_bound_and_a_group_left_out() {
    let edits = json!({
        "deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/nvidia0"}],
        "additionalGids": [44],
    });
    let mut scene = Scene::on("deb535-2gpu")
        .described("a", "vendor.example/dev", &[("x", edits)])
        .asking("vendor.example/dev=x");
    assert_eq!(scene.edited()["process"]["user"]["additionalGids"], json!([44]));
    scene.spec["linux"]["uidMappings"] = json!([{"containerID": 0, "hostID": 100_000, "size": 9}]);
    let edited = scene.edited();
    assert_eq!(edited["mounts"][0]["source"], "/dev/nvidia0");
    assert_eq!(edited["mounts"][0]["destination"], "/dev/x");
    assert_eq!(edited["linux"]["devices"], json!([]));
    assert!(edited["process"].get("user").is_none());
}

#[test]
fn everything_else_of_a_spec_is_given_too() {
    let edits = json!({
        "netDevices": [{"hostInterfaceName": "eth1", "name": "net0"}],
        "intelRdt": {"closID": "c", "schemata": ["x"]},
        "additionalGids": [0, 5, 5],
        "mounts": [
            {"hostPath": "tmpfs", "containerPath": "/a/b/c", "type": "tmpfs", "options": ["size=1m"]},
            {"hostPath": "/not/there", "containerPath": "/a", "options": ["bind"]},
        ],
    });
    let scene = Scene::on("deb535-2gpu")
        .described("a", "vendor.example/dev", &[("x", edits)])
        .asking("vendor.example/dev=x");
    let edited = scene.edited();
    assert_eq!(edited["linux"]["netDevices"], json!({"eth1": {"name": "net0"}}));
    assert_eq!(edited["linux"]["intelRdt"], json!({"closID": "c", "schemata": ["x"]}));
    assert_eq!(edited["process"]["user"]["additionalGids"], json!([5]));
    assert_eq!(
        edited["mounts"],
        json!([
            {"destination": "/a", "source": "/not/there", "options": ["bind"]},
            {"destination": "/a/b/c", "type": "tmpfs", "source": "tmpfs", "options": ["size=1m"]},
        ])
    );
    let report = scene.plan().report;
    assert!(report.warnings[0].contains("/not/there is not there"), "{report}");
    for line in ["net       eth1 as net0", "resctrl   c", "group     5"] {
        assert!(report.to_string().contains(line), "{report}");
    }
}

/// Paths that may or may not be there, also as something else than is said.
fn path() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "/dev/nvidia0",
        "/dev/nvidiactl",
        "/dev/../dev/nvidia0",
        "/etc/os-release",
        "/none",
        "x",
        "",
        "/usr/bin/nvidia-smi",
        "//dev//nvidia1",
        "/",
        "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1",
    ])
    .prop_map(str::to_owned)
}

fn any_edits() -> impl Strategy<Value = Value> {
    let node = (path(), path(), "|c|b|p|u|q", -1..300_i64, "|r|rw|none|x", any::<Option<u32>>());
    let node = node.prop_map(|(path, host, kind, major, permissions, gid)| {
        json!({"path": path, "hostPath": host, "type": kind, "major": major, "permissions": permissions, "gid": gid})
    });
    let mount = (path(), path(), "|tmpfs", prop::collection::vec("ro|bind|x", 0..3));
    let mount = mount.prop_map(|(from, to, kind, options)| {
        json!({"hostPath": from, "containerPath": to, "type": kind, "options": options})
    });
    let words = "create-symlinks|update-ldcache|hook|--link|a::/b|--folder|/usr/lib|--x|future";
    let hook = (
        "createContainer|poststop|startContainer|x",
        "/usr/bin/nvidia-(cdi-hook|ctk|smi)|/none",
        prop::collection::vec(words, 0..5),
    );
    let hook = hook.prop_map(|(stage, path, mut words)| {
        words.insert(0, "h".to_owned());
        json!({"hookName": stage, "path": path, "args": words})
    });
    let few = |item| prop::collection::vec(item, 0..3);
    (
        few("[AB]=[ab]{0,2}|A".boxed()),
        few(node.boxed().prop_map(|it| it.to_string()).boxed()),
        few(mount.prop_map(|it| it.to_string()).boxed()),
        few(hook.prop_map(|it| it.to_string()).boxed()),
        prop::collection::vec(any::<u32>(), 0..3),
    )
        .prop_map(|(env, nodes, mounts, hooks, gids)| {
            let read = |list: Vec<String>| -> Vec<Value> {
                list.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
            };
            json!({
                "env": env, "deviceNodes": read(nodes), "mounts": read(mounts),
                "hooks": read(hooks), "additionalGids": gids,
            })
        })
}

/// Whatever a spec says: a refusal, or edits that are the same twice and give no wildcard.
#[test]
fn any_spec_is_given_once_or_refused() {
    let scene = Scene::on("deb535-2gpu");
    let mut runner = TestRunner::default();
    let given = Cell::new(0);
    runner
        .run(
            &(any_edits(), any_edits(), any::<bool>(), any::<bool>()),
            |(common, own, nvidias, mapped)| {
                let kind = if nvidias { "nvidia.com/gpu" } else { "vendor.example/dev" };
                let file = json!({
                    "cdiVersion": "1.1.0", "kind": kind, "containerEdits": common,
                    "devices": [{"name": "x", "containerEdits": own}],
                });
                scene.tree.write("/etc/cdi/any.json", &file.to_string()).unwrap();
                let mut spec = json!({
                    "annotations": {"cdi.k8s.io/x": format!("{kind}=x")},
                    "process": {"env": ["A=0"], "user": {"uid": 7}},
                    "mounts": [{"destination": "/usr/bin"}, {"destination": "/proc"}],
                    "linux": {"devices": [{"path": "/dev/nvidia0", "type": "c"}]},
                });
                if mapped {
                    spec["linux"]["uidMappings"] =
                        json!([{"containerID": 0, "hostID": 9, "size": 9}]);
                }
                let mut edited = nvidia_oci::Spec::new(spec);
                let image = nvidia_oci::Image::default();
                let outcome = nvidia_oci::plan(
                    &scene.tree.host(),
                    &scene.config,
                    scene.handler,
                    &image,
                    &edited,
                );
                if let Ok(Outcome::Edited(plan)) = outcome {
                    plan.edits.apply(&mut edited).unwrap();
                    let once = edited.clone();
                    plan.edits.apply(&mut edited).unwrap();
                    prop_assert_eq!(&edited, &once);
                    for rule in once.value()["linux"]["resources"]["devices"]
                        .as_array()
                        .into_iter()
                        .flatten()
                    {
                        prop_assert!(rule["major"].is_u64() && rule["minor"].is_u64(), "{}", rule);
                    }
                    given.set(given.get() + 1);
                }
                Ok(())
            },
        )
        .unwrap();
    assert!(given.get() > 0);
}
