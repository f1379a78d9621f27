//! The recorded cases of `tests/corpus`: what NVIDIA's own programs made of these inputs.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// A run of one of NVIDIA's programs on one bundle.
#[derive(Debug, Deserialize)]
pub struct Case {
    /// `group/what.mode`
    pub name: String,
    /// Which simulated host.
    pub host: String,
    /// Which of NVIDIA's runtimes.
    pub program: String,
    /// Its words, if they are not just those that create the container.
    #[serde(default)]
    pub argv: Option<Vec<String>>,
    /// Whether it ended well.
    pub rc: i32,
    /// Whether runc was called in the end.
    pub ran: bool,
    /// `config.toml`
    pub config: Option<String>,
    /// Environment of the program itself.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Files of the host beside those of `hosts.json`, such as CDI specs.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Whether the host has the CDI spec that NVIDIA's program generates for it.
    #[serde(default)]
    pub generated: bool,
    /// `config.json`, by its place in the list of inputs.
    input: Option<usize>,
    /// The same where it is no JSON.
    pub raw: Option<String>,
    /// What was added to it, by its place in the list of results.
    expect: Option<usize>,
}

impl Case {
    pub fn group(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }

    /// `jit`, `auto`, `cdi`, `csv` or `legacy`
    pub fn mode(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or_default()
    }
}

/// What was added to a spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Added {
    /// Path, major, minor, permission bits, uid, gid; sorted.
    pub devices: Vec<(String, i64, i64, Option<u32>, u32, u32)>,
    /// Type, major, minor, access; a set, sorted.
    pub rules: Vec<(String, i64, i64, String)>,
    /// Source, destination, whether read-only; sorted.
    pub mounts: Vec<(String, String, bool)>,
    /// The last value of each name, where it differs.
    pub env: BTreeMap<String, String>,
    pub gids: Vec<u32>,
    /// Link and target; sorted.
    pub links: Vec<(String, String)>,
    /// Directories for the loader's cache; sorted.
    pub folders: Vec<String>,
}

/// All cases.
#[derive(Debug, Deserialize)]
pub struct Corpus {
    pub cases: Vec<Case>,
    pub inputs: Vec<Value>,
    expected: Vec<Added>,
    /// What NVIDIA's `cdi generate` made of hosts, by their name.
    #[serde(skip)]
    generated: BTreeMap<String, Value>,
}

impl Corpus {
    pub fn load() -> Self {
        let corpus: Self = serde_json::from_str(include_str!("../corpus/cases.json"))
            .expect("tests/corpus/cases.json");
        let generated = serde_json::from_str(include_str!("../corpus/generated.json"))
            .expect("tests/corpus/generated.json");
        Self { generated, ..corpus }
    }

    /// CDI specs of the host, by path.
    pub fn files(&self, case: &Case) -> BTreeMap<String, String> {
        let mut files = case.files.clone();
        let generated = self.generated.get(&case.host).filter(|_| case.generated);
        files.extend(generated.map(|spec| ("/etc/cdi/nvidia.json".to_owned(), spec.to_string())));
        files
    }

    /// The spec of a case; `None` where the input is no JSON.
    pub fn input(&self, case: &Case) -> Option<&Value> {
        case.input.map(|at| &self.inputs[at])
    }

    /// What a container got.
    pub fn expected(&self, case: &Case) -> Option<&Added> {
        case.expect.map(|at| &self.expected[at])
    }
}

impl Added {
    /// What `after` has that `before` has not. Links and folders are not in a spec.
    pub fn between(before: &Value, after: &Value) -> Self {
        let number = |value: &Value, key: &str| value[key].as_i64().unwrap_or(0);
        let small = |value: &Value, key: &str| {
            value[key].as_u64().map(|number| u32::try_from(number).expect("a small number"))
        };
        let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();

        let devices = added(before, after, "/linux/devices").into_iter().map(|device| {
            (
                text(device, "path"),
                number(device, "major"),
                number(device, "minor"),
                small(device, "fileMode"),
                small(device, "uid").unwrap_or(0),
                small(device, "gid").unwrap_or(0),
            )
        });
        let rules = added(before, after, "/linux/resources/devices").into_iter().map(|rule| {
            let id = |key| rule[key].as_i64().unwrap_or(-1);
            (text(rule, "type"), id("major"), id("minor"), text(rule, "access"))
        });
        let mounts = added(before, after, "/mounts").into_iter().map(|mount| {
            let options = mount["options"].as_array().cloned().unwrap_or_default();
            let read_only = options.iter().any(|option| option == "ro");
            (text(mount, "source"), text(mount, "destination"), read_only)
        });
        let gids = added(before, after, "/process/user/additionalGids");
        let mut env = environment(after);
        let old = environment(before);
        env.retain(|name, value| old.get(name) != Some(value));
        let mut added = Self {
            devices: devices.collect(),
            rules: rules.collect(),
            mounts: mounts.collect(),
            env,
            gids: gids.into_iter().filter_map(|gid| u32::try_from(gid.as_u64()?).ok()).collect(),
            ..Self::default()
        };
        added.devices.sort();
        added.rules.sort();
        added.rules.dedup();
        added.mounts.sort();
        added.gids.sort_unstable();
        added
    }
}

fn list<'a>(spec: &'a Value, pointer: &str) -> &'a [Value] {
    spec.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn added<'a>(before: &Value, after: &'a Value, pointer: &str) -> Vec<&'a Value> {
    let mut old: Vec<&Value> = list(before, pointer).iter().collect();
    list(after, pointer)
        .iter()
        .filter(|value| match old.iter().position(|known| known == value) {
            Some(at) => {
                old.remove(at);
                false
            }
            None => true,
        })
        .collect()
}

fn environment(spec: &Value) -> BTreeMap<String, String> {
    list(spec, "/process/env")
        .iter()
        .filter_map(Value::as_str)
        .filter_map(|entry| entry.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
