//! A simulated GPU node for tests.

use std::path::{Path, PathBuf};

/// A directory that looks to the shim like a host with GPUs.
pub struct Node {
    dir: tempfile::TempDir,
}

impl Node {
    /// The file that handlers name by their `ConfigPath` option.
    pub fn config(&self) -> PathBuf {
        self.dir.path().join("config.toml")
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }
}
