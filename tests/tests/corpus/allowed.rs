//! The GPUs that a container gets are those asked for and allowed, whatever the settings.

use std::collections::BTreeSet;

use nvidia_oci::{Config, Handler, Image, Outcome, Spec, plan};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tests::tree::{Tree, hosts};

/// By index; on this host minors are the same.
const NODES: [&str; 2] = ["/dev/nvidia0", "/dev/nvidia1"];

/// One container and what the node's settings say.
#[derive(Clone, Debug)]
struct Case {
    env: Vec<String>,
    mounts: Vec<String>,
    privileged: bool,
    strict: bool,
    accept_mounts: bool,
    accept_env: bool,
}

fn cases() -> impl Strategy<Value = Case> {
    let item = || prop::sample::select(vec!["0", "1", "all", "void", "none"]);
    let list = || prop::collection::vec(item(), 0..3);
    let env = prop::collection::vec(list(), 0..3);
    (env, list(), any::<[bool; 4]>()).prop_map(|(env, mounts, switches)| {
        let [privileged, strict, accept_mounts, accept_env] = switches;
        let entry = |list: Vec<&str>| format!("NVIDIA_VISIBLE_DEVICES={}", list.join(","));
        let env = env.into_iter().map(entry).collect();
        let mounts = mounts.into_iter().map(str::to_owned).collect();
        Case { env, mounts, privileged, strict, accept_mounts, accept_env }
    })
}

impl Case {
    fn spec(&self) -> Spec {
        let mount = |name| {
            let place = format!("/var/run/nvidia-container-devices/{name}");
            json!({"source": "/dev/null", "destination": place})
        };
        let bounding = if self.privileged { vec!["CAP_SYS_ADMIN"] } else { Vec::new() };
        Spec::new(json!({
            "process": {"env": self.env, "capabilities": {"bounding": bounding}},
            "mounts": self.mounts.iter().map(mount).collect::<Vec<_>>(),
        }))
    }

    fn config(&self) -> Config {
        let mut config = Config::default();
        let word = |yes: bool| if yes { "true" } else { "false" };
        for (key, value) in [
            ("policy", if self.strict { "strict" } else { "open" }),
            ("accept-nvidia-visible-devices-as-volume-mounts", word(self.accept_mounts)),
            ("accept-nvidia-visible-devices-envvar-when-unprivileged", word(self.accept_env)),
        ] {
            config.set(key, value).unwrap();
        }
        config
    }

    /// The rules of NVIDIA's documents and of ours, said another way.
    fn expected(&self) -> BTreeSet<&'static str> {
        let by_mounts = (self.strict || self.accept_mounts) && !self.mounts.is_empty();
        let by_env = self.privileged || (!self.strict && self.accept_env);
        let last = self.env.last().and_then(|entry| entry.split_once('='));
        let items: Vec<&str> = match last {
            _ if by_mounts => self.mounts.iter().map(String::as_str).collect(),
            Some((_, list)) if by_env => list.split(',').collect(),
            _ => Vec::new(),
        };
        let first = items.iter().find(|item| ["all", "none"].contains(*item));
        match first {
            _ if items.contains(&"void") => BTreeSet::new(),
            Some(&"all") => NODES.into(),
            Some(_) => BTreeSet::new(),
            None => {
                items.iter().filter_map(|item| Some(NODES[item.parse::<usize>().ok()?])).collect()
            }
        }
    }
}

#[test]
fn given_gpus_are_those_asked_for_and_allowed() {
    let tree = Tree::build(&hosts()["deb535-2gpu"]).unwrap();
    let given = |case: &Case| {
        let spec = case.spec();
        let outcome =
            plan(&tree.host(), &case.config(), Handler::Nvidia, &Image::default(), &spec).unwrap();
        let mut edited = spec;
        if let Outcome::Edited(plan) = outcome {
            plan.edits.apply(&mut edited).unwrap();
            let once = edited.clone();
            plan.edits.apply(&mut edited).unwrap();
            assert_eq!(edited, once);
        }
        edited.value().clone()
    };
    let mut runner = TestRunner::default();
    runner
        .run(&cases(), |case| {
            let spec = given(&case);
            let gpus: BTreeSet<_> =
                paths(&spec).into_iter().filter(|path| NODES.contains(path)).collect();
            prop_assert_eq!(gpus, case.expected());
            for device in list(&spec, "/linux/devices") {
                let is_its =
                    |rule: &&Value| ["major", "minor"].iter().all(|key| rule[key] == device[key]);
                prop_assert_eq!(list(&spec, "/linux/resources/devices").filter(is_its).count(), 1);
            }
            for rule in list(&spec, "/linux/resources/devices") {
                prop_assert!(rule["major"].is_u64() && rule["minor"].is_u64(), "{}", rule);
            }
            Ok(())
        })
        .unwrap();
}

fn list<'a>(spec: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    spec.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn paths(spec: &Value) -> BTreeSet<&str> {
    list(spec, "/linux/devices").filter_map(|device| device["path"].as_str()).collect()
}
