//! The user-space driver: where it is, which version, which of its files a container needs.
//!
//! Files are found by NVIDIA's own names in the directories where distributions put them; of
//! anything else nothing is looked at. Root directories are in `root`, libraries in `libraries`,
//! the rest in `files` and `graphics`, and what each is for in
//! `capabilities`.

mod capabilities;
mod files;
mod graphics;
mod libraries;
mod root;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde::Serialize;

pub(crate) use self::capabilities::{MANDATORY, is_library, of_control_node};
pub(crate) use self::root::find_root;
use crate::elf::{Class, Machine};
use crate::host::below;
use crate::{Capabilities, Code, Config, Error, Host, Result};

/// A driver found on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// As the host names it: `/`, `/run/nvidia/driver`, …
    pub root: PathBuf,
    pub version: String,
    pub libraries: Vec<Library>,
    /// Binaries, firmware, sockets, configuration.
    pub files: Vec<DriverFile>,
    /// Links beside X modules: `(link, target)`, the link where the driver root has the module.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Files that were left out, as the host names them, and why.
    pub left_out: Vec<(PathBuf, String)>,
}

/// A shared library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Library {
    /// In the driver root, links resolved: `/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01`.
    pub path: PathBuf,
    pub soname: Option<String>,
    pub class: Class,
    pub machine: Machine,
    /// The directory of a container's library directory that it goes to, such as `vdpau`;
    /// empty for most.
    pub subdir: PathBuf,
    /// The links that go with it, `(link, target)`, the link below the library's directory:
    /// its SONAME, the bare `.so` where it has one, and what graphics loads it by
    /// (`gbm/nvidia-drm_gbm.so`).
    pub links: Vec<(PathBuf, PathBuf)>,
}

/// What a driver file that is no library is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    Binary,
    Firmware,
    /// A socket of a daemon, or the directory of sockets of the MPS daemon: mounted writable.
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
    /// As the host names it.
    pub source: PathBuf,
    /// Where a container gets it.
    pub destination: PathBuf,
}

impl Driver {
    /// Finds the driver whose kernel module has `kernel_version`, or, where the module is not
    /// loaded, the first that is there.
    ///
    /// # Errors
    /// No driver root holds one, or only of other versions.
    pub fn discover(host: &Host, config: &Config, kernel_version: Option<&str>) -> Result<Self> {
        let root = find_root(host, config, kernel_version).ok_or_else(|| missing(config))?;
        let tree = host.below(&root);
        let mut left_out = Vec::new();
        let dirs = libraries::Dirs::read(&tree, kernel_version, &mut left_out);
        let found = dirs.version(kernel_version).ok_or_else(|| missing(config))?;
        let version = match kernel_version {
            Some(kernel) if kernel != found => {
                return Err(Error::new(
                    Code::DriverMismatch,
                    format!(
                        "the loaded kernel module is {kernel}, but the driver libraries in {} \
                         are {found}",
                        root.display()
                    ),
                ));
            }
            _ => found.to_owned(),
        };
        let libraries = dirs.libraries(&tree, &version, &mut left_out);

        let place = files::Place { host, tree: &tree, root: &root };
        let library_dirs = dirs.of_version(&version);
        let (mut modules, links) = graphics::modules(&place, &library_dirs, &version);
        let mut files = files::binaries(&place, &library_dirs, &mut left_out);
        files.extend(files::firmware(&place, &version));
        files.extend(files::sockets(&place));
        files.extend(graphics::data(&place, &config.data_dirs, &library_dirs, &mut left_out));
        files.append(&mut modules);
        for (path, _) in &mut left_out {
            *path = below(&root, path);
        }
        Ok(Self { root, version, libraries, files, links, left_out })
    }

    /// Without what only a desktop has use for: data and modules of graphics, and the libraries and
    /// links that they lead to. NVIDIA's specs for who manages GPUs are so.
    pub(crate) fn without_desktop(mut self) -> Self {
        self.files.retain(|file| {
            file.kind != FileKind::Data && file.capabilities() != Capabilities::GRAPHICS
        });
        self.links.clear();
        self.libraries.retain(|library| !library.is_platform());
        for library in &mut self.libraries {
            library.leave_out_graphics_links();
        }
        self
    }

    /// Where a file of the driver root lies, as the host names it.
    pub fn host_path(&self, path: &Path) -> PathBuf {
        below(&self.root, path)
    }
}

/// Whether `text` is a driver version: numbers with points between them, such as `550.163.01`.
pub(crate) fn is_version(text: &str) -> bool {
    text.contains('.')
        && text
            .split('.')
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

fn missing(config: &Config) -> Error {
    let what = match &config.driver_root {
        Some(root) => format!("no NVIDIA driver libraries in driver-root {}", root.display()),
        None => format!("no NVIDIA driver libraries in {}", root::candidates_text()),
    };
    Error::new(Code::NoDriverFiles, what)
}
