//! The user-space driver: where it is, which version, which of its files a container needs.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::elf::{Class, Machine};
use crate::{Config, Host, Result};

/// A driver found on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// As the host names it: `/`, `/run/nvidia/driver`, …
    pub root: PathBuf,
    pub version: String,
    pub libraries: Vec<Library>,
    /// Binaries, firmware, sockets, configuration.
    pub files: Vec<DriverFile>,
    /// Links that graphics needs beside those of the libraries: `(link, target)` as paths of the
    /// driver root; link directories are those of the libraries that they belong to.
    pub links: Vec<(PathBuf, PathBuf)>,
}

/// A shared library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Library {
    /// In the driver root, links resolved: `/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01`.
    pub path: PathBuf,
    pub soname: Option<String>,
    pub class: Class,
    pub machine: Machine,
    /// Whether the driver root has the bare `.so` beside the SONAME link.
    pub bare_link: bool,
    /// The directory of a container's library directory that it goes to, such as `vdpau`;
    /// empty for most.
    pub subdir: PathBuf,
}

/// What a driver file that is no library is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    Binary,
    Firmware,
    Socket,
    /// X modules: they stay at the host's path.
    Module,
    /// JSON and other data of graphics.
    Data,
}

/// Another file of the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DriverFile {
    pub kind: FileKind,
    /// In the driver root, links resolved.
    pub path: PathBuf,
    /// Where a container gets it.
    pub destination: PathBuf,
}

impl Driver {
    /// Finds the driver whose kernel module has `kernel_version`.
    ///
    /// # Errors
    /// No driver root holds one, or its libcuda is of another version.
    pub fn discover(host: &Host, config: &Config, kernel_version: Option<&str>) -> Result<Self> {
        todo!()
    }

    /// Where a file of the driver root lies, as the host names it.
    pub fn host_path(&self, path: &Path) -> PathBuf {
        todo!()
    }
}
