//! Which directory is the driver root, and in which directories of it libraries may be.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::is_version;
use crate::elf::{Class, Machine};
use crate::ldcache::{Cache, MAX_SIZE};
use crate::{Config, Host};

/// Where a driver is looked for: the GPU operator's driver container, the host itself, the tree
/// with a C library of its own that Talos had up to its 1.9 extensions, and what the installers of
/// GKE and of Flatcar (before its system extensions) fill. An empty directory, as the operator
/// makes before its driver is there, is passed over.
const ROOTS: [&str; 5] = [
    "/run/nvidia/driver",
    "/",
    "/usr/local/glibc",
    "/home/kubernetes/bin/nvidia",
    "/opt/nvidia/current",
];

/// Directories of libraries, 64-bit ones first.
const LIBRARY_DIRS: [&str; 17] = [
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    // Talos
    "/usr/local/lib",
    // NixOS
    "/run/opengl-driver/lib",
    // A driver root that is nothing but the libraries.
    "/",
    "/usr/lib",
    "/usr/lib32",
    "/run/opengl-driver-32/lib",
    "/usr/lib/i386-linux-gnu",
    "/usr/lib/arm-linux-gnueabihf",
    "/lib",
    "/lib32",
    "/lib/i386-linux-gnu",
];

/// Debian's alternatives, `nvidia/current`, `nvidia/tesla-535` or `nvidia/legacy-390xx` in its
/// multiarch directories.
const ALTERNATIVES: [&str; 3] = ["current", "tesla", "legacy"];

/// What tells a driver.
const LIBRARIES: [&str; 2] = ["libcuda.so.", "libnvidia-ml.so."];

/// The names of the roots, for a person.
pub(super) fn candidates_text() -> String {
    ROOTS.join(", ")
}

/// The driver root, as the host names it: that which is configured, else the first that holds
/// the driver of `version`, else the first that holds any.
pub(crate) fn find_root(host: &Host, config: &Config, version: Option<&str>) -> Option<PathBuf> {
    if let Some(root) = &config.driver_root {
        return Some(root.clone());
    }
    let found = |holds: &dyn Fn(&Host) -> bool| {
        ROOTS.iter().find(|root| holds(&host.below(Path::new(root)))).map(PathBuf::from)
    };
    version
        .and_then(|version| found(&|tree| holds_version(tree, version)))
        .or_else(|| found(&holds_any))
}

/// Looks for the files themselves: this is done for every container.
fn holds_version(tree: &Host, version: &str) -> bool {
    let names = LIBRARIES.map(|library| PathBuf::from(format!("{library}{version}")));
    let in_any = |dirs: Vec<PathBuf>| {
        dirs.iter().any(|dir| names.iter().any(|name| tree.exists(&dir.join(name))))
    };
    in_any(search_dirs(tree)) || cached_dirs(tree).is_ok_and(in_any)
}

fn holds_any(tree: &Host) -> bool {
    let is_driver = |name: &OsString| {
        name.to_str().is_some_and(|name| {
            LIBRARIES.iter().any(|library| name.strip_prefix(library).is_some_and(is_version))
        })
    };
    let mut dirs = search_dirs(tree);
    dirs.extend(cached_dirs(tree).unwrap_or_default());
    dirs.iter().any(|dir| tree.read_dir(dir).unwrap_or_default().iter().any(is_driver))
}

/// Those directories of libraries that are there, links resolved, each once.
pub(super) fn search_dirs(tree: &Host) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = Vec::new();
    let mut add = |path: PathBuf| {
        if let Ok(dir) = tree.resolve(&path)
            && !dirs.contains(&dir)
        {
            dirs.push(dir);
        }
    };
    for dir in LIBRARY_DIRS {
        add(PathBuf::from(dir));
        if !dir.contains("-linux-gnu") {
            continue;
        }
        let alternatives = Path::new(dir).join("nvidia");
        for name in tree.read_dir(&alternatives).unwrap_or_default() {
            let known = ALTERNATIVES
                .iter()
                .any(|known| name.to_str().is_some_and(|name| name.starts_with(known)));
            if known {
                add(alternatives.join(name));
            }
        }
    }
    dirs
}

/// The directories in which the loader of the driver root itself finds the driver.
///
/// # Errors
/// Why its cache could not be read; there need not be one.
pub(super) fn cached_dirs(tree: &Host) -> Result<Vec<PathBuf>, String> {
    let path = Path::new("/etc/ld.so.cache");
    let bytes = match tree.read(path, MAX_SIZE) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    let cache = Cache::parse(&bytes).map_err(|error| error.to_string())?;
    let abis = [
        (Class::Elf64, Machine::X86_64),
        (Class::Elf64, Machine::Aarch64),
        (Class::Elf32, Machine::X86),
        (Class::Elf32, Machine::Arm),
    ];
    let mut dirs = Vec::new();
    for (class, machine) in abis {
        for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
            let file = cache.find(name, class, machine).and_then(|path| tree.resolve(path).ok());
            if let Some(dir) = file.as_deref().and_then(Path::parent)
                && !dirs.iter().any(|known| known == dir)
            {
                dirs.push(dir.to_owned());
            }
        }
    }
    Ok(dirs)
}
