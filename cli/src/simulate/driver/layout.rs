//! Where a distribution puts the driver's files.

use nvidia_oci::elf::Machine;

/// The root that the GPU operator's driver container shows to the host.
pub(in crate::simulate) const DRIVER_CONTAINER: &str = "run/nvidia/driver";

const FIRMWARE: &str = "usr/lib/firmware";

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
    /// NixOS: a store, and /run/opengl-driver that leads into it
    Nixos,
    /// GKE's Container-Optimized OS: all of it below /home/kubernetes/bin/nvidia
    Gke,
    /// Flatcar's nvidia.service: all of it below /opt/nvidia/current
    Flatcar,
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
    /// Of `egl`, `glvnd` and `nvidia`, where the layout has them.
    pub(super) share: Option<&'static str>,
    /// Of `icd.d` and `implicit_layer.d`, where the layout has them.
    pub(super) vulkan: Option<&'static str>,
    /// Whether the vendor file of `OpenCL` is installed.
    pub(super) opencl: bool,
    /// Of GSP firmware.
    pub(super) firmware: &'static str,
    /// Whether the driver root is a system of its own, with ld.so's configuration.
    pub(super) is_system: bool,
    /// `ID` in os-release.
    pub(super) distribution: &'static str,
}

impl Layout {
    /// Where the kernel is told to look for firmware, if anywhere.
    pub(in crate::simulate) fn firmware_path(self) -> Option<&'static str> {
        match self {
            Self::Gke => Some("/home/kubernetes/bin/nvidia/firmware"),
            Self::Nixos => Some("/run/current-system/firmware"),
            _ => None,
        }
    }

    /// Sources: Debian as `driver-debian-550.json` of the corpus, recorded from the packages;
    /// RHEL, driver container as NVIDIA's installer and `rhel-580.json`, `gpuop-550.json`; Talos
    /// as siderolabs/pkgs and extensions in 2026 (glibc's prefix is `/usr/local`; the vendor
    /// file of `OpenCL` and 32-bit libraries are not installed); GKE as the volumes of its driver
    /// installer and device plugin; Flatcar as the device plugin's of `CoreOS`; `NixOS` as
    /// `nvidia-x11` of nixpkgs.
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
                share: Some("usr/share"),
                vulkan: Some("usr/share/vulkan"),
                opencl: true,
                firmware: FIRMWARE,
                is_system: true,
                distribution: "debian",
            },
            Self::Rhel => Directories {
                root: "",
                libraries: "usr/lib64".to_owned(),
                libraries_32: has_32_bit.then_some("usr/lib"),
                binaries: "usr/bin",
                binary_links: None,
                xorg: Some("usr/lib64/xorg/modules".to_owned()),
                share: Some("usr/share"),
                vulkan: Some("usr/share/vulkan"),
                opencl: true,
                firmware: FIRMWARE,
                is_system: true,
                distribution: "rhel",
            },
            Self::Talos => Directories {
                root: "",
                libraries: "usr/local/lib".to_owned(),
                libraries_32: None,
                binaries: "usr/local/bin",
                binary_links: Some("usr/bin"),
                xorg: None,
                share: Some("usr/share"),
                vulkan: Some("etc/vulkan"),
                opencl: false,
                firmware: FIRMWARE,
                is_system: true,
                distribution: "talos",
            },
            Self::Nixos => Directories {
                root: "",
                libraries: "run/opengl-driver/lib".to_owned(),
                binaries: "run/current-system/sw/bin",
                vulkan: None,
                firmware: "run/current-system/firmware",
                distribution: "nixos",
                libraries_32: None,
                binary_links: None,
                xorg: None,
                share: None,
                opencl: false,
                is_system: false,
            },
            Self::Gke => Directories {
                root: "home/kubernetes/bin/nvidia",
                libraries: "lib64".to_owned(),
                binaries: "bin",
                vulkan: Some("vulkan"),
                firmware: "firmware",
                distribution: "cos",
                libraries_32: None,
                binary_links: None,
                xorg: None,
                share: None,
                opencl: false,
                is_system: false,
            },
            Self::Flatcar => Directories {
                root: "opt/nvidia/current",
                libraries: "lib64".to_owned(),
                binaries: "bin",
                vulkan: None,
                firmware: FIRMWARE,
                distribution: "flatcar",
                libraries_32: None,
                binary_links: None,
                xorg: None,
                share: None,
                opencl: false,
                is_system: false,
            },
            Self::DriverContainer => Directories {
                root: DRIVER_CONTAINER,
                libraries: format!("usr/lib/{triplet}"),
                libraries_32: None,
                binaries: "usr/bin",
                binary_links: None,
                xorg: Some(format!("usr/lib/{triplet}/nvidia/xorg")),
                share: Some("usr/share"),
                vulkan: Some("usr/share/vulkan"),
                opencl: true,
                firmware: FIRMWARE,
                is_system: true,
                distribution: "ubuntu",
            },
        }
    }
}

pub(super) fn machine_name(machine: Machine) -> &'static str {
    if machine == Machine::Aarch64 { "aarch64" } else { "x86_64" }
}
