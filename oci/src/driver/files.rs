//! Programs, firmware and sockets of the driver.

use std::fs::{self, FileType};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::slice;

use super::{DriverFile, FileKind};
use crate::Host;
use crate::elf::Elf;
use crate::host::{Found, below};

const BINARIES: [&str; 9] = [
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nv-fabricmanager",
    "nvidia-xconfig",
];
const BINARY_DIRS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// Where the programs are on NixOS and on Flatcar. No container looks there.
const UNUSUAL_BINARY_DIRS: [&str; 2] = ["/run/current-system/sw/bin", FLATCAR_BINARY_DIR];
/// Flatcar's driver root has links to here, out of it.
const FLATCAR_BINARY_DIR: &str = "/opt/bin";
/// Beside NixOS's programs, which are patched to a loader of its store: as NVIDIA built them, for
/// containers (nixpkgs, `nvidia-x11/builder.sh`).
const UNPATCHED_DIR: &str = "origBin";
/// Where Debian's packages have them before an alternative is chosen, below the name of theirs.
const ALTERNATIVES_DIR: &str = "/usr/lib/nvidia";
/// Where a container looks for programs, whatever the host does.
const CONTAINER_BINARY_DIR: &str = "/usr/bin";
/// Where the loaders of all systems are that containers are made of.
const LOADER_DIRS: [&str; 4] = ["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"];
const SOCKETS: [&str; 2] = ["nvidia-persistenced/socket", "nvidia-fabricmanager/socket"];
/// The MPS daemon's default `CUDA_MPS_PIPE_DIRECTORY`.
const MPS_DIR: &str = "/tmp/nvidia-mps";

/// Where a driver's files are: the host, and the tree below the driver root on it.
pub(super) struct Place<'a> {
    pub host: &'a Host,
    pub tree: &'a Host,
    pub root: &'a Path,
}

impl Place<'_> {
    /// How the host names the file `path` of the driver root, which is at `resolved`. The path as
    /// it was found, if the host follows its links to the same file; where an absolute link would
    /// lead out of the driver root, the file itself.
    fn source(&self, path: &Path, resolved: &Path) -> PathBuf {
        let (named, resolved) = (below(self.root, path), below(self.root, resolved));
        let same = named == resolved
            || self.root == Path::new("/")
            || self.host.resolve(&named).ok() == self.host.resolve(&resolved).ok();
        if same { named } else { resolved }
    }

    /// How the driver root names a file of it.
    pub(super) fn inside(&self, file: &DriverFile) -> PathBuf {
        Path::new("/").join(file.source.strip_prefix(self.root).unwrap_or(&file.source))
    }

    /// Those of `paths` that are directories of the driver root.
    pub(super) fn dirs(&self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Vec<Dir> {
        let dir = |named: PathBuf| {
            let resolved = self.tree.resolve(&named).ok()?;
            Some(Dir { named, resolved })
        };
        paths.into_iter().map(Into::into).filter_map(dir).collect()
    }

    /// The first of `dirs` that has a regular file `name`, as a file for containers; its
    /// destination is the path in the driver root.
    pub(super) fn first(&self, kind: FileKind, dirs: &[Dir], name: &str) -> Option<DriverFile> {
        dirs.iter().find_map(|dir| {
            let Found { path: resolved, metadata } =
                self.tree.find(&dir.resolved.join(name)).ok()?;
            let executable = metadata.permissions().mode() & 0o111 != 0;
            if !metadata.is_file() || (kind == FileKind::Binary && !executable) {
                return None;
            }
            let path = dir.named.join(name);
            Some(DriverFile { kind, source: self.source(&path, &resolved), destination: path })
        })
    }
}

/// A directory of the driver root: as it is called, and links resolved.
pub(super) struct Dir {
    named: PathBuf,
    resolved: PathBuf,
}

/// Programs. One that asks for a loader of its own host would not start in a container.
pub(super) fn binaries(
    place: &Place,
    library_dirs: &[&Path],
    left_out: &mut Vec<(PathBuf, String)>,
) -> Vec<DriverFile> {
    let dirs = place.dirs(BINARY_DIRS);
    let of_alternative = |dir: &&Path| {
        let name =
            dir.file_name().filter(|_| dir.parent().is_some_and(|it| it.ends_with("nvidia")));
        name.map(|name| Path::new(ALTERNATIVES_DIR).join(name))
    };
    let unusual = UNUSUAL_BINARY_DIRS.iter().map(PathBuf::from);
    let unusual = place.dirs(unusual.chain(library_dirs.iter().filter_map(of_alternative)));
    let on_host = Place { host: place.host, tree: place.host, root: Path::new("/") };
    let flatcar = on_host.dirs([FLATCAR_BINARY_DIR]);
    let mut files = Vec::new();
    for name in BINARIES {
        let usual = place.first(FileKind::Binary, &dirs, name);
        let found = usual.or_else(|| {
            let file = place
                .first(FileKind::Binary, &unusual, name)
                .or_else(|| on_host.first(FileKind::Binary, &flatcar, name))?;
            Some(DriverFile { destination: Path::new(CONTAINER_BINARY_DIR).join(name), ..file })
        });
        let Some(file) = found else { continue };
        match foreign_loader(place, &file) {
            None => files.push(file),
            Some(loader) => match unpatched(place, &file, name) {
                Some(source) => files.push(DriverFile { source, ..file }),
                None => {
                    let reason = format!("its loader {loader} is of this host only");
                    left_out.push((place.inside(&file), reason));
                }
            },
        }
    }
    files
}

/// The loader that a program asks for, if no container has it.
fn foreign_loader(place: &Place, file: &DriverFile) -> Option<String> {
    let loader = Elf::read(&place.host.open(&file.source).ok()?).ok()?.interpreter?;
    (!LOADER_DIRS.iter().any(|dir| loader.starts_with(dir))).then_some(loader)
}

/// The program as NVIDIA built it, beside the directory of a patched one.
fn unpatched(place: &Place, file: &DriverFile, name: &str) -> Option<PathBuf> {
    let package = place.host.resolve(&file.source).ok()?;
    let path = package.parent()?.parent()?.join(UNPATCHED_DIR).join(name);
    place.host.metadata(&path).ok().filter(fs::Metadata::is_file).map(|_| path)
}

/// GSP firmware of `version`, wherever the kernel's firmware loader would look for it.
pub(super) fn firmware(place: &Place, version: &str) -> Vec<DriverFile> {
    let read = |path: &str| {
        let text = place.host.read_text(Path::new(path), 4096).unwrap_or_default();
        text.trim().to_owned()
    };
    let custom = read("/sys/module/firmware_class/parameters/path");
    let release = read("/proc/sys/kernel/osrelease");
    let mut dirs = Vec::new();
    if custom.starts_with('/') {
        // The kernel's path is one of the host: GKE's is in its driver root.
        let custom = Path::new(&custom);
        let inside = custom.strip_prefix(place.root).unwrap_or(custom);
        dirs.push(Path::new("/").join(inside));
    }
    let [standard, merged] = ["/lib/firmware", "/usr/lib/firmware"].map(Path::new);
    // A driver root of merged-/usr packages need not have the link /lib.
    let standard = if place.tree.exists(standard) { standard } else { merged };
    for dir in [standard.join("updates"), standard.to_owned()] {
        // Nothing but a release would be a second search of the same directory.
        if !release.is_empty() && !release.contains('/') {
            dirs.push(dir.join(&release));
        }
        dirs.push(dir);
    }
    let dirs = dirs.into_iter().map(|dir| dir.join("nvidia").join(version));
    let mut files: Vec<DriverFile> = Vec::new();
    for dir in place.dirs(dirs) {
        for name in place.tree.read_dir(&dir.resolved).unwrap_or_default() {
            let name = name.to_string_lossy();
            if name.starts_with("gsp") && name.ends_with(".bin") {
                files.extend(place.first(FileKind::Firmware, slice::from_ref(&dir), &name));
            }
        }
    }
    files
}

/// Sockets of the driver's daemons, which run in the driver root or on the host.
pub(super) fn sockets(place: &Place) -> Vec<DriverFile> {
    let on_host = Place { host: place.host, tree: place.host, root: Path::new("/") };
    let mut files: Vec<DriverFile> = SOCKETS
        .iter()
        .filter_map(|name| socket(place, name).or_else(|| socket(&on_host, name)))
        .collect();
    files.extend(mps_dir(place).or_else(|| mps_dir(&on_host)));
    files
}

fn socket(place: &Place, name: &str) -> Option<DriverFile> {
    ["/run", "/var/run"].iter().find_map(|dir| {
        let path = Path::new(dir).join(name);
        daemon(place, path, |kind| kind.is_socket())
    })
}

fn mps_dir(place: &Place) -> Option<DriverFile> {
    daemon(place, PathBuf::from(MPS_DIR), |kind| kind.is_dir())
}

/// A link by that name is none: in `/tmp` anybody can make one, and to any directory of root's.
fn daemon(place: &Place, path: PathBuf, is: impl Fn(FileType) -> bool) -> Option<DriverFile> {
    let kind = place.tree.symlink_metadata(&path).ok()?.file_type();
    let resolved = place.tree.resolve(&path).ok()?;
    is(kind).then(|| DriverFile {
        kind: FileKind::Socket,
        source: place.source(&path, &resolved),
        destination: path,
    })
}
