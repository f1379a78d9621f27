//! What passes between relay and worker, as JSON.

use std::path::PathBuf;

use nvidia_hook::RootfsMount;
use serde::{Deserialize, Serialize};

/// One Create.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The container's id.
    pub(crate) id: String,
    /// Name of the handler, `nvidia` or `nvidia-cdi`.
    pub(crate) handler: String,
    pub(crate) bundle: PathBuf,
    pub(crate) rootfs: Vec<Mount>,
    /// The file that the option `ConfigPath` names.
    pub(crate) config: Option<PathBuf>,
    /// The file to read where there is none: the worker has no environment to find it by.
    pub(crate) default_config: Option<PathBuf>,
    /// Our own keys of the handler's options table, as TOML.
    pub(crate) table: Option<String>,
    /// The file that they stand in, if it is not the options table itself.
    pub(crate) table_file: Option<PathBuf>,
    /// Settings that the name of the program stands for.
    pub(crate) set: Vec<(String, String)>,
    /// Whether the caller becomes runc, and so can do nothing to a container that exists.
    #[serde(default)]
    pub(crate) before_runc: bool,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// It asked for nothing after all, or for nothing that counts.
    Untouched {
        /// For a person, in the log.
        warnings: Vec<String>,
    },
    /// The bundle is edited.
    Edited {
        /// How the root filesystem is to be mounted now.
        rootfs: Vec<Mount>,
        /// For a person, in the log.
        warnings: Vec<String>,
        /// The decision in one line.
        summary: String,
    },
    /// The bundle is as it was.
    Refused { message: String },
}

/// A mount of the root filesystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mount {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) source: String,
    pub(crate) target: String,
    pub(crate) options: Vec<String>,
}

impl From<RootfsMount> for Mount {
    fn from(RootfsMount { kind, source, target, options }: RootfsMount) -> Self {
        Self { kind, source, target, options }
    }
}

impl From<Mount> for RootfsMount {
    fn from(Mount { kind, source, target, options }: Mount) -> Self {
        Self { kind, source, target, options }
    }
}
