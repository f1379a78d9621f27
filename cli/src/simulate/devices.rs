//! The device nodes below `dev`.

use anyhow::Result;

use super::DeviceNodes;
use super::gpu::Gpu;
use super::tree::{Node, Tree};

/// NVIDIA's own major (open kernel modules, nv-chardev-numbers.h).
pub(super) const NVIDIA: u32 = 195;
/// Kernel documentation, devices.txt.
pub(super) const DRM: u32 = 226;
/// Dynamic: what the kernel gave, from the top of its second dynamic range (511 downwards).
pub(super) const NVIDIA_CAPS: u32 = 508;
pub(super) const NVIDIA_UVM: u32 = 510;

/// nv-chardev-numbers.h, `uvm_common.h`: minors of the control nodes.
const CONTROL: [(&str, u32, u32); 4] = [
    ("nvidiactl", NVIDIA, 255),
    ("nvidia-modeset", NVIDIA, 254),
    ("nvidia-uvm", NVIDIA_UVM, 0),
    ("nvidia-uvm-tools", NVIDIA_UVM, 1),
];

/// Groups `video` and `render` of a Debian system.
const VIDEO: u32 = 44;
const RENDER: u32 = 105;

/// Writes `dev`. There are no links in `dev/char`: nobody makes them for NVIDIA's nodes.
pub(super) fn write(tree: &Tree, gpus: &[Gpu]) -> Result<DeviceNodes> {
    tree.dir("dev/dri/by-path")?;
    for gpu in gpus {
        let (card, render) = gpu.drm();
        let by_path = format!("dev/dri/by-path/pci-{}", gpu.bus_id);
        tree.link(format!("{by_path}-card"), format!("../{card}"))?;
        tree.link(format!("{by_path}-render"), format!("../{render}"))?;
    }
    for (path, node) in nodes(gpus) {
        if tree.node(path, node)? == DeviceNodes::LeftOut {
            return Ok(DeviceNodes::LeftOut);
        }
    }
    Ok(DeviceNodes::Made)
}

fn nodes(gpus: &[Gpu]) -> Vec<(String, Node)> {
    let open = |major, minor| Node { major, minor, mode: 0o666, gid: 0 };
    let mut nodes: Vec<_> = CONTROL
        .into_iter()
        .map(|(name, major, minor)| (format!("dev/{name}"), open(major, minor)))
        .collect();
    for gpu in gpus {
        nodes.push((format!("dev/nvidia{}", gpu.minor), open(NVIDIA, gpu.minor)));
        let (card, render) = gpu.drm();
        let drm = |minor, gid| Node { major: DRM, minor, mode: 0o660, gid };
        nodes.push((format!("dev/dri/{card}"), drm(gpu.index + 1, VIDEO)));
        nodes.push((format!("dev/dri/{render}"), drm(gpu.index + 128, RENDER)));
    }
    nodes
}
