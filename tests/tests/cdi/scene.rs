//! A simulated host with CDI specs, and a container that asks.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use nvidia_oci::{Config, Error, Handler, Image, Outcome, Plan, Spec, plan};
use serde_json::{Value, json};
use tests::tree::{Tree, hosts};

pub(crate) struct Scene {
    pub(crate) tree: Tree,
    pub(crate) config: Config,
    pub(crate) handler: Handler,
    /// The container's spec.
    pub(crate) spec: Value,
}

impl Scene {
    /// Of one of the hosts of `tests/corpus`.
    pub(crate) fn on(host: &str) -> Self {
        let tree = Tree::build(&hosts()[host]).unwrap();
        let spec = json!({"process": {"env": []}, "linux": {}});
        Self { tree, config: Config::default(), handler: Handler::NvidiaCdi, spec }
    }

    pub(crate) fn asking(mut self, names: &str) -> Self {
        self.spec["process"]["env"] = json!([format!("NVIDIA_VISIBLE_DEVICES={names}")]);
        self
    }

    pub(crate) fn annotated(mut self, names: &str) -> Self {
        self.spec["annotations"] = json!({"cdi.k8s.io/x": names});
        self
    }

    pub(crate) fn set(mut self, key: &str, value: &str) -> Self {
        self.config.set(key, value).unwrap();
        self
    }

    pub(crate) fn handler(mut self, handler: Handler) -> Self {
        self.handler = handler;
        self
    }

    pub(crate) fn privileged(mut self) -> Self {
        self.spec["process"]["capabilities"] = json!({"bounding": ["CAP_SYS_ADMIN"]});
        self
    }

    /// With a spec file `/etc/cdi/NAME.json` of these devices and their edits.
    pub(crate) fn described(self, name: &str, kind: &str, devices: &[(&str, Value)]) -> Self {
        let devices =
            devices.iter().map(|(name, edits)| json!({"name": name, "containerEdits": edits}));
        let devices: Vec<_> = devices.collect();
        let spec = json!({"cdiVersion": "1.1.0", "kind": kind, "devices": devices});
        self.file(&format!("/etc/cdi/{name}.json"), &spec.to_string())
    }

    pub(crate) fn file(self, path: &str, text: &str) -> Self {
        self.tree.write(path, text).unwrap();
        self
    }

    pub(crate) fn remove(self, path: &str) -> Self {
        fs::remove_file(self.tree.host().join(Path::new(path))).unwrap();
        self
    }

    pub(crate) fn outcome(&self) -> Result<Outcome, Error> {
        let spec = Spec::new(self.spec.clone());
        plan(&self.tree.host(), &self.config, self.handler, &Image::default(), &spec)
    }

    pub(crate) fn plan(&self) -> Plan {
        match self.outcome().unwrap_or_else(|error| panic!("{error}")) {
            Outcome::Edited(plan) => *plan,
            Outcome::Untouched(report) => panic!("untouched: {report}"),
        }
    }

    pub(crate) fn refusal(&self) -> Error {
        self.outcome().expect_err("a refusal")
    }

    /// The spec as it is in the end.
    pub(crate) fn edited(&self) -> Value {
        let mut spec = Spec::new(self.spec.clone());
        self.plan().edits.apply(&mut spec).unwrap();
        spec.value().clone()
    }

    /// Paths of the devices that are given.
    pub(crate) fn nodes(&self) -> BTreeSet<String> {
        let devices = self.plan().edits.devices;
        devices.iter().map(|device| device.path.display().to_string()).collect()
    }
}

pub(crate) fn env(entry: &str) -> Value {
    json!({ "env": [entry] })
}

pub(crate) fn set(paths: &[&str]) -> BTreeSet<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}
