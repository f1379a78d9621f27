//! Effective settings: NVIDIA's `config.toml`, our own table `[nvidia-shim]` in it, the handler's
//! options table, and `--set` of the command line; later ones win, key by key.
//!
//! What the settings mean is here; how they are read is in [`read`], which keys there are in
//! [`key`], what they hold and where that came from in [`settings`].

mod key;
mod nvcdi;
mod read;
mod settings;
mod value;

use std::path::{Path, PathBuf};

pub use key::{KEYS, Key};
pub use nvcdi::{DisabledHooks, NvcdiHook};
pub use settings::{Origin, Setting, Settings};
pub use value::Value;

use crate::{Capabilities, Handler, Host, Result, trust};

/// NVIDIA's, and the directory that the second one is a link to where it is one.
const SPEC_DIRS: [&str; 3] = ["/etc/cdi", "/var/run/cdi", "/run/cdi"];
/// The specification's, and that of NVIDIA's operator before 25.10 and of its NRI plugin.
pub(crate) const ANNOTATION_PREFIXES: [&str; 2] = ["cdi.k8s.io/", "nvidia.cdi.k8s.io/"];

/// What the settings mean. Absent keys have NVIDIA's defaults, ours those of the design.
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
    /// `[nvidia-shim] requirements`
    pub requirements: Requirements,
    /// `disable-require`
    pub disable_require: bool,
    /// `[nvidia-shim] load-kmods`, else `[nvidia-container-cli] load-kmods`
    pub load_kmods: bool,
    /// `[nvidia-container-runtime] mode`
    pub mode: Mode,
    /// `[nvidia-container-runtime] runtimes`: the OCI runtimes behind our own, tried in this order;
    /// a name or a path.
    pub runtimes: Vec<String>,
    /// `[nvidia-container-runtime] debug`: the file that our OCI runtime writes its log to.
    pub debug_log: Option<PathBuf>,
    /// `[nvidia-container-runtime] log-level`: of that file.
    pub log_level: LogLevel,
    /// `[nvidia-shim] policy`
    pub policy: Policy,
    /// `[nvidia-shim] mask-params`
    pub mask_params: MaskParams,
    /// `[nvidia-shim] on-denied`
    pub on_denied: OnDenied,
    /// `[nvidia-shim] management-namespaces`: where containers may have the kinds of devices that
    /// manage GPUs.
    pub management_namespaces: Vec<String>,
    /// `swarm-resource`: variables that stand for `NVIDIA_VISIBLE_DEVICES` where they are set.
    pub swarm_resource: Vec<String>,
    /// `accept-nvidia-visible-devices-envvar-when-unprivileged`
    pub accept_envvar_when_unprivileged: bool,
    /// `accept-nvidia-visible-devices-as-volume-mounts`
    pub accept_volume_mounts: bool,
    /// `[features] ignore-imex-channel-requests`
    pub ignore_imex_channels: bool,
    /// Not `[features] disable-imex-channel-creation`: channels are made for who may make them.
    pub make_imex_channels: bool,
    /// `[nvidia-container-runtime.modes.cdi] spec-dirs`: where CDI specs are; a later one goes before
    /// an earlier one.
    pub cdi_spec_dirs: Vec<PathBuf>,
    /// `[nvidia-container-runtime.modes.cdi] default-kind`: of names that say none.
    pub cdi_default_kind: String,
    /// `[nvidia-container-runtime.modes.cdi] annotation-prefixes`: of keys whose values are CDI names.
    pub cdi_annotation_prefixes: Vec<String>,
    /// `[nvidia-shim] stale-spec`
    pub stale_spec: StaleSpec,
    /// `[nvidia-shim] just-in-time`: whether names of `nvidia.com` that no CDI spec describes are
    /// served from what is there.
    pub just_in_time: bool,
    /// Not `[features] no-additional-gids-for-device-nodes`: processes join the groups of nodes.
    pub additional_gids: bool,
    /// `[nvidia-container-runtime.modes.jit-cdi] nvcdi-disable-hooks`
    pub disabled_hooks: DisabledHooks,
    /// Not its flag `disable-ipc-discoverer`: sockets of the driver's daemons are given.
    pub sockets: bool,
    /// No key of a file: directories of the host where data files of graphics are looked for; none:
    /// the usual ones of the driver root.
    pub data_dirs: Vec<PathBuf>,
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

/// Whether containers get the driver capabilities that they ask for, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverCapabilities {
    /// Honoured for handler `nvidia`, all for `nvidia-cdi` and where `mode` is one of CDI.
    Auto,
    Honour,
    All,
}

/// What becomes of `NVIDIA_REQUIRE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirements {
    /// [`Self::Off`] where NVIDIA does not look at them, else [`Self::Enforce`].
    Auto,
    /// What is not met is refused.
    Enforce,
    /// What is not met is warned of.
    Warn,
    Off,
}

/// NVIDIA's `mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Auto,
    Legacy,
    Csv,
    Cdi,
    JitCdi,
}

/// Whether `ModifyDeviceFiles` of `/proc/driver/nvidia/params` is masked in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskParams {
    /// Where the container could make nodes of GPUs that it was not given.
    Auto,
    Always,
    Never,
}

/// What a log file holds, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Error,
    Warning,
    Info,
    Debug,
}

impl LogLevel {
    /// The words of logrus, with which NVIDIA reads it.
    fn parse(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "panic" | "fatal" | "error" => Self::Error,
            "warn" | "warning" => Self::Warning,
            "info" => Self::Info,
            "debug" | "trace" => Self::Debug,
            _ => return None,
        })
    }
}

/// Whose word counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// As NVIDIA's `accept-…` keys say.
    Open,
    /// Volume mounts do; the environment only of privileged containers.
    Strict,
}

/// What becomes of a container that asks by means that do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDenied {
    /// It starts without GPU, and a warning is logged.
    Ignore,
    /// It is refused.
    Fail,
}

/// What becomes of a device whose CDI spec is not of the driver that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleSpec {
    /// It is served from what is there, with a warning.
    Heal,
    /// The container is refused.
    Fail,
}

/// Where settings are read from, in the order of the design.
#[derive(Clone, Debug, Default)]
pub struct ConfigSource {
    /// The file that the `ConfigPath` option (or `--config`) names; trusted with `host-root`.
    pub path: Option<PathBuf>,
    /// The file to read where `path` is `None`: see [`Config::default_file`].
    pub default_path: Option<PathBuf>,
    /// The options table of the handler (`ConfigBody`), our keys only, as TOML.
    pub table: Option<String>,
    /// The file that the table is of; `None`: containerd's own configuration.
    pub table_file: Option<PathBuf>,
    /// `--set KEY=VALUE` of the command line; they win.
    pub set: Vec<(String, String)>,
}

impl ConfigSource {
    /// Prefixes that `annotation-prefixes` may have: those that it has, and others.
    pub(crate) fn prefix_candidates(&self) -> Vec<String> {
        self.candidates("nvidia-container-runtime.modes.cdi.annotation-prefixes")
    }

    fn file(&self) -> Option<&Path> {
        self.path.as_deref().or(self.default_path.as_deref())
    }

    /// Names that `swarm-resource` may have: those that it has, and others.
    pub(crate) fn swarm_candidates(&self) -> Vec<String> {
        self.candidates("swarm-resource")
    }

    /// Names that the list of a key may have: those that it has, and others.
    fn candidates(&self, key: &str) -> Vec<String> {
        let set = self.set.iter().filter(|(name, _)| name == key);
        let mut names: Vec<_> = set
            .flat_map(|(_, value)| value.split(',').map(|name| name.trim().to_owned()))
            .collect();
        let word = key.rsplit('.').next().unwrap_or(key);
        names.extend(self.file().map(|file| read::words_after(word, file)).unwrap_or_default());
        names
    }
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
            requirements: Requirements::Auto,
            disable_require: false,
            load_kmods: true,
            mode: Mode::Auto,
            runtimes: ["runc", "crun"].map(str::to_owned).to_vec(),
            debug_log: None,
            log_level: LogLevel::Info,
            policy: Policy::Open,
            mask_params: MaskParams::Auto,
            on_denied: OnDenied::Ignore,
            management_namespaces: Vec::new(),
            swarm_resource: Vec::new(),
            accept_envvar_when_unprivileged: true,
            accept_volume_mounts: false,
            ignore_imex_channels: false,
            make_imex_channels: true,
            cdi_spec_dirs: SPEC_DIRS.map(PathBuf::from).to_vec(),
            cdi_default_kind: "nvidia.com/gpu".to_owned(),
            cdi_annotation_prefixes: ANNOTATION_PREFIXES.map(str::to_owned).to_vec(),
            stale_spec: StaleSpec::Heal,
            just_in_time: true,
            additional_gids: true,
            disabled_hooks: DisabledHooks::default(),
            sockets: true,
            data_dirs: Vec::new(),
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
        let (settings, warnings) = Settings::load(source)?;
        let config = Self::of(&settings);
        if config.host_root != Path::new("/") {
            trust::check(&Host::new("/"), &config.host_root, "host-root")?;
        }
        Ok((config, warnings))
    }

    /// What `settings` mean.
    pub fn of(settings: &Settings) -> Self {
        let mut config = Self::default();
        for (key, value) in settings.set_values() {
            (key.set)(&mut config, value);
        }
        config
    }

    /// Sets one of [`KEYS`], as `--set KEY=VALUE` does.
    ///
    /// # Errors
    /// What is wrong with key or value, in words for the person who typed them.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let (key, value) = typed(key, value)?;
        (key.set)(self, &value);
        Ok(())
    }

    /// Of what is done by itself, leaves out what takes a hook: containers of a shim do without.
    pub fn do_without_hooks(&mut self) {
        if self.mask_params == MaskParams::Auto {
            self.mask_params = MaskParams::Never;
        }
    }

    /// Whether libraries go to the image's own directory.
    pub fn library_at_image(&self, handler: Handler) -> bool {
        match self.library_path {
            LibraryPath::Auto => handler == Handler::Nvidia,
            LibraryPath::Image => true,
            LibraryPath::Host => false,
        }
    }

    /// What becomes of `NVIDIA_REQUIRE_*`; never `Auto`.
    pub fn requirements(&self, handler: Handler) -> Requirements {
        match self.requirements {
            _ if self.disable_require => Requirements::Off,
            Requirements::Auto if self.is_cdi(handler) => Requirements::Off,
            Requirements::Auto => Requirements::Enforce,
            set => set,
        }
    }

    /// Whether the contract is that of CDI, where NVIDIA knows neither capabilities nor
    /// requirements.
    pub(crate) fn is_cdi(&self, handler: Handler) -> bool {
        handler == Handler::NvidiaCdi || matches!(self.mode, Mode::Cdi | Mode::JitCdi)
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

/// A key and its value as they are typed on a command line.
fn typed(name: &str, value: &str) -> Result<(&'static Key, Value), String> {
    let key = Key::typed(name).ok_or_else(|| {
        let ours: Vec<_> = KEYS.iter().filter_map(Key::our_name).collect();
        let nearest = Key::nearest(name);
        format!(
            "there is no setting {name:?}; like it is {nearest}, and ours are {}",
            ours.join(", ")
        )
    })?;
    Ok((key, key.kind.parse(value)?))
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
        let error = config.set("nvidia-container-runtime.mode", "JIT-CDI").unwrap_err();
        assert!(error.contains("\"jit-cdi\""), "{error}");
        let error = config.set("driver-root", "run").unwrap_err();
        assert!(error.contains("absolute"), "{error}");
        let error = config.set("colour", "red").unwrap_err();
        assert!(error.contains("library-path"), "{error}");
    }

    #[test]
    fn where_nvidia_does_not_look_neither_do_we() {
        for (handler, mode, looks) in [
            (Handler::Nvidia, Mode::Auto, true),
            (Handler::Nvidia, Mode::Legacy, true),
            (Handler::Nvidia, Mode::JitCdi, false),
            (Handler::Nvidia, Mode::Cdi, false),
            (Handler::NvidiaCdi, Mode::Auto, false),
        ] {
            let mut config = Config { mode, ..Config::default() };
            assert_eq!(config.honours_capabilities(handler), looks);
            assert_eq!(config.requirements(handler) == Requirements::Enforce, looks);
            config.set("requirements", "warn").unwrap();
            config.set("driver-capabilities", "honour").unwrap();
            assert!(config.honours_capabilities(handler));
            assert_eq!(config.requirements(handler), Requirements::Warn);
            config.set("disable-require", "true").unwrap();
            assert_eq!(config.requirements(handler), Requirements::Off);
        }
    }
}
