//! The keys of our settings, the values that they take, and the few of NVIDIA's that mean one of
//! them.

use std::path::PathBuf;

use super::{Config, DriverCapabilities, LibraryPath, NoDriver, Switch};
use crate::Capabilities;

/// Our keys, as they are written in `[nvidia-shim]`, in the handler's options table and after
/// `--set`. Case and dashes do not matter, so that `HostRoot` does as well in an options table.
pub const KEYS: &[&str] = &[
    "host-root",
    "driver-root",
    "dev-root",
    "inner-shim",
    "library-path",
    "no-driver",
    "driver-capabilities",
    "requirements",
    "load-kmods",
];

/// One of our settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    HostRoot,
    DriverRoot,
    DevRoot,
    InnerShim,
    LibraryPath,
    NoDriver,
    DriverCapabilities,
    Requirements,
    LoadKmods,
    /// NVIDIA's `supported-driver-capabilities`.
    SupportedCapabilities,
    /// NVIDIA's `nvidia-container-runtime.mode`.
    Mode,
}

/// Tables and keys of NVIDIA's `config.toml`; those without a meaning here may stand there.
const NVIDIA_TABLES: &[&str] = &[
    "nvidia-container-cli",
    "nvidia-container-runtime",
    "nvidia-container-runtime-hook",
    "nvidia-ctk",
    "features",
];
const NVIDIA_KEYS: &[&str] = &[
    "disable-require",
    "swarm-resource",
    "accept-nvidia-visible-devices-envvar-when-unprivileged",
    "accept-nvidia-visible-devices-as-volume-mounts",
];

impl Key {
    /// One of [`KEYS`], by its name alone.
    pub fn ours(name: &str) -> Option<Self> {
        let plain = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
        let known = KEYS.iter().find(|key| plain(key) == plain(name))?;
        Some(match *known {
            "host-root" => Self::HostRoot,
            "driver-root" => Self::DriverRoot,
            "dev-root" => Self::DevRoot,
            "inner-shim" => Self::InnerShim,
            "library-path" => Self::LibraryPath,
            "no-driver" => Self::NoDriver,
            "driver-capabilities" => Self::DriverCapabilities,
            "requirements" => Self::Requirements,
            _ => Self::LoadKmods,
        })
    }

    /// A key as it is typed after `--set`: ours, with or without its table, or NVIDIA's, dotted.
    /// `None`: a key of NVIDIA's that means nothing here.
    pub(super) fn parse(name: &str) -> Result<Option<Self>, String> {
        if let Some(key) = Self::ours(name.strip_prefix("nvidia-shim.").unwrap_or(name)) {
            return Ok(Some(key));
        }
        match name {
            "nvidia-container-cli.root" => return Ok(Some(Self::DriverRoot)),
            "supported-driver-capabilities" => return Ok(Some(Self::SupportedCapabilities)),
            "nvidia-container-runtime.mode" => return Ok(Some(Self::Mode)),
            "nvidia-container-cli.load-kmods" => return Ok(Some(Self::LoadKmods)),
            _ => {}
        }
        let table = name.split_once('.').map(|(table, _)| table);
        if NVIDIA_KEYS.contains(&name) || table.is_some_and(|table| NVIDIA_TABLES.contains(&table))
        {
            return Ok(None);
        }
        Err(format!("there is no setting {name:?}; there are {}", KEYS.join(", ")))
    }
}

impl Config {
    pub(super) fn assign(&mut self, key: Key, value: &str) -> Result<(), String> {
        match key {
            Key::HostRoot => self.host_root = path(value)?,
            Key::DriverRoot => self.driver_root = Some(path(value)?),
            Key::DevRoot => self.dev_root = Some(path(value)?),
            Key::InnerShim => self.inner_shim = Some(path(value)?),
            Key::LibraryPath => {
                self.library_path = one_of(
                    value,
                    &[
                        ("auto", LibraryPath::Auto),
                        ("image", LibraryPath::Image),
                        ("host", LibraryPath::Host),
                    ],
                )?;
            }
            Key::NoDriver => {
                let choices = [("refuse", NoDriver::Refuse), ("start", NoDriver::Start)];
                self.no_driver = one_of(value, &choices)?;
            }
            Key::DriverCapabilities => {
                self.driver_capabilities = one_of(
                    value,
                    &[
                        ("auto", DriverCapabilities::Auto),
                        ("honour", DriverCapabilities::Honour),
                        ("all", DriverCapabilities::All),
                    ],
                )?;
            }
            Key::SupportedCapabilities => self.supported_capabilities = capabilities(value)?,
            Key::Mode => value.clone_into(&mut self.mode),
            Key::Requirements => {
                let choices = ["auto", "enforce", "warn", "off"].map(|word| (word, word));
                self.requirements = Switch(one_of(value, &choices)?.to_owned());
            }
            Key::LoadKmods => {
                self.load_kmods = one_of(value, &[("true", true), ("false", false)])?;
            }
        }
        Ok(())
    }
}

/// A comma separated list; NVIDIA's default file has all of them.
fn capabilities(value: &str) -> Result<Capabilities, String> {
    let mut names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.try_fold(Capabilities::NONE, |set, name| match Capabilities::named(name) {
        _ if name == "all" => Ok(Capabilities::ALL),
        Some(capability) => Ok(set.or(capability)),
        None => Err(format!("{name:?} is none of {}, all", Capabilities::known_names())),
    })
}

fn path(value: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(value);
    if path.is_absolute() { Ok(path) } else { Err(format!("{value:?} is not an absolute path")) }
}

fn one_of<T: Copy>(value: &str, choices: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, meant)) = choices.iter().find(|(word, _)| *word == value) {
        return Ok(*meant);
    }
    let words: Vec<String> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
    let (last, others) = words.split_last().map_or(("", &[][..]), |(last, rest)| (last, rest));
    Err(format!("{value:?} is not one of {} or {last}", others.join(", ")))
}
