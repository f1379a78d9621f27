//! A spec of what is there: the same devices, files and links that a container gets just in time,
//! written down for whoever reads CDI specs. Deciding only; nothing is written here.
//!
//! Names of modes, devices and hooks are those of NVIDIA's generator, `nvidia-ctk cdi generate`. One
//! module describes each kind of devices; here their edits become a spec.

mod csv;
mod functions;
mod gpus;
mod hooks;
mod mode;
mod part;
mod wsl;

use std::path::PathBuf;

pub use self::csv::{CsvFiles, FILES as CSV_FILES};
pub use self::hooks::{GeneratedHook, Hooks};
pub use self::mode::GenerateMode;
use self::part::Part;
use super::{Device, Spec, check_device_name, check_kind};
use crate::plan::Parts;
use crate::request::VISIBLE_DEVICES;
use crate::{Code, Config, Error, Host, MissingNode, Need, Result};

/// The name of a device that is all others.
const ALL: &str = "all";

/// What a spec is to be made of.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub mode: GenerateMode,
    /// `vendor/class`
    pub kind: String,
    /// How devices are called, in each of these ways.
    pub names: Vec<NameStrategy>,
    /// Which devices are described; none: all.
    pub devices: Vec<String>,
    /// Whether there is a device `all`, too.
    pub all: bool,
    pub hooks: Hooks,
    pub csv: CsvFiles,
    /// Where libraries of a CSV file are looked for, if not where it says; as the host names them.
    pub library_dirs: Vec<PathBuf>,
}

/// How a GPU is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameStrategy {
    /// `0`
    Index,
    /// `GPU-…`
    Uuid,
    /// `gpu0`
    TypeIndex,
}

/// A spec, and what is to be said of it.
#[derive(Clone, Debug)]
pub struct Generated {
    pub spec: Spec,
    pub warnings: Vec<String>,
}

/// What is described, before it is a spec.
#[derive(Debug, Default)]
struct Draft {
    /// For every container with one of the devices.
    common: Part,
    devices: Vec<Described>,
    warnings: Vec<String>,
}

/// A device.
#[derive(Debug)]
struct Described {
    names: Vec<String>,
    part: Part,
}

impl Recipe {
    /// Describes the devices of `host`. Of `config` counts where driver and device nodes are, and
    /// what of the driver is given.
    ///
    /// # Errors
    /// There is nothing to describe, or something is missing that the devices are nothing without.
    pub fn generate(&self, host: &Host, config: &Config) -> Result<Generated> {
        check_kind(&self.kind).map_err(|error| {
            Error::caused(Code::InvalidRequest, format!("kind {}", self.kind), error)
        })?;
        let draft = match self.mode.on(host, config) {
            GenerateMode::Management => gpus::management(host, config)?,
            GenerateMode::Csv => csv::describe(self, host, config)?,
            GenerateMode::Wsl => wsl::describe(host, config)?,
            mode => match mode.function() {
                Some(class) => functions::describe(class, &self.devices, host, config)?,
                None => gpus::describe(self, host, config)?,
            },
        };
        self.finish(draft)
    }

    /// What the host must do before GPUs and the driver can be described whole; it is not needed for
    /// other devices.
    ///
    /// # Errors
    /// The kernel driver cannot be read.
    pub fn needs(&self, host: &Host, config: &Config) -> Result<Vec<Need>> {
        if !self.mode.on(host, config).is_of_gpus() {
            return Ok(Vec::new());
        }
        let uuids = self.names.contains(&NameStrategy::Uuid);
        Ok(Parts::read(host, config)?.needs(uuids))
    }

    /// Device nodes of GPUs and the driver that are to be made, once [`Self::needs`] are met.
    ///
    /// # Errors
    /// One is mandatory, and the driver lets none be made.
    pub fn missing_nodes(&self, host: &Host, config: &Config) -> Result<Vec<MissingNode>> {
        match self.mode.on(host, config).is_of_gpus() {
            true => Parts::read(host, config)?.missing_nodes(),
            false => Ok(Vec::new()),
        }
    }

    fn finish(&self, draft: Draft) -> Result<Generated> {
        let Draft { mut common, devices, warnings } = draft;
        common.env.push(format!("{VISIBLE_DEVICES}=void"));
        let mut parts: Vec<(String, Part)> = Vec::new();
        let mut all = Part::default();
        for Described { names, part } in devices {
            all.merge(&part);
            parts.extend(names.into_iter().map(|name| (name, part.clone())));
        }
        let is_none = |(name, _): &(String, Part)| name == gpus::NONE;
        if self.all && !parts.iter().any(|it| it.0 == ALL || is_none(it)) && !parts.is_empty() {
            parts.push((ALL.to_owned(), all));
        }
        parts.sort_by(|one, other| one.0.cmp(&other.0));
        let devices = parts.into_iter().map(|(name, part)| {
            let edits = part.edits(&self.hooks);
            Device { name, edits, ..Device::default() }
        });
        let mut spec = Spec {
            kind: self.kind.clone(),
            devices: devices.collect(),
            edits: common.edits(&self.hooks),
            ..Spec::default()
        };
        spec.version = spec.lowest_version().to_string();
        for Device { name, .. } in &spec.devices {
            check_device_name(name)
                .map_err(|error| Error::caused(Code::InvalidRequest, "a device name", error))?;
        }
        Ok(Generated { spec, warnings })
    }
}

impl NameStrategy {
    /// As NVIDIA's flag `--device-name-strategy` has it.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "index" => Some(Self::Index),
            "uuid" => Some(Self::Uuid),
            "type-index" => Some(Self::TypeIndex),
            _ => None,
        }
    }
}
