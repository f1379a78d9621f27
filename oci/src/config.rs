//! NVIDIA's `config.toml`, our own table in it, and the handler's options table.

use std::path::{Path, PathBuf};

use crate::{Handler, Result};

/// Effective settings. Absent keys have NVIDIA's defaults, ours those of the design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `[nvidia-shim] host-root`: the prefix of the host; another than `/` is a simulated node.
    pub host_root: PathBuf,
    /// `[nvidia-shim] driver-root`, else `[nvidia-container-cli] root`; `None`: searched for.
    pub driver_root: Option<PathBuf>,
    /// `[nvidia-shim] dev-root`; `None`: the driver root if it holds `dev/nvidiactl`, else `/`.
    pub dev_root: Option<PathBuf>,
    /// `[nvidia-shim] inner-shim`: the stock `containerd-shim-runc-v2`; `None`: searched for.
    pub inner_shim: Option<PathBuf>,
    /// `[nvidia-shim] library-path`
    pub library_path: LibraryPath,
    /// `[nvidia-shim] no-driver`
    pub no_driver: NoDriver,
    /// `[nvidia-shim] driver-capabilities`
    pub driver_capabilities: Switch,
    /// `[nvidia-shim] requirements`
    pub requirements: Switch,
    /// `[nvidia-container-cli] load-kmods`
    pub load_kmods: bool,
}

/// Where libraries go in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LibraryPath {
    /// `image` for handler `nvidia`, `host` for `nvidia-cdi`.
    Auto,
    /// The image's own library directory, by its loader.
    Image,
    /// The directory that they have in the driver root.
    Host,
}

/// What becomes of a request on a node that has neither driver nor NVIDIA function on PCI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDriver {
    Refuse,
    Start,
}

/// A setting that step 2 gives its meaning: the value is kept as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch(pub String);

/// Where settings are read from, in the order of the design.
#[derive(Clone, Debug, Default)]
pub struct ConfigSource {
    /// The file that the ConfigPath option names.
    pub path: Option<PathBuf>,
    /// The options table of the handler (`ConfigBody`), our keys only, as TOML.
    pub table: Option<String>,
    /// `--set KEY=VALUE` of the command line; they win.
    pub set: Vec<(String, String)>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            host_root: PathBuf::from("/"),
            driver_root: None,
            dev_root: None,
            inner_shim: None,
            library_path: LibraryPath::Auto,
            no_driver: NoDriver::Refuse,
            driver_capabilities: Switch("auto".to_owned()),
            requirements: Switch("auto".to_owned()),
            load_kmods: true,
        }
    }
}

impl Config {
    /// Reads all sources; the file is looked up as the design says when none is named. The second
    /// value holds warnings for a person.
    pub fn load(source: &ConfigSource) -> Result<(Self, Vec<String>)> {
        todo!()
    }

    /// Whether libraries go to the image's own directory.
    pub fn library_at_image(&self, handler: Handler) -> bool {
        match self.library_path {
            LibraryPath::Auto => handler == Handler::Nvidia,
            LibraryPath::Image => true,
            LibraryPath::Host => false,
        }
    }

    /// The file that settings are read from when no option names one, if it is there.
    pub fn default_file(env: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
        let _ = Path::new("/");
        todo!()
    }
}
