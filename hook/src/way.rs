//! How fix-ups get into a root filesystem: by what containerd would mount.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nvidia_oci::{Code, Error, Result, Spec};
use rustix::mount::MountAttrFlags;

use crate::overlay::{Overlay, escape, with_layer};
use crate::{Rootfs, detached};

/// The layer's directory: beside the upper directory, so that it shares the prefix of all layers
/// (containerd shortens long options by it, and maps ids by it) and goes with the snapshot.
const LAYER: &str = "nvidia-shim-layer";

/// Mount options take a page; containerd shortens them from this length on, which needs a prefix
/// that all layers share.
const MAX_OPTIONS: usize = 4096 - 512;

/// Options of any mount, which the file system does not know.
const GENERIC: [&str; 11] = [
    "rw",
    "defaults",
    "nodev",
    "dev",
    "nosuid",
    "suid",
    "noexec",
    "exec",
    "relatime",
    "noatime",
    "nodiratime",
];

/// A mount of the root filesystem, as `CreateTaskRequest.rootfs` carries it
/// (containerd's `types.Mount`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootfsMount {
    pub kind: String,
    pub source: String,
    pub target: String,
    pub options: Vec<String>,
}

impl RootfsMount {
    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|there| there == option)
    }

    fn is_bind(&self) -> bool {
        self.kind == "bind" || self.has("bind") || self.has("rbind")
    }

    pub(crate) fn is_id_mapped(&self) -> bool {
        self.options.iter().any(|option| option.starts_with("uidmap="))
    }
}

/// How fix-ups get into a root filesystem.
#[derive(Debug)]
pub(crate) enum Way {
    /// In a layer at `place`; `layered` has it in front.
    Layer { place: PathBuf, upper: Option<UpperDirectory>, layered: RootfsMount },
    /// What is looked at is the root filesystem itself, and writable.
    InPlace,
    /// By a hook, for this reason.
    ByHook(String),
    /// Not at all, for this reason.
    Never(String),
}

#[derive(Debug)]
pub(crate) struct UpperDirectory {
    pub path: PathBuf,
    pub userxattr: bool,
}

/// Opens what is mounted by `mounts`, or, where there are none, the directory that the spec names.
pub(crate) fn open(mounts: &[RootfsMount], bundle: &Path, spec: &Spec) -> Result<(Rootfs, Way)> {
    match mounts {
        [] => {
            let root = bundle.join(spec.root_path().unwrap_or_else(|| "rootfs".into()));
            in_place(&root)
        }
        [mount] if !mount.target.is_empty() => unknown("a mount below the root", Some(mount)),
        [mount] => match mount.kind.as_str() {
            "overlay" => open_overlay(mount, bundle),
            _ if mount.is_bind() && mount.has("ro") => open_read_only_bind(mount, bundle),
            _ if mount.is_bind() => in_place(Path::new(&mount.source)),
            "ext4" | "xfs" | "btrfs" => open_block(mount),
            kind => unknown(&format!("a root filesystem of type {kind}"), Some(mount)),
        },
        _ => unknown("a root filesystem of several mounts", None),
    }
}

/// A directory is written directly, unless that cannot be or must not be: the root of the host
/// itself.
fn in_place(directory: &Path) -> Result<(Rootfs, Way)> {
    let rootfs = open_directory(directory)?;
    let root = |found: Metadata| (found.dev(), found.ino());
    let seen = rootfs.metadata(Path::new("/"));
    let host = fs::metadata("/");
    let way = match (seen.map(root), host.map(root), rootfs.is_read_only()) {
        (_, _, Ok(true)) => Way::Never("the root filesystem is mounted read-only".to_owned()),
        (Ok(seen), Ok(host), Ok(false)) if seen != host => Way::InPlace,
        _ => Way::Never("the root filesystem is the host's own".to_owned()),
    };
    Ok((rootfs, way))
}

fn open_overlay(mount: &RootfsMount, bundle: &Path) -> Result<(Rootfs, Way)> {
    let overlay = match Overlay::parse(&mount.options) {
        Ok(overlay) => overlay,
        Err(what) => return unknown(&format!("an overlay with {what}"), Some(mount)),
    };
    let layered_at =
        |place: &Path| RootfsMount { options: with_layer(&mount.options, place), ..mount.clone() };
    let way = match &overlay.upper {
        Some(upper) => {
            let place = upper.with_file_name(LAYER);
            let layered = layered_at(&place);
            let upper = UpperDirectory { path: upper.clone(), userxattr: overlay.userxattr };
            Way::Layer { place, upper: Some(upper), layered }
        }
        None => in_bundle(bundle, mount, layered_at(&bundle.join(LAYER))),
    };
    let layers: Vec<&Path> = match &way {
        Way::Layer { place, .. } => {
            overlay.layers().into_iter().filter(|layer| layer != place).collect()
        }
        _ => overlay.layers(),
    };
    let rootfs = match layers.as_slice() {
        // An overlay has two layers at least.
        [layer] => open_directory(layer)?,
        layers => {
            let mounted = detached::overlay(layers, &overlay.seen_by)
                .map_err(|error| unreadable("the layers of the image", error))?;
            Rootfs::held(mounted)
        }
    };
    Ok((rootfs, way))
}

/// A view of a single layer: it becomes an overlay of ours and that one.
fn open_read_only_bind(mount: &RootfsMount, bundle: &Path) -> Result<(Rootfs, Way)> {
    let place = bundle.join(LAYER);
    let source = Path::new(&mount.source);
    let mut options = vec![format!("lowerdir={}:{}", escape(&place), escape(source))];
    let of_bind = ["bind", "rbind"];
    options.extend(mount.options.iter().filter(|o| !of_bind.contains(&o.as_str())).cloned());
    let layered = RootfsMount {
        kind: "overlay".to_owned(),
        source: "overlay".to_owned(),
        target: String::new(),
        options,
    };
    Ok((open_directory(source)?, in_bundle(bundle, mount, layered)))
}

/// The layer of a root filesystem without upper directory lies in the bundle.
fn in_bundle(bundle: &Path, mount: &RootfsMount, layered: RootfsMount) -> Way {
    if mount.is_id_mapped() {
        return Way::Never("a read-only root filesystem with mapped ids".to_owned());
    }
    if layered.options.iter().map(|option| option.len() + 1).sum::<usize>() > MAX_OPTIONS {
        return Way::Never("a read-only root filesystem of too many layers".to_owned());
    }
    Way::Layer { place: bundle.join(LAYER), upper: None, layered }
}

fn open_block(mount: &RootfsMount) -> Result<(Rootfs, Way)> {
    if mount.has("ro") {
        return unknown("a block device as root filesystem", Some(mount));
    }
    // `loop` is what mount(8) makes of a file, not an option of the kernel.
    if mount.has("loop") {
        return unknown("an image file as root filesystem", Some(mount));
    }
    let options: Vec<detached::MountOption> = mount
        .options
        .iter()
        .filter(|option| !GENERIC.contains(&option.as_str()))
        .map(|option| match option.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (option.clone(), None),
        })
        .collect();
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    match detached::block(&mount.kind, &mount.source, &options, attributes) {
        Ok(mounted) => Ok((Rootfs::held(mounted), Way::InPlace)),
        Err(error) => {
            let what = format!("{}, which could not be mounted here ({error}),", mount.source);
            unknown(&what, Some(mount))
        }
    }
}

/// An empty tree to look at, and nothing to be written beforehand.
fn unknown(what: &str, mount: Option<&RootfsMount>) -> Result<(Rootfs, Way)> {
    let empty = detached::empty().map_err(|error| unreadable("an empty tmpfs", error))?;
    let way = match mount {
        Some(mount) if mount.has("ro") => Way::Never(format!("{what} is mounted read-only")),
        _ => Way::ByHook(format!("{what} cannot be changed beforehand")),
    };
    Ok((Rootfs::held(empty), way))
}

pub(crate) fn open_directory(path: &Path) -> Result<Rootfs> {
    Rootfs::open(path).map_err(|error| unreadable(&path.display().to_string(), error))
}

fn unreadable(what: &str, error: io::Error) -> Error {
    Error::caused(Code::RootfsUnreadable, what, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_own_root_is_never_written() {
        let dir = tempfile::tempdir().unwrap();
        let spec = |path: &Path| Spec::new(serde_json::json!({"root": {"path": path}}));
        let bind = |source: &Path| RootfsMount {
            kind: "bind".to_owned(),
            source: source.display().to_string(),
            target: String::new(),
            options: vec!["rbind".to_owned(), "rw".to_owned()],
        };
        let root = dir.path().join("link");
        std::os::unix::fs::symlink("/", &root).unwrap();
        for path in [Path::new("/"), Path::new("/proc/.."), &root] {
            for mounts in [vec![], vec![bind(path)]] {
                let (_, way) = open(&mounts, Path::new("/"), &spec(path)).unwrap();
                assert!(matches!(way, Way::Never(_)), "{}: {way:?}", path.display());
            }
        }
        let (_, way) = open(&[bind(dir.path())], Path::new("/"), &spec(dir.path())).unwrap();
        assert!(matches!(way, Way::InPlace));
    }
}
