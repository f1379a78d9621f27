//! The driver's libraries: `*.so.VERSION` in the directories that hold it, and the few of
//! another version that belong to it.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::root::{cached_dirs, search_dirs};
use super::{Library, is_version};
use crate::Host;
use crate::elf::{Class, Elf, ElfError, Machine, ObjectKind};

/// Versioned on their own: the platform libraries of EGL.
const EXTERNAL: [&str; 5] = [
    "libnvidia-egl-gbm.so.",
    "libnvidia-egl-wayland.so.",
    "libnvidia-egl-wayland2.so.",
    "libnvidia-egl-xcb.so.",
    "libnvidia-egl-xlib.so.",
];
/// Of the driver of another release, shipped with this one.
const NVVM70: &str = "libnvidia-nvvm70.so.";
/// Without these nothing works, so a damaged one is an error.
const MANDATORY: [&str; 2] = ["libcuda.so.", "libnvidia-ml.so."];
/// Programs ask for these by their bare name, whether the host has the link or not.
const ALWAYS_BARE: [&str; 2] = ["libcuda", "libnvidia-opticalflow"];

/// The directories of libraries of a driver root, each read once.
#[derive(Debug)]
pub(super) struct Dirs(Vec<Dir>);

#[derive(Debug)]
struct Dir {
    path: PathBuf,
    names: Vec<OsString>,
    /// Names of libraries in `vdpau` below it.
    vdpau: Vec<OsString>,
}

impl Dirs {
    /// Reads the usual directories; if none has the driver, those of the root's `ld.so.cache`.
    pub(super) fn read(
        tree: &Host,
        version: Option<&str>,
        unreadable: &mut Vec<(PathBuf, String)>,
    ) -> Self {
        let dirs = Self(search_dirs(tree).into_iter().map(|dir| Dir::read(tree, dir)).collect());
        if dirs.version(version).is_some_and(|found| version.is_none_or(|version| version == found))
        {
            return dirs;
        }
        match cached_dirs(tree) {
            Ok(cached) => {
                let mut dirs = dirs;
                for dir in cached {
                    if !dirs.0.iter().any(|known| known.path == dir) {
                        dirs.0.push(Dir::read(tree, dir));
                    }
                }
                dirs
            }
            Err(reason) => {
                unreadable.push((PathBuf::from("/etc/ld.so.cache"), reason));
                dirs
            }
        }
    }

    /// The version of the driver here: `wanted` if it is there, else the first found.
    pub(super) fn version(&self, wanted: Option<&str>) -> Option<&str> {
        let versions = || {
            MANDATORY.iter().flat_map(|library| {
                let names = self.0.iter().flat_map(|dir| &dir.names);
                names.filter_map(move |name| {
                    name.to_str()?.strip_prefix(library).filter(|version| is_version(version))
                })
            })
        };
        versions().find(|version| Some(*version) == wanted).or_else(|| versions().next())
    }

    /// The directories that hold libraries of `version`.
    pub(super) fn of_version(&self, version: &str) -> Vec<&Path> {
        let suffix = format!(".so.{version}");
        let holds = |dir: &&Dir| dir.names.iter().any(|name| has_suffix(name, &suffix));
        self.0.iter().filter(holds).map(|dir| dir.path.as_path()).collect()
    }

    /// The libraries of the driver of `version`. Files that are no libraries are left out and
    /// noted.
    ///
    /// # Errors
    /// libcuda or libnvidia-ml is damaged.
    pub(super) fn libraries(
        &self,
        tree: &Host,
        version: &str,
        unreadable: &mut Vec<(PathBuf, String)>,
    ) -> Result<Vec<Library>, (PathBuf, ElfError)> {
        let suffix = format!(".so.{version}");
        let of_driver = self.of_version(version);
        let mut seen = HashSet::new();
        let mut libraries: Vec<Library> = Vec::new();
        for dir in &self.0 {
            let in_driver_dir = of_driver.contains(&dir.path.as_path());
            let names = dir.names.iter().filter(|name| {
                (in_driver_dir && (has_suffix(name, &suffix) || has_prefix(name, NVVM70)))
                    || is_external(name)
            });
            let vdpau = dir.vdpau.iter().filter(|name| in_driver_dir && has_suffix(name, &suffix));
            let paths =
                names.map(PathBuf::from).chain(vdpau.map(|name| Path::new("vdpau").join(name)));
            for path in paths {
                let Ok(path) = tree.resolve(&dir.path.join(path)) else {
                    continue;
                };
                if !seen.insert(path.clone()) {
                    continue;
                }
                match Library::read(tree, &path) {
                    Ok(library) => libraries.push(library),
                    Err(error) if is_mandatory(&path) => return Err((path, error)),
                    Err(error) => unreadable.push((path, error.to_string())),
                }
            }
        }
        let Some(machine) = driver_machine(&libraries) else {
            return Ok(libraries);
        };
        let mut known = HashSet::new();
        libraries.retain(|library| {
            let name = library.path.file_name().map(ToOwned::to_owned);
            related(machine, library.machine) && known.insert((name, library.class))
        });
        let names = |path: &Path| {
            self.0.iter().find(|dir| dir.path == path).map_or(&[][..], |dir| dir.names.as_slice())
        };
        libraries.sort_by(|a, b| a.path.cmp(&b.path));
        for library in &mut libraries {
            let dir = library.path.parent().unwrap_or(Path::new("/"));
            library.links = links(library, names(dir), version);
        }
        Ok(libraries)
    }
}

impl Dir {
    fn read(tree: &Host, path: PathBuf) -> Self {
        let mut names = tree.read_dir(&path).unwrap_or_default();
        // Of a directory of the whole system only what may be the driver's is kept.
        names.retain(|name| name.as_encoded_bytes().windows(3).any(|part| part == b".so"));
        let vdpau = tree.read_dir(&path.join("vdpau")).unwrap_or_default();
        Self { path, names, vdpau }
    }
}

impl Library {
    /// Reads the library `path`, whose links are resolved.
    fn read(tree: &Host, path: &Path) -> Result<Self, ElfError> {
        let real = tree.join(path);
        // Opening a pipe would wait for its other end.
        if !fs::symlink_metadata(&real)?.is_file() {
            return Err(ElfError::NotElf);
        }
        let elf = Elf::read(&mut File::open(&real)?)?;
        if elf.kind != ObjectKind::Shared {
            return Err(ElfError::Damaged("no shared library"));
        }
        if elf.soname.as_deref().is_some_and(|soname| soname.contains('/')) {
            return Err(ElfError::Damaged("a SONAME that is no file name"));
        }
        let in_vdpau = path.parent().is_some_and(|dir| dir.ends_with("vdpau"));
        Ok(Self {
            path: path.to_owned(),
            soname: elf.soname,
            class: elf.class,
            machine: elf.machine,
            subdir: PathBuf::from(if in_vdpau { "vdpau" } else { "" }),
            links: Vec::new(),
        })
    }
}

/// The links of a library, where `names` are those in its directory. Only a versioned library
/// has them: `libnvidia-nvvm70.so.4` is found by its own name.
fn links(library: &Library, names: &[OsString], version: &str) -> Vec<(PathBuf, PathBuf)> {
    let mut links = Vec::new();
    let mut add = |link: &str, target: &str| links.push((link.into(), target.into()));
    let Some(file) = library.path.file_name().and_then(|name| name.to_str()) else {
        return links;
    };
    let Some((base, suffix)) = file.split_once(".so.").filter(|(_, suffix)| is_version(suffix))
    else {
        return links;
    };
    let soname = library.soname.as_deref().unwrap_or(file);
    if soname != file {
        add(soname, file);
    }
    let bare = format!("{base}.so");
    if ALWAYS_BARE.contains(&base) || names.iter().any(|name| *name == *bare) {
        add(&bare, soname);
    }
    match base {
        // What glvnd falls back to for a remote display.
        "libGLX_nvidia" => add("libGLX_indirect.so.0", file),
        "libnvidia-allocator" if suffix == version => {
            add("gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1");
        }
        "libnvidia-vulkan-producer" => add(&bare, file),
        _ => {}
    }
    links.dedup();
    links
}

fn has_suffix(name: &OsString, suffix: &str) -> bool {
    name.as_encoded_bytes().ends_with(suffix.as_bytes())
}

fn has_prefix(name: &OsString, prefix: &str) -> bool {
    name.as_encoded_bytes().starts_with(prefix.as_bytes())
}

/// Whether it is a platform library of EGL under its full version.
fn is_external(name: &OsString) -> bool {
    name.to_str().is_some_and(|name| {
        EXTERNAL.iter().any(|prefix| name.strip_prefix(prefix).is_some_and(is_version))
    })
}

fn is_mandatory(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    MANDATORY.iter().any(|library| name.starts_with(library))
}

/// The machine that the driver is for: that of its 64-bit libcuda or libnvidia-ml.
fn driver_machine(libraries: &[Library]) -> Option<Machine> {
    let mut mandatory = libraries.iter().filter(|library| is_mandatory(&library.path));
    let wide = mandatory.clone().find(|library| library.class == Class::Elf64);
    wide.or_else(|| mandatory.next()).map(|library| library.machine)
}

/// Whether a host of `machine` runs programs of `other`; a tree for cross building may hold more.
fn related(machine: Machine, other: Machine) -> bool {
    machine == other
        || matches!(
            (machine, other),
            (Machine::X86_64, Machine::X86) | (Machine::Aarch64, Machine::Arm)
        )
}
