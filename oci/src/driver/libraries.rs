//! The driver's libraries: `*.so.VERSION` in the directories that hold it, and the few of
//! another version that belong to it.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};

use super::root::{cached_dirs, search_dirs};
use super::{Library, is_version};
use crate::elf::{Class, Elf, ElfError, Machine, ObjectKind};
use crate::{Host, host};

/// Versioned on their own: the platform libraries of EGL.
const EXTERNAL: [&str; 5] = [
    "libnvidia-egl-gbm.so.",
    "libnvidia-egl-wayland.so.",
    "libnvidia-egl-wayland2.so.",
    "libnvidia-egl-xcb.so.",
    "libnvidia-egl-xlib.so.",
];
/// Those beside the driver's own with a version of their own: of another release
/// (`libnvidia-nvvm70.so.4`), and up to R470 `libnvidia-nvvm.so.4.0.0`.
const COMPILERS: [&str; 2] = ["libnvidia-nvvm70.so.", "libnvidia-nvvm.so."];
/// What tells the version of a driver.
const TELLING: [&str; 2] = ["libcuda.so.", "libnvidia-ml.so."];
/// Programs ask for these by their bare name, whether the host has the link or not.
const ALWAYS_BARE: [&str; 2] = ["libcuda", "libnvidia-opticalflow"];

/// X asks for it by its bare name.
const PRODUCER: &str = "libnvidia-vulkan-producer";

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
        left_out: &mut Vec<(PathBuf, String)>,
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
                left_out.push((PathBuf::from("/etc/ld.so.cache"), reason));
                dirs
            }
        }
    }

    /// The version of the driver here: `wanted` if it is there, else the first found.
    pub(super) fn version(&self, wanted: Option<&str>) -> Option<&str> {
        let versions = || {
            TELLING.iter().flat_map(|library| {
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

    /// The libraries of the driver of `version`. Files that are no libraries, or lead to another's
    /// file, are left out and noted.
    pub(super) fn libraries(
        &self,
        tree: &Host,
        version: &str,
        left_out: &mut Vec<(PathBuf, String)>,
    ) -> Vec<Library> {
        let suffix = format!(".so.{version}");
        let of_driver = self.of_version(version);
        let mut seen = HashSet::new();
        let mut found: Vec<Found> = Vec::new();
        for dir in &self.0 {
            let in_driver_dir = of_driver.contains(&dir.path.as_path());
            let is_ours = |name: &OsStr| {
                (in_driver_dir && (has_suffix(name, &suffix) || is_compiler(name)))
                    || is_external(name)
            };
            let names = dir.names.iter().filter(|name| is_ours(name));
            let vdpau = dir.vdpau.iter().filter(|name| in_driver_dir && has_suffix(name, &suffix));
            let paths =
                names.map(PathBuf::from).chain(vdpau.map(|name| Path::new("vdpau").join(name)));
            for name in paths {
                let Ok(host::Found { path, metadata }) = tree.find(&dir.path.join(&name)) else {
                    continue;
                };
                if !seen.insert(path.clone()) {
                    continue;
                }
                if !path.file_name().is_some_and(is_ours) {
                    let reason = format!("it leads to {}, which is not NVIDIA's", path.display());
                    left_out.push((dir.path.join(name), reason));
                    continue;
                }
                match Library::read(tree, &path, &metadata) {
                    Ok(library) => found.push(Found { library, dir }),
                    Err(error) => left_out.push((path, error.to_string())),
                }
            }
        }
        if let Some(machine) = driver_machine(&found) {
            found.retain(|found| related(machine, found.library.machine));
        }
        // Of two versions of an EGL library the first is taken: that which the loader takes.
        found.sort_by_cached_key(|found| found.is_external() && !found.is_loaded(tree));
        let mut known = HashSet::new();
        found.retain(|found| known.insert((found.name(), found.library.class)));
        found.sort_by(|a, b| a.library.path.cmp(&b.library.path));
        found.into_iter().map(|found| found.with_links(self, version)).collect()
    }
}

/// A library, and the directory where it was seen.
struct Found<'a> {
    library: Library,
    dir: &'a Dir,
}

impl Found<'_> {
    /// What there may be only one of.
    fn name(&self) -> OsString {
        let file = self.library.path.file_name().unwrap_or_default();
        match &self.library.soname {
            Some(soname) if is_external(file) => soname.into(),
            _ => file.to_owned(),
        }
    }

    fn is_external(&self) -> bool {
        self.library.path.file_name().is_some_and(is_external)
    }

    /// Whether the loader of the driver root comes to this file by its SONAME.
    fn is_loaded(&self, tree: &Host) -> bool {
        let soname = self.library.soname.as_deref().unwrap_or_default();
        tree.resolve(&self.dir.path.join(soname)).is_ok_and(|end| end == self.library.path)
    }

    fn with_links(self, dirs: &Dirs, version: &str) -> Library {
        let mut library = self.library;
        let home = dirs.0.iter().find(|dir| Some(dir.path.as_path()) == library.path.parent());
        // Where the directory seen is one of links into another (NixOS), it has the names.
        library.links = links(&library, &home.unwrap_or(self.dir).names, version);
        library
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
    /// Whether it is a platform library of EGL.
    pub(super) fn is_platform(&self) -> bool {
        self.path.file_name().is_some_and(is_external)
    }

    /// Leaves out links by which only graphics finds it.
    pub(super) fn leave_out_graphics_links(&mut self) {
        let is_producer = self.name() == PRODUCER;
        self.links.retain(|(link, _)| link.components().count() == 1 && !is_producer);
    }

    /// Reads the library that `path` leads to, with its links, the links of which are those of the
    /// directory that it lies in.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn at(tree: &Host, path: &Path) -> Result<Self, ElfError> {
        let host::Found { path, metadata } = tree.find(path)?;
        let mut library = Self::read(tree, &path, &metadata)?;
        let names = path.parent().and_then(|dir| tree.read_dir(dir).ok()).unwrap_or_default();
        library.links = links(&library, &names, "");
        Ok(library)
    }

    /// Reads the library `path`, whose links are resolved.
    fn read(tree: &Host, path: &Path, metadata: &Metadata) -> Result<Self, ElfError> {
        // Opening a pipe would wait for its other end.
        if !metadata.is_file() {
            return Err(ElfError::NotElf);
        }
        let elf = Elf::read(&File::open(tree.join(path))?)?;
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
        PRODUCER => add(&bare, file),
        _ => {}
    }
    links.dedup();
    links
}

fn has_suffix(name: &OsStr, suffix: &str) -> bool {
    name.as_encoded_bytes().ends_with(suffix.as_bytes())
}

/// Whether it is a compiler under a version of its own.
fn is_compiler(name: &OsStr) -> bool {
    own_version(name, &COMPILERS).is_some()
}

/// Whether it is a platform library of EGL under its full version.
fn is_external(name: &OsStr) -> bool {
    own_version(name, &EXTERNAL).is_some_and(is_version)
}

/// The version that follows one of `prefixes`, if it is no driver's: those have three digits.
fn own_version<'a>(name: &'a OsStr, prefixes: &[&str]) -> Option<&'a str> {
    let name = name.to_str()?;
    let version = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    version.split('.').all(|part| part.len() < 3).then_some(version)
}

/// The machine that the driver is for: that of its 64-bit libraries.
fn driver_machine(found: &[Found]) -> Option<Machine> {
    let wide = found.iter().find(|found| found.library.class == Class::Elf64);
    wide.or_else(|| found.first()).map(|found| found.library.machine)
}

/// Whether a host of `machine` runs programs of `other`; a tree for cross building may hold more.
fn related(machine: Machine, other: Machine) -> bool {
    machine == other
        || matches!(
            (machine, other),
            (Machine::X86_64, Machine::X86) | (Machine::Aarch64, Machine::Arm)
        )
}
