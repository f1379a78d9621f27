//! Device nodes: those of the GPUs asked for and the control nodes of the driver.

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use super::{Link, MissingNode};
use crate::capability::Granted;
use crate::driver::of_control_node;
use crate::report::{Item, ItemKind, Report};
use crate::{
    Capabilities, Code, ControlNode, DeviceKind, DeviceNode, Edits, Error, Gpu, Host, Inventory,
    NodeNumbers, Result, Spec,
};

/// Majors below are those of memory, terminals, block devices and the like
/// (the kernel's `devices.txt`): never a GPU's.
pub(super) const LOWEST_MAJOR: u32 = 10;

/// Control nodes without which nothing starts, or nothing that computes, and the modules that they
/// come from.
const MANDATORY: [(&str, &str, Option<Capabilities>); 2] =
    [("nvidiactl", "nvidia", None), ("nvidia-uvm", "nvidia-uvm", Some(Capabilities::COMPUTE))];

/// Collects device nodes.
pub(super) struct Nodes<'a> {
    pub(super) host: &'a Host,
    pub(super) spec: &'a Spec,
    pub(super) granted: &'a Granted,
    pub(super) may_make_nodes: bool,
    pub(super) may_join_groups: bool,
    pub(super) edits: &'a mut Edits,
    pub(super) missing: &'a mut Vec<MissingNode>,
    pub(super) links: &'a mut Vec<Link>,
    pub(super) report: &'a mut Report,
}

impl Nodes<'_> {
    /// Gives a GPU: its node, and for graphics its DRM nodes and udev's links to them.
    pub(super) fn give_gpu(&mut self, gpu: &Gpu) -> Result<()> {
        let uuid = gpu.uuid.as_deref().unwrap_or(&gpu.bus_id);
        self.give_mandatory(&gpu.node, &format!("GPU {}, {}, {uuid}", gpu.index, gpu.model))?;
        if !self.granted.capabilities.meets(Capabilities::GRAPHICS) {
            gpu.drm.iter().for_each(|node| self.withhold_for(node, Capabilities::GRAPHICS));
            return Ok(());
        }
        for node in &gpu.drm {
            self.give(node, &format!("DRM node of GPU {}", gpu.index))?;
        }
        for (link, target) in &gpu.drm_links {
            let shown = format!("{} -> {}", link.display(), target.display());
            let reason = format!("DRM node of GPU {}, by bus id", gpu.index);
            self.report.given.push(Item::new(ItemKind::Link, shown, reason));
            self.links.push(Link { link: link.clone(), target: target.clone() });
        }
        Ok(())
    }

    /// Gives the control nodes.
    ///
    /// # Errors
    /// One that a granted capability cannot do without is not there and cannot be made.
    pub(super) fn give_control(&mut self, inventory: &Inventory) -> Result<()> {
        let mandatory = || {
            let granted = self.granted.mandatory;
            MANDATORY.iter().filter(move |(.., for_)| for_.is_none_or(|it| granted.meets(it)))
        };
        let names: Vec<&str> = mandatory().map(|(name, ..)| *name).collect();
        for (name, module, _) in mandatory() {
            // A node left over from another boot may be of any device by now.
            let control = inventory.control.iter().find(|control| control.name == *name);
            let Some(control) = control.filter(|control| control.loaded) else {
                let what =
                    format!("/dev/{name} is of no use: kernel module {module} is not loaded");
                return Err(Error::new(Code::ModuleNotLoaded, what));
            };
            self.give_mandatory(&control.node, "control node, mandatory")?;
        }
        let optional = |control: &&ControlNode| !names.contains(&control.name.as_str());
        for control in inventory.control.iter().filter(optional) {
            let needed = of_control_node(&control.name);
            if !needed.meets(self.granted.capabilities) {
                self.withhold_for(&control.node, needed);
            } else if !control.loaded {
                self.withhold(&control.node, "optional, its kernel module is not loaded");
            } else if !control.node.exists && !self.may_make_nodes {
                self.withhold(
                    &control.node,
                    "optional, not there, and the driver lets none be made",
                );
            } else {
                self.give(&control.node, "control node")?;
            }
        }
        Ok(())
    }

    fn give_mandatory(&mut self, node: &NodeNumbers, reason: &str) -> Result<()> {
        if !node.exists && !self.may_make_nodes {
            let what = format!(
                "{} is not there, and the driver lets none be made (ModifyDeviceFiles: 0)",
                node.host_path.display()
            );
            return Err(Error::new(Code::NodeMissing, what));
        }
        self.give(node, reason)
    }

    fn withhold_for(&mut self, node: &NodeNumbers, needed: Capabilities) {
        self.withhold(node, &format!("for {needed}; granted are {}", self.granted.capabilities));
    }

    fn withhold(&mut self, node: &NodeNumbers, reason: &str) {
        let name = node.host_path.display().to_string();
        self.report.withheld.push(Item::new(ItemKind::Device, name, reason));
    }

    /// Gives a node that may be given already, or was withheld for want of a capability.
    ///
    /// # Errors
    /// As [`Self::give`].
    pub(super) fn give_also(&mut self, node: &NodeNumbers, reason: &str) -> Result<()> {
        if self.edits.devices.iter().any(|given| given.path == node.path) {
            return Ok(());
        }
        let name = node.host_path.display().to_string();
        self.report.withheld.retain(|item| item.name != name);
        self.give(node, reason)
    }

    /// Gives a node.
    ///
    /// # Errors
    /// It is none of a driver.
    pub(super) fn give(&mut self, node: &NodeNumbers, reason: &str) -> Result<()> {
        if node.major < LOWEST_MAJOR {
            let what = format!(
                "{} of the host has device number {}:{}, which is not NVIDIA's",
                node.host_path.display(),
                node.major,
                node.minor
            );
            return Err(Error::new(Code::UntrustedPath, what));
        }
        let user = self.spec.user();
        let in_user_namespace = self.spec.in_user_namespace();
        self.edits.devices.push(DeviceNode {
            path: node.path.clone(),
            host_path: node.host_path.clone(),
            kind: DeviceKind::Character,
            major: node.major,
            minor: node.minor,
            mode: Some(node.mode & 0o777),
            uid: user.uid,
            gid: if node.gid == 0 { user.gid } else { node.gid },
            access: "rwm".to_owned(),
            bind: in_user_namespace || !self.is_at_its_own_path(node),
        });
        if !node.exists {
            self.missing.push(MissingNode {
                path: node.host_path.clone(),
                major: node.major,
                minor: node.minor,
                mode: node.mode,
                uid: node.uid,
                gid: node.gid,
            });
        }
        let name = node.path.display().to_string();
        self.report.given.push(Item::new(ItemKind::Device, name, reason));
        self.give_group(node, in_user_namespace);
        Ok(())
    }

    /// A node that not all may open is for a group; a process of another user must be in it.
    fn give_group(&mut self, node: &NodeNumbers, in_user_namespace: bool) {
        let for_all = node.mode & 0o006 == 0o006;
        if node.gid == 0 || for_all || self.edits.additional_gids.contains(&node.gid) {
            return;
        }
        let name = node.gid.to_string();
        if in_user_namespace {
            let reason =
                format!("group of {}, not mapped into the user namespace", node.path.display());
            self.report.withheld.push(Item::new(ItemKind::Group, name, reason));
            return;
        }
        if !self.may_join_groups {
            let reason = "no-additional-gids-for-device-nodes is set";
            self.report.withheld.push(Item::new(ItemKind::Group, name, reason));
            return;
        }
        self.edits.additional_gids.push(node.gid);
        let reason = format!("may open {}", node.path.display());
        self.report.given.push(Item::new(ItemKind::Group, name, reason));
    }

    /// Whether the host has the device at the path that it will have in the container.
    fn is_at_its_own_path(&self, node: &NodeNumbers) -> bool {
        node.path == node.host_path
            || self.host.symlink_metadata(&node.path).is_ok_and(|metadata| {
                metadata.file_type().is_char_device()
                    && metadata.rdev() == device_number(node.major, node.minor)
            })
    }
}

/// `st_rdev` as glibc's `makedev` composes it.
fn device_number(major: u32, minor: u32) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    (major & 0xfff) << 8 | (major & !0xfff) << 32 | (minor & 0xff) | (minor & !0xff) << 12
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_number_is_composed_as_the_c_library_does() {
        let null = std::fs::metadata("/dev/null").unwrap();
        assert_eq!(null.rdev(), device_number(1, 3));
    }
}
