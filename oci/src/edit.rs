//! Edits of an OCI spec, and how they are applied: twice is once.
//!
//! The rules are those of the CDI library, so that a container looks the same by whichever way it
//! got its GPU, except that what is there already is replaced and never doubled.

mod entry;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::cdi::{Hook, IntelRdt, NetDevice};
use crate::{Host, Result, Spec};

/// Hooks by which NVIDIA's legacy runtime injects a second time, by base name.
const LEGACY_HOOKS: [&str; 2] = ["nvidia-container-runtime-hook", "nvidia-container-toolkit"];

/// Everything that is written into a spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Edits {
    /// `(name, value)`: one entry of each name after the edit.
    pub env: Vec<(String, String)>,
    pub devices: Vec<DeviceNode>,
    /// Interfaces that move into the container.
    pub net_devices: Vec<NetDevice>,
    pub mounts: Vec<Mount>,
    pub hooks: Vec<Hook>,
    /// Groups that a process needs in order to open a device node.
    pub additional_gids: Vec<u32>,
    /// In place of what the spec has.
    pub intel_rdt: Option<IntelRdt>,
}

/// A device node, and the one device-cgroup rule that goes with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceNode {
    /// In the container.
    pub path: PathBuf,
    /// On the host, as the host names it.
    pub host_path: PathBuf,
    pub kind: DeviceKind,
    pub major: u32,
    pub minor: u32,
    /// Permission bits, such as `0o666`; `None`: those that runc gives.
    pub mode: Option<u32>,
    pub uid: u32,
    pub gid: u32,
    /// What the device cgroup allows, of `rwm`.
    pub access: String,
    /// Whether it is a bind mount of the host's node. In a user namespace runc can make no node
    /// and binds the host's `path` instead, which need not be the device that is meant.
    pub bind: bool,
}

/// What kind of node it is, as the OCI spec tells them apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    #[default]
    Character,
    Unbuffered,
    Block,
    Fifo,
}

/// A mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// On the host, as the host names it; of a file system without source anything.
    pub source: PathBuf,
    /// In the container.
    pub destination: PathBuf,
    /// `bind`, or that of the file system; empty: not said.
    pub kind: String,
    pub options: Vec<String>,
}

impl Edits {
    /// The same with sources as this machine names them, below the prefix of `host`: a simulated
    /// node is a directory.
    #[must_use]
    pub fn on(mut self, host: &Host) -> Self {
        if host.prefix() == Path::new("/") {
            return self;
        }
        let here = |path: &Path| match host.resolve(path) {
            Ok(resolved) => host.join(&resolved),
            Err(_) => host.join(path),
        };
        for device in &mut self.devices {
            device.host_path = here(&device.host_path);
        }
        for mount in self.mounts.iter_mut().filter(|mount| mount.source.is_absolute()) {
            mount.source = here(&mount.source);
        }
        // One of the stage startContainer is a program of the container.
        for hook in self.hooks.iter_mut().filter(|hook| hook.hook_name != "startContainer") {
            hook.path = here(Path::new(&hook.path)).display().to_string();
        }
        self
    }

    /// Writes the edits into `spec`.
    ///
    /// # Errors
    /// [`Code::SpecUnreadable`] if `spec` has something else where a list belongs; it is then
    /// edited in part, and not to be written.
    pub fn apply(&self, spec: &mut Spec) -> Result<()> {
        remove_legacy_hooks(spec);
        self.apply_env(spec)?;
        self.apply_devices(spec)?;
        self.apply_net_devices(spec)?;
        self.apply_mounts(spec)?;
        self.apply_hooks(spec)?;
        if let Some(rdt) = &self.intel_rdt {
            spec.object_mut(&["linux"])?.insert("intelRdt".to_owned(), entry::json(rdt)?);
        }
        self.apply_gids(spec)
    }

    fn apply_env(&self, spec: &mut Spec) -> Result<()> {
        if self.env.is_empty() {
            return Ok(());
        }
        let list = spec.list_mut(&["process", "env"])?;
        for (name, value) in &self.env {
            let entry = Value::from(format!("{name}={value}"));
            let named = |entry: &Value| entry.as_str().is_some_and(|text| is_entry(text, name));
            match list.iter().position(named) {
                Some(first) => {
                    let mut at = 0..;
                    list.retain(|entry| at.next() == Some(first) || !named(entry));
                    if let Some(kept) = list.get_mut(first) {
                        *kept = entry;
                    }
                }
                None => list.push(entry),
            }
        }
        Ok(())
    }

    fn apply_devices(&self, spec: &mut Spec) -> Result<()> {
        if self.devices.is_empty() {
            return Ok(());
        }
        let devices = last_of_each(&self.devices, |device| &device.path);
        let entry = |device: &&DeviceNode| {
            let entry = if device.bind { None } else { Some(device.entry()?) };
            Ok((cleaned(&device.path), entry))
        };
        let ours = devices.iter().map(entry).collect::<Result<Vec<_>>>()?;
        put(spec.list_mut(&["linux", "devices"])?, "path", ours);
        let rules: Vec<Value> = self
            .devices
            .iter()
            .filter_map(|device| device.rule().transpose())
            .collect::<Result<_>>()?;
        let mut ours = HashSet::new();
        let mut last: Vec<&Value> = rules.iter().rev().filter(|rule| ours.insert(*rule)).collect();
        last.reverse();
        // A later rule of the list overrides an earlier one: what allows counts after what denies.
        let list = spec.list_mut(&["linux", "resources", "devices"])?;
        let allows = |rule: &Value| rule.get("allow") == Some(&Value::Bool(true));
        let denied = list.iter().rposition(|rule| !allows(rule)).map_or(0, |last| last + 1);
        let mut counting: HashSet<Value> =
            list.iter().skip(denied).filter(|rule| ours.contains(rule)).cloned().collect();
        let new: Vec<Value> =
            last.into_iter().filter(|rule| !counting.contains(*rule)).cloned().collect();
        let mut at = 0..;
        list.retain(|present| {
            let counts = at.next().is_some_and(|at| at >= denied);
            !ours.contains(present) || counts && counting.remove(present)
        });
        list.extend(new);
        Ok(())
    }

    fn apply_net_devices(&self, spec: &mut Spec) -> Result<()> {
        if self.net_devices.is_empty() {
            return Ok(());
        }
        let devices = spec.object_mut(&["linux", "netDevices"])?;
        for device in &self.net_devices {
            let entry = Map::from_iter([("name".to_owned(), Value::from(device.name.as_str()))]);
            devices.insert(device.host_interface_name.clone(), Value::Object(entry));
        }
        Ok(())
    }

    fn apply_mounts(&self, spec: &mut Spec) -> Result<()> {
        let devices = last_of_each(&self.devices, |device| &device.path);
        let bound = devices.into_iter().filter(|device| device.bind).map(DeviceNode::mount);
        let ours: Vec<Mount> = bound.chain(self.mounts.iter().cloned()).collect();
        if ours.is_empty() {
            return Ok(());
        }
        let ours = last_of_each(&ours, |mount| &mount.destination);
        let entry = |mount: &&Mount| Ok((cleaned(&mount.destination), Some(mount.entry()?)));
        let ours = ours.iter().map(entry).collect::<Result<Vec<_>>>()?;
        let list = spec.list_mut(&["mounts"])?;
        put(list, "destination", ours);
        // What is mounted above another mount would hide it.
        list.sort_by_cached_key(|entry| {
            entry
                .get("destination")
                .and_then(Value::as_str)
                .map_or(0, |path| depth(Path::new(path)))
        });
        Ok(())
    }

    fn apply_hooks(&self, spec: &mut Spec) -> Result<()> {
        for hook in &self.hooks {
            let list = spec.list_mut(&["hooks", &hook.hook_name])?;
            let entry = entry::hook(hook)?;
            // One that somebody gave before us may lack the environment that ours never lacks.
            let mut bare = entry.clone();
            bare.as_object_mut().and_then(|bare| bare.remove("env"));
            match list.iter_mut().find(|present| **present == entry || **present == bare) {
                Some(present) => *present = entry,
                None => list.push(entry),
            }
        }
        Ok(())
    }

    fn apply_gids(&self, spec: &mut Spec) -> Result<()> {
        if self.additional_gids.is_empty() {
            return Ok(());
        }
        let list = spec.list_mut(&["process", "user", "additionalGids"])?;
        for gid in &self.additional_gids {
            if !list.iter().any(|present| *present == *gid) {
                list.push(Value::from(*gid));
            }
        }
        Ok(())
    }
}

/// Of those at one place the last, where it stands.
fn last_of_each<T>(items: &[T], place: impl Fn(&T) -> &PathBuf) -> Vec<&T> {
    let mut seen = HashSet::new();
    let mut last: Vec<&T> =
        items.iter().rev().filter(|item| seen.insert(clean(place(item)))).collect();
    last.reverse();
    last
}

/// Whoever gets devices here must not get them once more, unfiltered, by NVIDIA's own hook.
fn remove_legacy_hooks(spec: &mut Spec) {
    if let Some(hooks) = spec.existing_list_mut("/hooks/prestart") {
        hooks.retain(|hook| !is_legacy_hook(hook.get("path").and_then(Value::as_str)));
    }
}

/// Whether NVIDIA's legacy runtime would inject into the container.
pub(crate) fn has_legacy_hook(spec: &Spec) -> bool {
    spec.hook_paths("prestart").any(|path| is_legacy_hook(Some(path)))
}

fn is_legacy_hook(path: Option<&str>) -> bool {
    let name = path.map(Path::new).and_then(Path::file_name);
    name.is_some_and(|name| LEGACY_HOOKS.iter().any(|it| name == *it))
}

/// Whether an environment entry is one of variable `name`.
fn is_entry(entry: &str, name: &str) -> bool {
    entry.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// Leaves at each of the cleaned paths our entry alone, or none; `key` has the path of an entry,
/// however it is spelled. What is there already stays where it is.
fn put(list: &mut Vec<Value>, key: &str, ours: Vec<(PathBuf, Option<Value>)>) {
    let mut left: HashMap<&Path, Option<&Value>> =
        ours.iter().map(|(path, entry)| (path.as_path(), entry.as_ref())).collect();
    list.retain(|present| {
        let spelled = present.get(key).and_then(Value::as_str).map(|path| cleaned(Path::new(path)));
        match spelled.and_then(|path| left.get_mut(path.as_path())) {
            Some(entry) => entry.take_if(|entry| *entry == present).is_some(),
            None => true,
        }
    });
    let is_left: Vec<bool> = ours
        .iter()
        .map(|(path, _)| left.get(path.as_path()).is_some_and(Option::is_some))
        .collect();
    let new = ours.into_iter().zip(is_left).filter(|(_, is_left)| *is_left);
    list.extend(new.filter_map(|((_, entry), _)| entry));
}

/// The number of names of a cleaned path; `/` counts as one.
fn depth(path: &Path) -> usize {
    clean(path).len().max(1)
}

fn cleaned(path: &Path) -> PathBuf {
    clean(path).into_iter().collect()
}

fn clean(path: &Path) -> Vec<&OsStr> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::ParentDir => drop(names.pop()),
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests;
