//! Devices that CDI specs describe: their edits, in the order of the CDI specification, filled from
//! the host. What NVIDIA's hooks in them do is done without them.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::loader;
use crate::cdi::foreign::{self, Purpose};
use crate::cdi::{self, ContainerEdits, Found, Hook};
use crate::report::{Item, ItemKind};
use crate::{
    Code, Config, DeviceKind, DeviceNode, Error, Host, Mount, Plan, Result, Spec, gpu, policy,
};

/// What a hook has that has none: else runc gives it that of the image (CVE-2025-23266).
const HOOK_ENV: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Runs in the container, as a program of it.
const IN_CONTAINER: &str = "startContainer";

/// Gives described devices.
pub(super) struct Described<'a> {
    pub(super) host: &'a Host,
    pub(super) config: &'a Config,
    pub(super) spec: &'a Spec,
    pub(super) plan: &'a mut Plan,
}

/// Where edits come from.
struct Origin {
    /// `vendor/class=device, /etc/cdi/vendor.json`
    shown: String,
    nvidias: bool,
}

impl Described<'_> {
    /// Gives devices, in the order of the list; what is common to those of a file comes with the
    /// first of it.
    ///
    /// # Errors
    /// [`Code::CdiDeviceUnusable`]: something that a spec names is not there, or is something else;
    /// [`Code::HookMissing`].
    pub(super) fn give(&mut self, devices: &[Found<'_>]) -> Result<()> {
        let mut met: Vec<&Path> = Vec::new();
        let mut folders = Vec::new();
        for found in devices {
            let file = &found.file.path;
            let name = found.name();
            if self.is_there(found) {
                let shown = format!("{name}, {}", file.display());
                let reason = "the container has it already";
                self.plan.report.withheld.push(Item::new(ItemKind::Device, shown, reason));
                continue;
            }
            let origin = |what: String| Origin {
                shown: format!("{what}, {}", file.display()),
                nvidias: policy::is_nvidia(name.vendor()),
            };
            if !met.contains(&file.as_path()) {
                met.push(file);
                let common = origin(format!("every {}", name.kind));
                self.give_edits(&found.file.spec.edits, &common, &mut folders)?;
            }
            self.give_edits(&found.device.edits, &origin(name.to_string()), &mut folders)?;
        }
        loader::give(self.host, &folders, self.plan);
        Ok(())
    }

    /// Whether somebody else gave the container this device before us.
    fn is_there(&self, found: &Found<'_>) -> bool {
        let edits = [&found.file.spec.edits, &found.device.edits];
        if edits.iter().all(|edits| edits.device_nodes.is_empty() && edits.mounts.is_empty()) {
            return false;
        }
        edits.into_iter().all(|edits| self.are_there(edits))
    }

    fn are_there(&self, edits: &ContainerEdits) -> bool {
        let nodes = || {
            edits.device_nodes.iter().all(|node| {
                self.node(node).is_ok_and(|node| {
                    let numbers = (u64::from(node.major), u64::from(node.minor));
                    self.spec.devices().any(|it| it.path == node.path && it.numbers == numbers)
                })
            })
        };
        let mounts = || {
            edits.mounts.iter().all(|mount| {
                let (from, to) = (Path::new(&mount.host_path), Path::new(&mount.container_path));
                self.spec.mounts().any(|it| it.source == Some(from) && it.destination == to)
            })
        };
        let env = || edits.env.iter().all(|entry| self.spec.env().any(|known| known == entry));
        let hooks = || {
            edits
                .hooks
                .iter()
                .all(|hook| self.spec.hook_paths(&hook.hook_name).any(|path| path == hook.path))
        };
        nodes() && mounts() && env() && hooks()
    }

    fn give_edits(
        &mut self,
        edits: &ContainerEdits,
        origin: &Origin,
        folders: &mut Vec<PathBuf>,
    ) -> Result<()> {
        for entry in &edits.env {
            let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
            self.plan.edits.env.push((name.to_owned(), value.to_owned()));
            self.note(ItemKind::Environment, entry, origin);
        }
        for node in &edits.device_nodes {
            let node = self.node(node).map_err(|error| error.in_spec(&origin.shown))?;
            check_numbers(&node, origin)?;
            self.note(ItemKind::Device, &node.path.display().to_string(), origin);
            self.plan.edits.devices.push(node);
        }
        for device in &edits.net_devices {
            let shown = format!("{} as {}", device.host_interface_name, device.name);
            self.note(ItemKind::Interface, &shown, origin);
            self.plan.edits.net_devices.push(device.clone());
        }
        for mount in &edits.mounts {
            self.give_mount(mount, origin);
        }
        for hook in &edits.hooks {
            self.give_hook(hook, origin, folders)?;
        }
        if let Some(rdt) = &edits.intel_rdt {
            self.note(ItemKind::ResourceControl, &rdt.clos_id, origin);
            self.plan.edits.intel_rdt = Some(rdt.clone());
        }
        for gid in &edits.additional_gids {
            self.give_group(*gid, origin);
        }
        Ok(())
    }

    fn note(&mut self, kind: ItemKind, name: &str, origin: &Origin) {
        self.plan.report.given.push(Item::new(kind, name, &origin.shown));
    }

    fn withhold(&mut self, kind: ItemKind, name: &str, reason: &str) {
        self.plan.report.withheld.push(Item::new(kind, name, reason));
    }

    /// The node, with all that its spec does not say as the host has it.
    fn node(&self, node: &cdi::DeviceNode) -> Result<DeviceNode> {
        let host_path = host_path(node);
        let unusable = |what: &str| {
            let what = format!("device node {} {what}", host_path.display());
            Error::new(Code::CdiDeviceUnusable, what)
        };
        let said = kind(&node.kind);
        let is_whole = is_whole(node);
        let found = match self.host.symlink_metadata(host_path) {
            Ok(found) => Some(found),
            Err(_) if is_whole => None,
            Err(error) => return Err(unusable(&format!("cannot be looked at: {error}"))),
        };
        let seen = found.as_ref().and_then(|found| {
            let file_type = found.file_type();
            let is_one = [
                (file_type.is_char_device(), DeviceKind::Character),
                (file_type.is_block_device(), DeviceKind::Block),
                (file_type.is_fifo(), DeviceKind::Fifo),
            ];
            is_one.into_iter().find(|(is_it, _)| *is_it).map(|(_, kind)| kind)
        });
        let kind = match (said, seen) {
            (Some(said), _) if is_whole => said,
            (None, Some(seen)) => seen,
            (Some(said), Some(seen)) if said == seen => said,
            (_, None) => return Err(unusable("is none")),
            (Some(said), Some(seen)) => {
                return Err(unusable(&format!("is a {seen:?} device, and its spec says {said:?}")));
            }
        };
        let number = |number: i64| u32::try_from(number).unwrap_or_default();
        let (major, minor) = match &found {
            Some(found) if node.major == 0 && kind != DeviceKind::Fifo => {
                gpu::numbers(found.rdev())
            }
            _ => (number(node.major), number(node.minor)),
        };
        let user = self.spec.user();
        let access = match node.permissions.as_str() {
            "" => "rwm",
            "none" => "",
            said => said,
        };
        Ok(DeviceNode {
            path: PathBuf::from(&node.path),
            host_path: host_path.to_owned(),
            kind,
            major,
            minor,
            mode: node.file_mode.or_else(|| Some(found.as_ref()?.permissions().mode() & 0o777)),
            uid: node.uid.unwrap_or(user.uid),
            gid: node.gid.unwrap_or(user.gid),
            access: access.to_owned(),
            bind: found.is_some() && self.spec.in_user_namespace(),
        })
    }

    fn give_mount(&mut self, mount: &cdi::Mount, origin: &Origin) {
        let source = Path::new(&mount.host_path);
        let is_of_host = matches!(mount.kind.as_str(), "" | "bind" | "none");
        if is_of_host && !self.host.exists(source) {
            let what = format!("{}: {} is not there", origin.shown, source.display());
            self.plan.report.warnings.push(what);
        }
        let destination = PathBuf::from(&mount.container_path);
        let kind =
            if loader::is_library(&destination) { ItemKind::Library } else { ItemKind::File };
        self.note(kind, &mount.container_path, origin);
        self.plan.edits.mounts.push(Mount {
            source: source.to_owned(),
            destination,
            kind: mount.kind.clone(),
            options: mount.options.clone(),
        });
    }

    fn give_group(&mut self, gid: u32, origin: &Origin) {
        // Root's is none to join.
        if gid == 0 || self.plan.edits.additional_gids.contains(&gid) {
            return;
        }
        let name = gid.to_string();
        if self.spec.in_user_namespace() {
            let reason = format!("of {}, not mapped into the user namespace", origin.shown);
            self.withhold(ItemKind::Group, &name, &reason);
        } else if !self.config.additional_gids {
            self.withhold(ItemKind::Group, &name, "no-additional-gids-for-device-nodes is set");
        } else {
            self.note(ItemKind::Group, &name, origin);
            self.plan.edits.additional_gids.push(gid);
        }
    }

    fn give_hook(
        &mut self,
        hook: &Hook,
        origin: &Origin,
        folders: &mut Vec<PathBuf>,
    ) -> Result<()> {
        let shown = foreign::shown(hook);
        match foreign::purpose(hook) {
            Some(Ok(purpose)) => self.give_purpose(purpose, &shown, origin, folders),
            Some(Err(unknown)) if self.is_installed(hook) => {
                let reason = format!("{}; kept, as {unknown}", origin.shown);
                self.plan.report.given.push(Item::new(ItemKind::Hook, shown, reason));
                self.plan.edits.hooks.push(with_env(hook));
            }
            Some(Err(unknown)) => {
                let what = format!("{}: hook {shown} is left out: {unknown}", origin.shown);
                self.plan.report.warnings.push(format!("{what}, and it is not installed"));
            }
            None if self.is_installed(hook) => {
                self.note(ItemKind::Hook, &shown, origin);
                self.plan.edits.hooks.push(with_env(hook));
            }
            None => {
                let what = format!("{}: hook {} is no program", origin.shown, hook.path);
                return Err(Error::new(Code::HookMissing, what));
            }
        }
        Ok(())
    }

    /// Does what a hook of NVIDIA's would do.
    fn give_purpose(
        &mut self,
        purpose: Purpose,
        shown: &str,
        origin: &Origin,
        folders: &mut Vec<PathBuf>,
    ) {
        let fixups = &mut self.plan.fixups;
        match purpose {
            Purpose::Links(links) => {
                for link in links {
                    let shown = format!("{} -> {}", link.link.display(), link.target.display());
                    self.note(ItemKind::Link, &shown, origin);
                    let fixups = &mut self.plan.fixups;
                    fixups.links.retain(|known| known.link != link.link);
                    fixups.links.push(link);
                }
                return;
            }
            Purpose::Folders(named) => {
                folders.extend(
                    named.into_iter().filter(|it| !folders.contains(it)).collect::<Vec<_>>(),
                );
            }
            Purpose::CudaCompat(compat) => {
                fixups.cuda_compat = compat.or(fixups.cuda_compat.take())
            }
            Purpose::MaskParams => fixups.mask_params = true,
            Purpose::ApplicationProfile => fixups.application_profile = true,
            Purpose::Nothing => return,
        }
        let reason = format!("what it does is done; {}", origin.shown);
        self.plan.report.given.push(Item::new(ItemKind::Hook, shown, reason));
    }

    fn is_installed(&self, hook: &Hook) -> bool {
        hook.hook_name == IN_CONTAINER
            || self
                .host
                .metadata(Path::new(&hook.path))
                .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    }
}

/// Where a node is on the host.
pub(super) fn host_path(node: &cdi::DeviceNode) -> &Path {
    Path::new(if node.host_path.is_empty() { &node.path } else { &node.host_path })
}

/// Whether its spec says of a node what it is, so that the host need not have it.
pub(super) fn is_whole(node: &cdi::DeviceNode) -> bool {
    kind(&node.kind).is_some_and(|kind| node.major != 0 || kind == DeviceKind::Fifo)
}

fn kind(letter: &str) -> Option<DeviceKind> {
    match letter {
        "c" => Some(DeviceKind::Character),
        "u" => Some(DeviceKind::Unbuffered),
        "b" => Some(DeviceKind::Block),
        "p" => Some(DeviceKind::Fifo),
        _ => None,
    }
}

/// No device of NVIDIA's is a disk, or one of the kernel's own. Those of other vendors are root's
/// word, as the spec is a file of root's, and may be anything.
fn check_numbers(node: &DeviceNode, origin: &Origin) -> Result<()> {
    let is_nvidias = node.kind == DeviceKind::Character && node.major >= super::nodes::LOWEST_MAJOR;
    if !origin.nvidias || is_nvidias {
        return Ok(());
    }
    let what = format!(
        "{}: {} is {:?} device {}:{}, which is not NVIDIA's",
        origin.shown,
        node.host_path.display(),
        node.kind,
        node.major,
        node.minor
    );
    Err(Error::new(Code::CdiDeviceUnusable, what))
}

fn with_env(hook: &Hook) -> Hook {
    let mut hook = hook.clone();
    if hook.env.is_empty() && hook.hook_name != IN_CONTAINER {
        hook.env.push(HOOK_ENV.to_owned());
    }
    hook
}
