//! The value of each key, and where it came from.

use std::collections::BTreeMap;
use std::fmt;

use super::key::{KEYS, Key};
use super::value::Value;
use super::{ConfigSource, read};
use crate::Result;

/// The settings as they were written. See [`super::Config`] for what they mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<&'static str, (Value, Origin)>);

/// A key with its effective value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// With its tables: `nvidia-container-runtime.mode`.
    pub name: &'static str,
    /// `None`: not set, and without default.
    pub value: Option<Value>,
    pub origin: Origin,
}

/// Who has set a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    /// A file or the options table, and the line.
    Text(String),
    /// `--set`
    CommandLine,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Text(place) => f.write_str(place),
            Self::CommandLine => f.write_str("--set"),
        }
    }
}

impl Settings {
    /// Reads all sources; a file that does not exist sets nothing. The second value holds warnings
    /// for a person.
    ///
    /// # Errors
    /// As [`super::Config::load`]; `host-root` is not looked at.
    pub fn load(source: &ConfigSource) -> Result<(Self, Vec<String>)> {
        read::load(source)
    }

    /// Every key in the order of [`KEYS`].
    pub fn all(&self) -> impl Iterator<Item = Setting> {
        KEYS.iter().map(|key| {
            let (value, origin) = match self.0.get(key.name) {
                Some((value, origin)) => (Some(value.clone()), origin.clone()),
                None => (key.kind.default(), Origin::Default),
            };
            Setting { name: key.name, value, origin }
        })
    }

    /// What was set, in the order of [`KEYS`].
    pub(super) fn set_values(&self) -> impl Iterator<Item = (&'static Key, &Value)> {
        KEYS.iter().filter_map(|key| Some((key, &self.0.get(key.name)?.0)))
    }

    pub(super) fn set(&mut self, key: &'static Key, value: Value, origin: Origin) {
        self.0.insert(key.name, (value, origin));
    }

    /// `None`: not set.
    pub(super) fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name).map(|(value, _)| value)
    }

    pub(super) fn origin(&self, name: &str) -> &Origin {
        self.0.get(name).map_or(&Origin::Default, |(_, origin)| origin)
    }
}
