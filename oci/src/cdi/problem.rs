//! What is wrong with a spec file, in words for the person who wrote it.

use std::path::PathBuf;

use super::{NameError, Version};

/// Why a spec file, or a device of it, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// With the place in the file.
    #[error("is no CDI spec: {0}")]
    Unparsable(String),
    #[error("is of CDI version {0}; known are those up to {latest}", latest = Version::LATEST)]
    TooNew(String),
    #[error("names {0:?} as its CDI version; known are 0.3.0 to {latest}", latest = Version::LATEST)]
    UnknownVersion(String),
    #[error("is of CDI version {declared} and has {feature}, which needs {needed}")]
    VersionTooLow { declared: String, feature: &'static str, needed: Version },
    #[error("is of CDI version {declared}, which has {feature} no more")]
    Dropped { declared: Version, feature: &'static str },
    #[error("{0}")]
    Name(#[from] NameError),
    #[error("describes no device")]
    NoDevices,
    #[error("describes device {0} twice")]
    Twice(String),
    /// In the edits of what, and what is wrong there.
    #[error("{place}: {fault}")]
    Edits { place: String, fault: String },
    /// Others than root can write to it.
    #[error("{0}")]
    Untrusted(String),
    /// The devices are of no use, as neither file goes before the other.
    #[error(
        "describes {devices} as {other} does, in directories of the same rank",
        devices = devices.join(", "),
        other = other.display()
    )]
    Conflict { devices: Vec<String>, other: PathBuf },
}
