//! Programs, firmware and sockets of the driver.

use std::fs::{self, FileType};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::slice;

use super::{DriverFile, FileKind};
use crate::Host;
use crate::host::below;

const BINARIES: [&str; 8] = [
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-xconfig",
];
const BINARY_DIRS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
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
            let resolved = self.tree.resolve(&dir.resolved.join(name)).ok()?;
            let metadata = fs::symlink_metadata(self.tree.join(&resolved)).ok()?;
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

pub(super) fn binaries(place: &Place) -> Vec<DriverFile> {
    let dirs = place.dirs(BINARY_DIRS);
    BINARIES.iter().filter_map(|name| place.first(FileKind::Binary, &dirs, name)).collect()
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
        dirs.push(PathBuf::from(custom));
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
