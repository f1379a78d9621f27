//! Effective settings: NVIDIA's `config.toml`, our own table `[nvidia-shim]` in it, the handler's
//! options table, and `--set` of the command line; later ones win, key by key.
//!
//! What the settings mean is here; how they are read is in [`read`], which keys there are in
//! [`key`].

mod key;
mod read;

use std::path::{Path, PathBuf};

pub use key::{KEYS, Key};

use crate::{Capabilities, Handler, Host, Result, trust};

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
    pub driver_capabilities: DriverCapabilities,
    /// `supported-driver-capabilities`: those that may be asked for.
    pub supported_capabilities: Capabilities,
    /// `[nvidia-container-runtime] mode`
    pub mode: String,
    /// `[nvidia-container-runtime] runtimes`: the OCI runtimes behind our own, tried in this order;
    /// a name or a path.
    pub runtimes: Vec<String>,
    /// `[nvidia-shim] requirements`
    pub requirements: Switch,
    /// `[nvidia-shim] load-kmods`, else `[nvidia-container-cli] load-kmods`
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

/// Whether containers get the driver capabilities that they ask for, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverCapabilities {
    /// Honoured for handler `nvidia`, all for `nvidia-cdi` and where `mode` is one of CDI.
    Auto,
    Honour,
    All,
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
    /// The file that the `ConfigPath` option (or `--config`) names; trusted with `host-root`.
    pub path: Option<PathBuf>,
    /// The file to read where `path` is `None`: see [`Config::default_file`].
    pub default_path: Option<PathBuf>,
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
            driver_capabilities: DriverCapabilities::Auto,
            supported_capabilities: Capabilities::ALL,
            mode: "auto".to_owned(),
            runtimes: ["runc", "crun"].map(str::to_owned).to_vec(),
            requirements: Switch("auto".to_owned()),
            load_kmods: true,
        }
    }
}

impl Config {
    /// Reads all sources; a file that does not exist sets nothing. The second value holds warnings
    /// for a person.
    ///
    /// # Errors
    /// [`Code::ConfigUnreadable`](crate::Code::ConfigUnreadable) or, for the options table,
    /// [`Code::OptionsUnreadable`](crate::Code::OptionsUnreadable), with the place of what is
    /// wrong; [`Code::UntrustedPath`](crate::Code::UntrustedPath) if others than root can write
    /// to `host-root`.
    pub fn load(source: &ConfigSource) -> Result<(Self, Vec<String>)> {
        let (config, warnings) = read::load(source)?;
        if config.host_root != Path::new("/") {
            trust::check(&Host::new("/"), &config.host_root, "host-root")?;
        }
        Ok((config, warnings))
    }

    /// Sets `key`, one of [`KEYS`] or NVIDIA's, as `--set KEY=VALUE` does.
    ///
    /// # Errors
    /// What is wrong with key or value, in words for the person who typed them.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        Key::parse(key)?.map_or(Ok(()), |key| self.assign(key, value))
    }

    /// Whether libraries go to the image's own directory.
    pub fn library_at_image(&self, handler: Handler) -> bool {
        match self.library_path {
            LibraryPath::Auto => handler == Handler::Nvidia,
            LibraryPath::Image => true,
            LibraryPath::Host => false,
        }
    }

    /// The file that settings are read from when no option names one. It need not exist. `env`
    /// answers for the environment of this process.
    pub fn default_file(env: impl Fn(&str) -> Option<String>) -> PathBuf {
        let filled = |name| env(name).filter(|value| !value.is_empty());
        if let Some(file) = filled("NVIDIA_CTK_CONFIG_FILE_PATH") {
            return PathBuf::from(file);
        }
        let directory = filled("XDG_CONFIG_HOME").unwrap_or_else(|| "/etc".to_owned());
        Path::new(&directory).join("nvidia-container-runtime/config.toml")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_looked_up_as_nvidia_does() {
        let file = |set: &'static [(&str, &str)]| {
            Config::default_file(|name| {
                set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(file(&[]), Path::new("/etc/nvidia-container-runtime/config.toml"));
        let xdg = ("XDG_CONFIG_HOME", "/x");
        assert_eq!(
            Config::default_file(|name| (name == xdg.0).then(|| xdg.1.to_owned())),
            Path::new("/x/nvidia-container-runtime/config.toml")
        );
        assert_eq!(
            file(&[("XDG_CONFIG_HOME", "/x"), ("NVIDIA_CTK_CONFIG_FILE_PATH", "/f")]),
            Path::new("/f")
        );
    }

    #[test]
    fn a_setting_names_what_it_allows() {
        let mut config = Config::default();
        config.set("library-path", "host").unwrap();
        config.set("nvidia-container-cli.root", "/run/nvidia/driver").unwrap();
        config.set("nvidia-container-runtime.mode", "jit-cdi").unwrap();
        assert_eq!(config.library_path, LibraryPath::Host);
        assert_eq!(config.driver_root.as_deref(), Some(Path::new("/run/nvidia/driver")));
        let error = config.set("library-path", "there").unwrap_err();
        assert!(error.contains("\"auto\", \"image\" or \"host\""), "{error}");
        let error = config.set("driver-root", "run").unwrap_err();
        assert!(error.contains("absolute"), "{error}");
        let error = config.set("colour", "red").unwrap_err();
        assert!(error.contains("library-path"), "{error}");
    }
}
