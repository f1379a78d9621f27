//! Lists of driver capabilities, as `NVIDIA_DRIVER_CAPABILITIES` has them.

use super::environment::{Entry, Environment};
use super::shortened;
use crate::Capabilities;

/// As many unknown names are told: a list may have millions.
const TOLD: usize = 8;

/// Which driver capabilities were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskedCapabilities {
    /// The variable is not there, or names nothing.
    Default,
    /// `all`; also an image from before the variable that does not have it.
    All,
    Listed {
        known: Capabilities,
        /// As they were written; the first few.
        unknown: Vec<String>,
    },
}

impl AskedCapabilities {
    pub(super) fn of(environment: &Environment<'_>) -> Self {
        match environment.driver_capabilities {
            Entry::Set(value) => Self::parse(value),
            Entry::Absent if environment.legacy_image().is_some() => Self::All,
            Entry::Absent | Entry::WithoutValue => Self::Default,
        }
    }

    fn parse(list: &str) -> Self {
        let (mut known, mut unknown) = (Capabilities::NONE, Vec::new());
        for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match Capabilities::named(name) {
                _ if name == "all" => return Self::All,
                Some(capability) => known = known.or(capability),
                None if unknown.len() < TOLD && !unknown.iter().any(|told| told == name) => {
                    unknown.push(shortened(name).into_owned());
                }
                None => {}
            }
        }
        if known.is_empty() && unknown.is_empty() {
            return Self::Default;
        }
        Self::Listed { known, unknown }
    }
}
