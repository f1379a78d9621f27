//! Whether a spec says what the CDI specification lets it say.

use std::collections::HashSet;

use super::{ContainerEdits, DeviceNode, Hook, IntelRdt, NetDevice, Problem, Spec, Version};
use super::{check_device_name, check_kind};

/// The stages that the OCI runtime specification has.
const STAGES: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];
/// The kernel's limit on the name of a directory entry's path (`PATH_MAX`).
const LONGEST_CLOS: usize = 4096;

impl Spec {
    /// Checks names, version and edits.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), Problem> {
        self.problems().into_iter().next().map_or(Ok(()), Err)
    }

    /// All that is wrong with names, version and edits.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        problems.extend(self.check_version().err());
        problems.extend(check_kind(&self.kind).err().map(Problem::from));
        let faults = check_edits(&self.edits);
        problems.extend(faults.into_iter().map(|fault| in_place("containerEdits", fault)));
        let mut names = HashSet::new();
        for device in &self.devices {
            problems.extend(check_device_name(&device.name).err().map(Problem::from));
            if !names.insert(&device.name) {
                problems.push(Problem::Twice(device.name.clone()));
            }
            let place = || format!("device {}", device.name);
            if device.edits.is_empty() {
                let fault = "its containerEdits change nothing".to_owned();
                problems.push(in_place(&place(), fault));
            }
            let faults = check_edits(&device.edits);
            problems.extend(faults.into_iter().map(|fault| in_place(&place(), fault)));
        }
        if names.is_empty() {
            problems.push(Problem::NoDevices);
        }
        problems
    }

    fn check_version(&self) -> Result<(), Problem> {
        let declared = self.version.clone();
        let Some(version) = Version::parse(&declared) else {
            let newer = is_newer(declared.strip_prefix('v').unwrap_or(&declared));
            let problem = if newer { Problem::TooNew } else { Problem::UnknownVersion };
            return Err(problem(declared));
        };
        let (needed, feature) = self.needed();
        if needed > version {
            return Err(Problem::VersionTooLow { declared, feature, needed });
        }
        match self.dropped() {
            Some((since, feature)) if version >= since => {
                Err(Problem::Dropped { declared: version, feature })
            }
            _ => Ok(()),
        }
    }
}

fn in_place(place: &str, fault: String) -> Problem {
    Problem::Edits { place: place.to_owned(), fault }
}

/// Whether it is a version like ours, of a later number.
fn is_newer(text: &str) -> bool {
    let numbers = |text: &str| {
        let parts: Option<Vec<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
        parts.filter(|parts| parts.len() == 3)
    };
    numbers(text).is_some_and(|version| Some(version) > numbers(Version::LATEST.as_str()))
}

fn check_edits(edits: &ContainerEdits) -> Vec<String> {
    let mut faults = Vec::new();
    faults.extend(check_env(&edits.env).err());
    faults.extend(edits.device_nodes.iter().filter_map(|node| check_node(node).err()));
    faults.extend(edits.hooks.iter().filter_map(|hook| check_hook(hook).err()));
    for mount in &edits.mounts {
        if mount.host_path.is_empty() || mount.container_path.is_empty() {
            let (from, to) = (&mount.host_path, &mount.container_path);
            faults.push(format!("a mount of {from:?} at {to:?} lacks a path"));
        }
    }
    faults.extend(edits.intel_rdt.as_ref().and_then(|rdt| check_rdt(rdt).err()));
    faults.extend(check_net_devices(&edits.net_devices).err());
    faults
}

fn check_env(env: &[String]) -> Result<(), String> {
    let is_assignment = |entry: &str| entry.find('=').is_some_and(|at| at > 0);
    match env.iter().find(|entry| !is_assignment(entry)) {
        Some(entry) => Err(format!("{entry:?} in env is not NAME=value")),
        None => Ok(()),
    }
}

fn check_node(node: &DeviceNode) -> Result<(), String> {
    let path = &node.path;
    if path.is_empty() {
        return Err("a device node has no path".to_owned());
    }
    if !matches!(node.kind.as_str(), "" | "b" | "c" | "u" | "p") {
        return Err(format!("device node {path} is of type {:?}, which is none", node.kind));
    }
    let permissions = node.permissions.as_str();
    if permissions != "none" && permissions.contains(|c| !"rwm".contains(c)) {
        return Err(format!("device node {path} has permissions {permissions:?}, not of r, w, m"));
    }
    let is_number = |number: i64| u32::try_from(number).is_ok();
    if !is_number(node.major) || !is_number(node.minor) {
        return Err(format!("device node {path} has a number that no device has"));
    }
    Ok(())
}

fn check_hook(hook: &Hook) -> Result<(), String> {
    let name = &hook.hook_name;
    if !STAGES.contains(&name.as_str()) {
        return Err(format!("a hook is of stage {name:?}, which is none"));
    }
    if hook.path.is_empty() {
        return Err(format!("a hook of stage {name} has no path"));
    }
    check_env(&hook.env).map_err(|fault| format!("hook {}: {fault}", hook.path))
}

fn check_rdt(rdt: &IntelRdt) -> Result<(), String> {
    let name = rdt.clos_id.as_str();
    let is_file_name =
        name.len() < LONGEST_CLOS && !matches!(name, "." | "..") && !name.contains(['/', '\n']);
    if is_file_name || name == "/" {
        return Ok(());
    }
    Err("closID of intelRdt is no name of a directory".to_owned())
}

fn check_net_devices(devices: &[NetDevice]) -> Result<(), String> {
    let (mut hosts, mut names) = (HashSet::new(), HashSet::new());
    for device in devices {
        let (host, name) = (&device.host_interface_name, &device.name);
        if host.is_empty() || name.is_empty() {
            return Err(format!("a net device {host:?}, {name:?} in the container, lacks a name"));
        }
        if !hosts.insert(host) || !names.insert(name) {
            return Err(format!("net device {host}, {name} in the container, is there twice"));
        }
    }
    Ok(())
}
