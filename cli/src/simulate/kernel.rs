//! What the kernel and its NVIDIA modules show in procfs and sysfs.

use anyhow::Result;
use nvidia_oci::elf::Machine;

use super::devices::{DRM, NVIDIA, NVIDIA_CAPS, NVIDIA_UVM};
use super::gpu::Gpu;
use super::tree::Tree;

/// Names the directory where firmware is looked for first.
pub(super) const FIRMWARE_PATH: &str = "sys/module/firmware_class/parameters/path";

/// Writes `proc` and `sys`.
pub(super) fn write(tree: &Tree, gpus: &[Gpu], version: &str, machine: Machine) -> Result<()> {
    procfs(tree, gpus, version, machine)?;
    sysfs(tree, gpus, version)
}

fn procfs(tree: &Tree, gpus: &[Gpu], version: &str, machine: Machine) -> Result<()> {
    tree.file("proc/devices", 0o444, devices())?;
    tree.file("proc/modules", 0o444, modules())?;
    // Open kernel modules, nv-procfs.c: `nv_procfs_read_version`.
    let platform = if machine == Machine::Aarch64 { "aarch64" } else { "x86_64" };
    let loaded = format!(
        "NVRM version: NVIDIA UNIX {platform} Kernel Module  {version}  \
         Tue Apr  8 12:41:17 UTC 2025\n\
         GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1) \n"
    );
    tree.file("proc/driver/nvidia/version", 0o444, loaded)?;
    tree.file("proc/driver/nvidia/params", 0o444, PARAMS)?;
    for gpu in gpus {
        let path = format!("proc/driver/nvidia/gpus/{}/information", gpu.bus_id);
        tree.file(path, 0o444, information(gpu, version))?;
    }
    Ok(())
}

/// Open kernel modules, nv-reg.h: the parameters and their defaults. `ModifyDeviceFiles: 1`: the
/// driver lets user space make its nodes, with this owner and mode (438 is 0666).
const PARAMS: &str = "\
ResmanDebugLevel: 4294967295
RmLogonRC: 1
ModifyDeviceFiles: 1
DeviceFileUID: 0
DeviceFileGID: 0
DeviceFileMode: 438
InitializeSystemMemoryAllocations: 1
UsePageAttributeTable: 4294967295
EnableMSI: 1
";

/// proc(5) `/proc/devices`: NVIDIA's control nodes share the major of the GPUs and are listed by
/// name since driver 545 or so; before it was one line, `nvidia-frontend`.
fn devices() -> String {
    format!(
        "Character devices:\n  1 mem\n  5 /dev/tty\n 10 misc\n\
         {NVIDIA} nvidia\n{NVIDIA} nvidia-modeset\n{NVIDIA} nvidiactl\n{DRM} drm\n\
         {NVIDIA_CAPS} nvidia-caps\n{NVIDIA_UVM} nvidia-uvm\n\
         \nBlock devices:\n  8 sd\n"
    )
}

/// proc(5) `/proc/modules`, of the four modules that a loaded driver consists of.
fn modules() -> String {
    [
        ("nvidia_uvm", 4_939_776, 0, "-"),
        ("nvidia_drm", 122_880, 0, "-"),
        ("nvidia_modeset", 1_507_328, 1, "nvidia_drm,"),
        ("nvidia", 60_710_912, 2, "nvidia_uvm,nvidia_modeset,"),
    ]
    .map(|(name, size, used, by)| {
        format!("{name} {size} {used} {by} Live 0x0000000000000000 (POE)\n")
    })
    .concat()
}

/// Open kernel modules, nv-procfs.c: `nv_procfs_read_gpu_info`.
fn information(gpu: &Gpu, version: &str) -> String {
    format!(
        "Model: \t\t {model}\n\
         IRQ:   \t\t {irq}\n\
         GPU UUID: \t {uuid}\n\
         Video BIOS: \t 92.00.45.00.03\n\
         Bus Type: \t PCIe\n\
         DMA Size: \t 47 bits\n\
         DMA Mask: \t 0x7fffffffffff\n\
         Bus Location: \t {bus_id}\n\
         Device Minor: \t {minor}\n\
         GPU Firmware: \t {version}\n\
         GPU Excluded:\t No\n",
        model = Gpu::MODEL,
        irq = 408 + gpu.index,
        uuid = gpu.uuid,
        bus_id = gpu.bus_id,
        minor = gpu.minor,
    )
}

fn sysfs(tree: &Tree, gpus: &[Gpu], version: &str) -> Result<()> {
    tree.file("sys/module/nvidia/version", 0o444, format!("{version}\n"))?;
    // Kernel documentation, firmware search path: empty unless someone sets it.
    tree.file(FIRMWARE_PATH, 0o644, "\n")?;
    for gpu in gpus {
        let device = format!("sys/bus/pci/devices/{}", gpu.bus_id);
        tree.file(format!("{device}/vendor"), 0o444, "0x10de\n")?;
        tree.file(format!("{device}/device"), 0o444, format!("{}\n", Gpu::PCI_DEVICE))?;
        // "3D controller", as data centre GPUs without display outputs are.
        tree.file(format!("{device}/class"), 0o444, "0x030200\n")?;
        tree.link(format!("{device}/driver"), "../../drivers/nvidia")?;
        let (card, render) = gpu.drm();
        tree.dir(format!("{device}/drm/{card}"))?;
        tree.dir(format!("{device}/drm/{render}"))?;
    }
    tree.dir("sys/bus/pci/drivers/nvidia")
}
