//! The GPUs of the host and its control nodes, from procfs, sysfs and `/proc/devices`.
//!
//! NVML is not asked: it would have to be loaded, and opens devices. What each file says is in
//! `procfs`, what a device node is in `nodes`.

mod bus;
mod imex;
mod nodes;
mod platform;
mod procfs;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use self::bus::BusId;
pub(crate) use self::imex::ImexInventory;
use self::nodes::Nodes;
pub(crate) use self::nodes::numbers;
use self::procfs::{Information, Majors, Params};
use crate::{Code, Config, Error, Host, Result, driver};

/// The major of GPUs and `nvidiactl`, assigned in the kernel's `devices.txt`.
const NVIDIA_MAJOR: u32 = 195;
const CTL_MINOR: u32 = 255;
const MODESET_MINOR: u32 = 254;
/// The major of DRM (`devices.txt`).
const DRM_MAJOR: u32 = 226;
/// Minors of the module nvidia-uvm (`uvm_common.h`).
const UVM_MINOR: u32 = 0;
const UVM_TOOLS_MINOR: u32 = 1;
/// NVIDIA's PCI vendor id, as sysfs writes it.
const VENDOR: &str = "0x10de";

/// What the kernel driver offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// In index order (PCI order, excluded GPUs left out), as `nvidia-smi` counts.
    pub gpus: Vec<Gpu>,
    /// Those that the driver was told to leave alone (`GPU Excluded: Yes`).
    pub excluded: Vec<Gpu>,
    /// The version of the loaded kernel driver; `None`: it is not loaded.
    pub driver_version: Option<String>,
    /// `/dev/nvidiactl`, `nvidia-uvm`, `nvidia-uvm-tools`, `nvidia-modeset`: those whose module
    /// is loaded or whose node exists.
    pub control: Vec<ControlNode>,
    /// Whether missing nodes may be made (`ModifyDeviceFiles` of the driver's parameters).
    pub may_make_nodes: bool,
    /// IMEX channels, where they were asked for.
    pub(crate) imex: Option<ImexInventory>,
    /// What kind of machine it is, if it has no GPU here and is known to have them elsewhere.
    pub(crate) platform: Option<&'static str>,
    /// Whether the host has a PCI function of NVIDIA, with or without driver.
    pub on_pci: bool,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// As `nvidia-smi` counts: PCI order, not the minor. Of no meaning for excluded ones.
    pub index: u32,
    /// `0000:07:00.0`: domain of four digits or more, lower case.
    pub bus_id: String,
    pub minor: u32,
    /// `GPU-…`; `None` while the GPU was never opened since the driver was loaded.
    pub uuid: Option<String>,
    pub model: String,
    pub node: NodeNumbers,
    /// DRM nodes of the GPU that exist, below `/dev/dri`.
    pub drm: Vec<NodeNumbers>,
    /// Links of the DRM nodes below `/dev/dri/by-path`: `(link, target as it is stored)`.
    pub drm_links: Vec<(PathBuf, PathBuf)>,
}

/// A control node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlNode {
    /// `nvidiactl`, `nvidia-uvm`, `nvidia-uvm-tools`, `nvidia-modeset`
    pub name: String,
    pub node: NodeNumbers,
    /// Whether its module is loaded; the node of one that is not may have a major of the past.
    pub loaded: bool,
}

/// A device node as it is on the host, or as it should be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeNumbers {
    /// In a container: `/dev/nvidia0`.
    pub path: PathBuf,
    /// On the host, as the host names it: the same, below the dev root.
    pub host_path: PathBuf,
    pub major: u32,
    pub minor: u32,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// False where the driver is loaded and the node was not made yet.
    pub exists: bool,
}

impl Inventory {
    /// Reads what the kernel driver of `host` offers; device files are looked at, never opened.
    /// A host without driver has an empty inventory.
    ///
    /// # Errors
    /// A file of the driver is malformed; something that is no device node is where a node
    /// should be.
    pub fn read(host: &Host, config: &Config) -> Result<Self> {
        let Some(version) = kernel_version(host)? else {
            let (on_pci, platform) = (on_pci(host), platform::other(host));
            return Ok(Self { on_pci, platform, ..Self::default() });
        };
        let (params, majors) = kernel_files(host)?;
        let nodes = Nodes::new(host, dev_root(host, config, &version), params);
        let (mut gpus, mut excluded) = (Vec::new(), Vec::new());
        for (bus_id, information) in functions(host)? {
            let (list, index) = match information.excluded {
                true => (&mut excluded, 0),
                false => {
                    let index = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
                    (&mut gpus, index)
                }
            };
            list.push(gpu(host, &nodes, majors, index, bus_id, information)?);
        }
        let platform = if gpus.is_empty() { platform::other(host) } else { None };
        Ok(Self {
            platform,
            on_pci: !gpus.is_empty() || !excluded.is_empty() || on_pci(host),
            gpus,
            excluded,
            driver_version: Some(version),
            control: control(host, &nodes, majors)?,
            may_make_nodes: params.modify,
            imex: None,
        })
    }
}

/// The driver's parameters, and the majors of its devices.
fn kernel_files(host: &Host) -> Result<(Params, Majors)> {
    let path = Path::new("/proc/driver/nvidia/params");
    let params = procfs::text(host, path)?.map(|text| Params::parse(path, &text)).transpose()?;
    let path = Path::new("/proc/devices");
    let majors = procfs::text(host, path)?.map(|text| Majors::parse(path, &text)).transpose()?;
    Ok((params.unwrap_or_default(), majors.unwrap_or_default()))
}

impl Gpu {
    /// Whether it is divided into MIG devices: the driver then has capabilities of theirs.
    pub(crate) fn is_divided(&self, host: &Host) -> bool {
        let path = format!("/proc/driver/nvidia/capabilities/gpu{}/mig", self.minor);
        let names = host.read_dir(Path::new(&path)).unwrap_or_default();
        names.iter().any(|name| name.as_encoded_bytes().starts_with(b"gi"))
    }

    /// Its PCI device id, which tells the chip.
    pub(crate) fn device_id(&self, host: &Host) -> Option<u16> {
        let path = Path::new("/sys/bus/pci/devices").join(&self.bus_id).join("device");
        let text = host.read_text(&path, 64).ok()?;
        u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
    }
}

/// The version of the loaded driver.
pub(crate) fn kernel_version(host: &Host) -> Result<Option<String>> {
    let path = Path::new("/proc/driver/nvidia/version");
    if let Some(text) = procfs::text(host, path)? {
        return procfs::version(path, &text).map(Some);
    }
    let path = Path::new("/sys/module/nvidia/version");
    let text = procfs::text(host, path)?;
    match text.as_deref().map(str::trim) {
        None => Ok(None),
        Some(version) if driver::is_version(version) => Ok(Some(version.to_owned())),
        Some(other) => {
            let what = format!("line 1 of {}: \"{other}\" is no version", path.display());
            Err(Error::new(Code::ProcfsUnreadable, what))
        }
    }
}

/// Where device nodes are: a driver root counts only if it holds `nvidiactl`.
fn dev_root(host: &Host, config: &Config, version: &str) -> PathBuf {
    if let Some(root) = &config.dev_root {
        return root.clone();
    }
    driver::find_root(host, config, Some(version))
        .filter(|root| host.below(root).exists(Path::new("/dev/nvidiactl")))
        .unwrap_or_else(|| PathBuf::from("/"))
}

/// The device nodes in `directory` whose names are accepted, as they lie in the dev root or, where
/// that has none, in the host's own `/dev`.
pub(crate) fn nodes_in(
    host: &Host,
    config: &Config,
    directory: &Path,
    is_one: impl Fn(&str) -> bool,
) -> Result<Vec<NodeNumbers>> {
    let version = kernel_version(host)?.unwrap_or_default();
    let root = dev_root(host, config, &version);
    let roots = if root == Path::new("/") { vec![root] } else { vec![root, PathBuf::from("/")] };
    for root in roots {
        let tree = host.below(&root);
        let names = tree.read_dir(directory).unwrap_or_default();
        let nodes = Nodes::new(host, root, Params::default());
        let mut found = Vec::new();
        for name in names.iter().filter(|name| name.to_str().is_some_and(&is_one)) {
            let path = directory.join(name);
            // A directory such as /dev/nvidia-caps is no node, and a link may lead to any.
            let is_node = |found: Metadata| found.file_type().is_char_device();
            if tree.symlink_metadata(&path).is_ok_and(is_node) {
                found.extend(nodes.existing(&path)?);
            }
        }
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// The device node `path` below the dev root, if it is there.
pub(crate) fn node(host: &Host, root: &Path, path: &Path) -> Result<Option<NodeNumbers>> {
    Nodes::new(host, root.to_owned(), Params::default()).existing(path)
}

/// The PCI functions that the driver has bound, in PCI order.
fn functions(host: &Host) -> Result<Vec<(BusId, Information)>> {
    let dir = Path::new("/proc/driver/nvidia/gpus");
    let names = match host.read_dir(dir) {
        Ok(names) => names,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            let what = dir.display().to_string();
            return Err(Error::caused(Code::ProcfsUnreadable, what, error));
        }
    };
    let mut functions = Vec::new();
    for name in names {
        let path = dir.join(&name).join("information");
        let text = procfs::text(host, &path)?.ok_or_else(|| {
            Error::new(Code::ProcfsUnreadable, format!("{} is missing", path.display()))
        })?;
        let information = Information::parse(&path, &text)?;
        let bus_id = name
            .to_str()
            .and_then(BusId::parse)
            .or_else(|| BusId::parse(information.bus_location.as_deref()?))
            .ok_or_else(|| {
                let what = format!("{} names no PCI address", path.display());
                Error::new(Code::ProcfsUnreadable, what)
            })?;
        functions.push((bus_id, information));
    }
    functions.sort_by_key(|(bus_id, _)| *bus_id);
    Ok(functions)
}

fn gpu(
    host: &Host,
    nodes: &Nodes,
    majors: Majors,
    index: u32,
    bus_id: BusId,
    information: Information,
) -> Result<Gpu> {
    let bus_id = bus_id.to_string();
    let minor = information.minor;
    let path = PathBuf::from(format!("/dev/nvidia{minor}"));
    let mut drm = Vec::new();
    let sysfs = Path::new("/sys/bus/pci/devices").join(&bus_id).join("drm");
    // Absent where the module nvidia-drm is not loaded.
    for name in host.read_dir(&sysfs).unwrap_or_default() {
        if let Some(minor) = drm_minor(&name) {
            drm.extend(nodes.existing_as(&Path::new("/dev/dri").join(name), DRM_MAJOR, minor)?);
        }
    }
    let drm_links = ["card", "render"]
        .into_iter()
        .filter_map(|kind| {
            let link = PathBuf::from(format!("/dev/dri/by-path/pci-{bus_id}-{kind}"));
            let target = nodes.link(&link)?;
            Some((link, target))
        })
        .collect();
    Ok(Gpu {
        index,
        node: nodes.expected(&path, majors.gpu.unwrap_or(NVIDIA_MAJOR), minor)?,
        bus_id,
        minor,
        uuid: information.uuid,
        model: information.model,
        drm,
        drm_links,
    })
}

/// The minor of a node by its name in a `drm` directory of sysfs: `card1`, `renderD128`. Other
/// names there are those of connectors and the like.
fn drm_minor(name: &OsStr) -> Option<u32> {
    let name = name.to_str()?;
    let number = name.strip_prefix("card").or_else(|| name.strip_prefix("renderD"))?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
}

fn control(host: &Host, nodes: &Nodes, majors: Majors) -> Result<Vec<ControlNode>> {
    // Drivers up to R535 serve modesetting through the major of the GPUs.
    let modeset = majors.modeset.or_else(|| {
        let loaded = host.exists(Path::new("/sys/module/nvidia_modeset"));
        loaded.then(|| majors.gpu.unwrap_or(NVIDIA_MAJOR))
    });
    let mut control = Vec::new();
    for (name, major, minor) in [
        ("nvidiactl", Some(majors.gpu.unwrap_or(NVIDIA_MAJOR)), CTL_MINOR),
        ("nvidia-uvm", majors.uvm, UVM_MINOR),
        ("nvidia-uvm-tools", majors.uvm, UVM_TOOLS_MINOR),
        ("nvidia-modeset", modeset, MODESET_MINOR),
    ] {
        let path = Path::new("/dev").join(name);
        let node = match major {
            Some(major) => Some(nodes.expected(&path, major, minor)?),
            None => nodes.existing(&path)?,
        };
        let loaded = major.is_some();
        control.extend(node.map(|node| ControlNode { name: name.to_owned(), node, loaded }));
    }
    Ok(control)
}

fn on_pci(host: &Host) -> bool {
    let dir = Path::new("/sys/bus/pci/devices");
    host.read_dir(dir).unwrap_or_default().into_iter().any(|name| {
        let vendor = host.read_text(&dir.join(name).join("vendor"), 64);
        vendor.is_ok_and(|vendor| vendor.trim() == VENDOR)
    })
}
