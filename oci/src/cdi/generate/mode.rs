//! What is described: GPUs, or one of the other things that NVIDIA has specs of.

use std::path::Path;

use crate::driver::find_root;
use crate::{Config, Host};

/// A mode of NVIDIA's generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerateMode {
    /// As the machine is.
    Auto,
    /// GPUs. The name is NVIDIA's; NVML is not asked.
    Nvml,
    /// All nodes, for who manages GPUs.
    Management,
    Gds,
    Mofed,
    Gdrcopy,
    Nvswitch,
    Imex,
    /// Windows' GPUs in its subsystem for Linux.
    Wsl,
    /// Tegra, by lists of files.
    Csv,
}

const NAMES: [(&str, GenerateMode); 10] = [
    ("auto", GenerateMode::Auto),
    ("nvml", GenerateMode::Nvml),
    ("management", GenerateMode::Management),
    ("gds", GenerateMode::Gds),
    ("mofed", GenerateMode::Mofed),
    ("gdrcopy", GenerateMode::Gdrcopy),
    ("nvswitch", GenerateMode::Nvswitch),
    ("imex", GenerateMode::Imex),
    ("wsl", GenerateMode::Wsl),
    ("csv", GenerateMode::Csv),
];

/// The device of WSL, and the library that speaks to it.
const WSL: [&str; 2] = ["/dev/dxg", "/usr/lib/wsl/lib/libdxcore.so"];
const TEGRA_RELEASE: &str = "/etc/nv_tegra_release";
const TEGRA_FAMILY: &str = "/sys/devices/soc0/family";

impl GenerateMode {
    /// As NVIDIA's flag `--mode` has it.
    pub fn parse(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, mode)| *mode)
    }

    /// The names of all, for a person.
    pub fn names() -> Vec<&'static str> {
        NAMES.map(|(name, _)| name).to_vec()
    }

    /// The kind of its devices, unless somebody says otherwise.
    pub fn kind(self) -> String {
        match self {
            Self::Management => "management.nvidia.com/gpu".to_owned(),
            mode => format!("nvidia.com/{}", mode.function().unwrap_or("gpu")),
        }
    }

    /// The class of CDI devices that it describes, if those are beside GPUs.
    pub(super) fn function(self) -> Option<&'static str> {
        match self {
            Self::Gds => Some("gds"),
            Self::Mofed => Some("mofed"),
            Self::Gdrcopy => Some("gdrcopy"),
            Self::Nvswitch => Some("nvswitch"),
            Self::Imex => Some("imex-channel"),
            Self::Auto | Self::Nvml | Self::Management | Self::Wsl | Self::Csv => None,
        }
    }

    /// Whether it describes NVIDIA's kernel driver.
    pub(super) fn is_of_gpus(self) -> bool {
        matches!(self, Self::Nvml | Self::Management)
    }

    /// What `Auto` means on `host`.
    pub(super) fn on(self, host: &Host, config: &Config) -> Self {
        let exists = |path: &str| host.exists(Path::new(path));
        match self {
            Self::Auto if WSL.into_iter().all(exists) => Self::Wsl,
            Self::Auto if is_tegra(host) && find_root(host, config, None).is_none() => Self::Csv,
            Self::Auto => Self::Nvml,
            mode => mode,
        }
    }
}

fn is_tegra(host: &Host) -> bool {
    let family = || host.read_text(Path::new(TEGRA_FAMILY), 4096).unwrap_or_default();
    host.exists(Path::new(TEGRA_RELEASE)) || family().to_lowercase().starts_with("tegra")
}
