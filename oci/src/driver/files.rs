//! Programs, firmware and sockets of the driver.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{DriverFile, FileKind, host_name};
use crate::Host;

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
    /// How the host names the file `path` of the driver root. The path as it was found, if the
    /// host follows its links to the same file; where an absolute link would lead out of the
    /// driver root, the file itself.
    pub(super) fn source(&self, path: &Path) -> Option<PathBuf> {
        let resolved = host_name(self.root, &self.tree.resolve(path).ok()?);
        let named = host_name(self.root, path);
        let same = self.host.resolve(&named).ok() == self.host.resolve(&resolved).ok();
        Some(if same { named } else { resolved })
    }

    /// The first of `dirs` that has a regular file `name`, as a file for containers; its
    /// destination is the path in the driver root.
    pub(super) fn first<'d>(
        &self,
        kind: FileKind,
        dirs: impl IntoIterator<Item = &'d Path>,
        name: &str,
    ) -> Option<DriverFile> {
        let path = dirs.into_iter().map(|dir| dir.join(name)).find(|path| {
            self.tree.metadata(path).is_ok_and(|metadata| {
                let executable = metadata.permissions().mode() & 0o111 != 0;
                metadata.is_file() && (executable || kind != FileKind::Binary)
            })
        })?;
        Some(DriverFile { kind, source: self.source(&path)?, destination: path })
    }
}

pub(super) fn binaries(place: &Place) -> Vec<DriverFile> {
    let dirs = BINARY_DIRS.map(Path::new);
    BINARIES.iter().filter_map(|name| place.first(FileKind::Binary, dirs, name)).collect()
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
    let mut files: Vec<DriverFile> = Vec::new();
    for dir in dirs {
        let dir = dir.join("nvidia").join(version);
        for name in place.tree.read_dir(&dir).unwrap_or_default() {
            let name = name.to_string_lossy();
            if name.starts_with("gsp") && name.ends_with(".bin") {
                files.extend(place.first(FileKind::Firmware, [dir.as_path()], &name));
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
    let mps = Path::new(MPS_DIR);
    let mps_dir = |place: &Place| {
        let metadata = place.tree.metadata(mps).ok()?;
        let source = metadata.is_dir().then(|| place.source(mps)).flatten()?;
        Some(DriverFile { kind: FileKind::Socket, source, destination: mps.to_owned() })
    };
    files.extend(mps_dir(place).or_else(|| mps_dir(&on_host)));
    files
}

fn socket(place: &Place, name: &str) -> Option<DriverFile> {
    let path = ["/run", "/var/run"]
        .map(|dir| Path::new(dir).join(name))
        .into_iter()
        .find(|path| place.tree.metadata(path).is_ok_and(|found| found.file_type().is_socket()))?;
    Some(DriverFile { kind: FileKind::Socket, source: place.source(&path)?, destination: path })
}
