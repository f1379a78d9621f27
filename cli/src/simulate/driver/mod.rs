//! The user-space driver and the root file system around it.
//!
//! `layout` says where things lie, `libraries` which there are; `installer`, `debian` and `nixos`
//! are the ways in which libraries are laid out; `loader` is ld.so's configuration and cache; `smi` is
//! what nvidia-smi says.

mod debian;
mod installer;
mod layout;
mod libraries;
mod loader;
mod nixos;
mod smi;

use std::fmt;

use anyhow::{Context, Result};
use nvidia_oci::elf::{Class, Machine};

pub(super) use self::layout::DRIVER_CONTAINER;
pub use self::layout::Layout;
use self::layout::{Directories, machine_name};
use self::libraries::Library;
use super::Node;
use super::elf;
use super::gpu::Gpu;
use super::tree::Tree;

/// Programs of the driver beside nvidia-smi (`driver-debian-550.json`).
const PROGRAMS: [&str; 4] =
    ["nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-modprobe"];

/// Writes the driver of `node` and what surrounds it.
pub(super) fn write(tree: &Tree, node: &Node, gpus: &[Gpu], machine: Machine) -> Result<()> {
    let directories = node.layout.directories(machine);
    system(tree, &directories)?;
    let root = tree.below(directories.root);
    if !directories.root.is_empty() && directories.is_system {
        system(&root, &directories)?;
    }
    let driver = Driver { version: &node.driver_version, machine };
    match node.layout {
        Layout::Debian => debian::write(&root, &driver, &directories, gpus)?,
        Layout::Nixos => nixos::write(&root, &driver, gpus)?,
        _ => installer::write(&root, &driver, &directories, gpus)?,
    }
    data(&root, &directories, &node.driver_version)?;
    if directories.is_system {
        loader::write(&root, &directories)?;
        root.socket("run/nvidia-persistenced/socket")?;
    }
    Ok(())
}

/// The bare system that a driver is installed on, with `/usr` merged.
fn system(tree: &Tree, directories: &Directories) -> Result<()> {
    for name in ["bin", "lib", "lib64", "sbin"] {
        tree.dir(format!("usr/{name}"))?;
        tree.link(name, format!("usr/{name}"))?;
    }
    tree.dir("run")?;
    tree.link("var/run", "/run")?;
    tree.file("etc/os-release", 0o644, format!("ID={}\n", directories.distribution))?;
    tree.file("etc/group", 0o644, "root:x:0:\nvideo:x:44:\nrender:x:105:\n")
}

/// Firmware and the files of graphics and `OpenCL` (`driver-debian-550.json`, `deb550-8gpu.json`).
fn data(root: &Tree, directories: &Directories, version: &str) -> Result<()> {
    for name in ["gsp_ga10x.bin", "gsp_tu10x.bin"] {
        let folder = format!("{}/nvidia/{version}", directories.firmware);
        root.file(format!("{folder}/{name}"), 0o644, name)?;
    }
    if directories.opencl {
        root.file("etc/OpenCL/vendors/nvidia.icd", 0o644, "libnvidia-opencl.so.1\n")?;
    }
    if let Some(share) = directories.share {
        let egl = "egl/egl_external_platform.d";
        for (name, library) in [
            (format!("{egl}/10_nvidia_wayland.json"), "libnvidia-egl-wayland.so.1"),
            (format!("{egl}/15_nvidia_gbm.json"), "libnvidia-egl-gbm.so.1"),
            ("glvnd/egl_vendor.d/10_nvidia.json".to_owned(), "libEGL_nvidia.so.0"),
        ] {
            root.file(format!("{share}/{name}"), 0o644, platform_json("1.0.0", library))?;
        }
    }
    if let Some(vulkan) = directories.vulkan {
        let icd = platform_json("1.0.1", "libGLX_nvidia.so.0");
        root.file(format!("{vulkan}/icd.d/nvidia_icd.json"), 0o644, icd)?;
        let layers = "{\"file_format_version\": \"1.0.0\", \"layers\": []}\n";
        root.file(format!("{vulkan}/implicit_layer.d/nvidia_layers.json"), 0o644, layers)?;
    }
    Ok(())
}

/// The shape that EGL's and Vulkan's loaders read: which library to load.
fn platform_json(format: &str, library: &str) -> String {
    format!(
        "{{\"file_format_version\": \"{format}\", \"ICD\": {{\"library_path\": \"{library}\"}}}}\n"
    )
}

/// The driver's binaries, made as they are asked for.
struct Driver<'a> {
    version: &'a str,
    machine: Machine,
}

impl Driver<'_> {
    /// The content of a 64-bit library.
    fn library(&self, library: &Library) -> Result<Vec<u8>> {
        if library.name == "libcuda" {
            let version = CudaVersion::of_driver(self.version).number();
            return elf::libcuda(self.machine, version).context("libcuda for another machine");
        }
        let soname = library.soname(self.version);
        Ok(elf::library(Some(&soname), Class::Elf64, self.machine))
    }

    fn nvidia_smi(&self, gpus: &[Gpu]) -> Result<Vec<u8>> {
        let list = smi::list(gpus);
        let query = smi::query(gpus, self.version, CudaVersion::of_driver(self.version));
        elf::nvidia_smi(self.machine, &list, &query, smi::USAGE)
            .context("nvidia-smi for another machine")
    }

    /// A program that says that it is simulated, and fails.
    fn program(&self, name: &str) -> Result<Vec<u8>> {
        let message = format!("simulated {name}: it does nothing\n");
        elf::nvidia_smi(self.machine, &message, &message, &message)
            .with_context(|| format!("{name} for another machine"))
    }
}

/// The newest CUDA that a driver runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CudaVersion {
    major: u32,
    minor: u32,
}

impl CudaVersion {
    /// By the driver's branch, as "CUDA Toolkit and Corresponding Driver Versions" of the CUDA
    /// release notes has it.
    fn of_driver(version: &str) -> Self {
        const FIRST_BRANCH: [(u32, u32, u32); 9] = [
            (580, 13, 0),
            (575, 12, 9),
            (570, 12, 8),
            (565, 12, 7),
            (560, 12, 6),
            (555, 12, 5),
            (550, 12, 4),
            (545, 12, 3),
            (535, 12, 2),
        ];
        let branch = version.split('.').next().and_then(|part| part.parse().ok()).unwrap_or(0);
        FIRST_BRANCH
            .into_iter()
            .find(|(first, ..)| branch >= *first)
            .map_or(Self { major: 12, minor: 0 }, |(_, major, minor)| Self { major, minor })
    }

    /// As `cuDriverGetVersion` gives it.
    fn number(self) -> u32 {
        1000 * self.major + 10 * self.minor
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cuda_version_follows_the_branch() {
        let of = |version| CudaVersion::of_driver(version).to_string();
        assert_eq!(of("535.261.03"), "12.2");
        assert_eq!(of("550.163.01"), "12.4");
        assert_eq!(of("595.91.07"), "13.0");
        assert_eq!(CudaVersion::of_driver("550.1").number(), 12_040);
    }
}
