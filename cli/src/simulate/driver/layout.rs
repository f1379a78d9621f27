//! Where a distribution puts the driver's files.

use nvidia_oci::elf::Machine;

/// The root that the GPU operator's driver container shows to the host.
pub(in crate::simulate) const DRIVER_CONTAINER: &str = "run/nvidia/driver";

/// A kind of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Layout {
    /// Debian's packages: libraries in `nvidia/current`, reached through alternatives
    Debian,
    /// RHEL and its kin: `/usr/lib64`, 32-bit libraries in `/usr/lib`
    Rhel,
    /// Talos Linux with its driver extension: `/usr/local/lib`
    Talos,
    /// The GPU operator's driver container: a whole root at /run/nvidia/driver
    DriverContainer,
}

/// The directories of a layout, relative to the driver root.
#[derive(Clone, Debug)]
pub(super) struct Directories {
    /// The driver root, relative to the node's.
    pub(super) root: &'static str,
    pub(super) libraries: String,
    /// Of 32-bit libraries, where the layout has them.
    pub(super) libraries_32: Option<&'static str>,
    pub(super) binaries: &'static str,
    /// Links to the binaries, where they are elsewhere too.
    pub(super) binary_links: Option<&'static str>,
    /// X modules: `drivers` and `extensions` below it.
    pub(super) xorg: Option<String>,
    /// Of `egl`, `glvnd` and `nvidia`.
    pub(super) share: &'static str,
    /// Of `icd.d` and `implicit_layer.d`.
    pub(super) vulkan: &'static str,
    /// Whether the vendor file of `OpenCL` is installed.
    pub(super) opencl: bool,
    /// `ID` in os-release.
    pub(super) distribution: &'static str,
}

impl Layout {
    /// Sources: Debian as `driver-debian-550.json` of the corpus, recorded from the packages;
    /// RHEL, driver container as NVIDIA's installer and `rhel-580.json`, `gpuop-550.json`; Talos
    /// as siderolabs/pkgs and extensions in 2026 (glibc's prefix is `/usr/local`; the vendor
    /// file of `OpenCL` and 32-bit libraries are not installed).
    pub(super) fn directories(self, machine: Machine) -> Directories {
        let triplet = format!("{}-linux-gnu", machine_name(machine));
        let has_32_bit = machine == Machine::X86_64;
        match self {
            Self::Debian => Directories {
                root: "",
                libraries: format!("usr/lib/{triplet}"),
                libraries_32: None,
                binaries: "usr/bin",
                binary_links: None,
                xorg: None,
                share: "usr/share",
                vulkan: "usr/share/vulkan",
                opencl: true,
                distribution: "debian",
            },
            Self::Rhel => Directories {
                root: "",
                libraries: "usr/lib64".to_owned(),
                libraries_32: has_32_bit.then_some("usr/lib"),
                binaries: "usr/bin",
                binary_links: None,
                xorg: Some("usr/lib64/xorg/modules".to_owned()),
                share: "usr/share",
                vulkan: "usr/share/vulkan",
                opencl: true,
                distribution: "rhel",
            },
            Self::Talos => Directories {
                root: "",
                libraries: "usr/local/lib".to_owned(),
                libraries_32: None,
                binaries: "usr/local/bin",
                binary_links: Some("usr/bin"),
                xorg: None,
                share: "usr/share",
                vulkan: "etc/vulkan",
                opencl: false,
                distribution: "talos",
            },
            Self::DriverContainer => Directories {
                root: DRIVER_CONTAINER,
                libraries: format!("usr/lib/{triplet}"),
                libraries_32: None,
                binaries: "usr/bin",
                binary_links: None,
                xorg: Some(format!("usr/lib/{triplet}/nvidia/xorg")),
                share: "usr/share",
                vulkan: "usr/share/vulkan",
                opencl: true,
                distribution: "ubuntu",
            },
        }
    }
}

pub(super) fn machine_name(machine: Machine) -> &'static str {
    if machine == Machine::Aarch64 { "aarch64" } else { "x86_64" }
}
