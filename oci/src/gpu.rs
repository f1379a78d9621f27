//! The GPUs of the host and its control nodes, from procfs, sysfs and `/proc/devices`.

use std::path::PathBuf;

use serde::Serialize;

use crate::{Config, Host, Result};

/// What the kernel driver offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// In index order (PCI order, excluded GPUs left out), as `nvidia-smi` counts.
    pub gpus: Vec<Gpu>,
    /// Those that the driver was told to leave alone (`GPU Excluded: Yes`).
    pub excluded: Vec<Gpu>,
    /// The version of the loaded kernel driver.
    pub driver_version: Option<String>,
    /// `/dev/nvidiactl`, `nvidia-uvm`, `nvidia-uvm-tools`, `nvidia-modeset`: those whose module
    /// is loaded or whose node exists.
    pub control: Vec<ControlNode>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// As `nvidia-smi` counts: PCI order, not the minor.
    pub index: u32,
    /// `0000:07:00.0`: domain of four digits or more, lower case.
    pub bus_id: String,
    pub minor: u32,
    /// `GPU-…`; `None` while the GPU was never opened since the driver was loaded.
    pub uuid: Option<String>,
    pub model: String,
    pub node: NodeNumbers,
    /// DRM nodes of the GPU, below `/dev/dri`.
    pub drm: Vec<NodeNumbers>,
}

/// A control node and whether it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlNode {
    /// `nvidiactl`, `nvidia-uvm`, `nvidia-uvm-tools`, `nvidia-modeset`
    pub name: String,
    pub node: NodeNumbers,
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
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// False where the driver is loaded and the node was not made yet.
    pub exists: bool,
}

impl Inventory {
    /// Reads what the kernel driver of `host` offers; device files are looked at, never opened.
    pub fn read(host: &Host, config: &Config) -> Result<Self> {
        todo!()
    }
}
