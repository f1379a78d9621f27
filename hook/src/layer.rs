//! The fix-ups as one small overlay layer in front of the image's, or written in place where the
//! root filesystem is no overlay.
//!
//! The container's overlay is never mounted writably here: ending such a mount syncs the whole
//! file system, and one that is still held makes the container's own mount undefined. The image
//! is looked at through a read-only mount of all its layers, and the layer of ours is put in
//! front of them by rewriting the mount of the Create request.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nvidia_oci::{Code, Edits, Error, Fixups, Image, Libc, Result, Spec, SpecMount};
use rustix::mount::MountAttrFlags;

use crate::covers::Covers;
use crate::directory::Owner;
use crate::overlay::{Overlay, with_layer};
use crate::target::{Target, Upper};
use crate::{Rootfs, detached, facts, ldcache, links, mountpoints, musl, overlay};

/// The layer's directory: beside the upper directory, so that it shares the prefix of all layers
/// (containerd shortens long options by it, and maps ids by it) and goes with the snapshot.
const LAYER: &str = "nvidia-shim-layer";

/// Mount options take a page; containerd shortens them from this length on, which needs a prefix
/// that all layers share.
const MAX_OPTIONS: usize = 4096 - 512;

/// A mount of the root filesystem, as `CreateTaskRequest.rootfs` carries it
/// (containerd's `types.Mount`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootfsMount {
    pub kind: String,
    pub source: String,
    pub target: String,
    pub options: Vec<String>,
}

/// A root filesystem looked at before the container exists, without a writable mount of it.
#[derive(Debug)]
pub struct Look {
    rootfs: Rootfs,
    mounts: Vec<RootfsMount>,
    way: Way,
}

/// How fix-ups get into a root filesystem.
#[derive(Debug)]
enum Way {
    /// In a layer at `place`; `layered` has it in front.
    Layer { place: PathBuf, upper: Option<UpperDirectory>, layered: RootfsMount },
    /// What is looked at is the root filesystem itself, and writable.
    InPlace,
    /// Not at all, for this reason.
    Never(String),
}

#[derive(Debug)]
struct UpperDirectory {
    path: PathBuf,
    userxattr: bool,
}

/// How the root filesystem is mounted after the fix-ups.
#[derive(Debug)]
pub struct Prepared {
    pub mounts: Vec<RootfsMount>,
    /// For a person, in the log.
    pub warnings: Vec<String>,
}

impl Look {
    /// Opens what the container will have as its root: `mounts` of the Create request, or, where
    /// there are none, the directory that `root.path` of the spec names (relative to `bundle`).
    ///
    /// A root filesystem of a kind that cannot be looked at is an empty one, and
    /// [`apply`](Self::apply) says so.
    ///
    /// # Errors
    /// [`Code::RootfsUnreadable`] with the layer or directory that cannot be opened.
    pub fn open(mounts: &[RootfsMount], bundle: &Path, spec: &Spec) -> Result<Self> {
        let (rootfs, way) = match mounts {
            [] => {
                let root = bundle.join(spec.root_path().unwrap_or_else(|| "rootfs".into()));
                (open_directory(&root)?, Way::InPlace)
            }
            [mount] if !mount.target.is_empty() => unknown("a mount below the root")?,
            [mount] => match mount.kind.as_str() {
                "overlay" => open_overlay(mount, bundle)?,
                _ if mount.is_bind() && mount.has("ro") => open_read_only_bind(mount, bundle)?,
                _ if mount.is_bind() => (open_directory(Path::new(&mount.source))?, Way::InPlace),
                "ext4" | "xfs" | "btrfs" => open_block(mount)?,
                kind => unknown(&format!("a root filesystem of type {kind}"))?,
            },
            _ => unknown("a root filesystem of several mounts")?,
        };
        Ok(Self { rootfs, mounts: mounts.to_vec(), way })
    }

    pub fn rootfs(&self) -> &Rootfs {
        &self.rootfs
    }

    /// Brings the fix-ups and the mount points of the edits' bind mounts into the root
    /// filesystem. `spec` is the edited one: what lies below a mount of it would be hidden.
    pub fn apply(self, fixups: &Fixups, edits: &Edits, spec: &Spec) -> Result<Prepared> {
        let unchanged = |mounts, warnings| Ok(Prepared { mounts, warnings });
        if *fixups == Fixups::default() && edits.mounts.is_empty() {
            return unchanged(self.mounts, Vec::new());
        }
        let owner = owner(&self.mounts, spec);
        let fix =
            Fix { image: facts(&self.rootfs)?, mounts: spec.mounts().collect(), fixups, edits };
        let covers = Covers::new(&self.rootfs, &fix.mounts);
        match self.way {
            Way::Never(reason) => {
                let warning = format!("links and ld.so.cache were left out: {reason}");
                unchanged(self.mounts, vec![warning])
            }
            Way::InPlace => {
                let target = Target::in_place(&self.rootfs, owner, covers)?;
                unchanged(self.mounts, fix.apply(target)?)
            }
            Way::Layer { place, upper, layered } => {
                let layer = fresh_directory(&place)?;
                let upper = match upper {
                    Some(upper) => Some(Upper {
                        rootfs: open_directory(&upper.path)?,
                        userxattr: upper.userxattr,
                    }),
                    None => None,
                };
                let target = Target::layer(&self.rootfs, layer, upper, owner, covers)?;
                unchanged(vec![layered], fix.apply(target)?)
            }
        }
    }
}

/// What is to be done in a root filesystem.
struct Fix<'a> {
    image: Image,
    mounts: Vec<SpecMount<'a>>,
    fixups: &'a Fixups,
    edits: &'a Edits,
}

impl Fix<'_> {
    /// Does it; the answer is what a person should know.
    fn apply(&self, mut target: Target<'_>) -> Result<Vec<String>> {
        mountpoints::apply(&mut target, self.edits, &self.mounts)?;
        links::apply(&mut target, &self.fixups.links)?;
        match self.image.libc {
            Some(Libc::Glibc) => ldcache::apply(&mut target, &self.image, self.fixups)?,
            Some(Libc::Musl) => musl::apply(&mut target, &self.image, self.fixups)?,
            None => {}
        }
        target.finish()
    }
}

impl RootfsMount {
    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|there| there == option)
    }

    fn is_bind(&self) -> bool {
        self.kind == "bind" || self.has("bind") || self.has("rbind")
    }

    fn is_id_mapped(&self) -> bool {
        self.options.iter().any(|option| option.starts_with("uidmap="))
    }
}

/// Who owns what is new. Where the mount maps ids, files are stored with those of the image;
/// otherwise a user namespace sees as its root whom its mappings name.
fn owner(mounts: &[RootfsMount], spec: &Spec) -> Owner {
    if mounts.iter().any(RootfsMount::is_id_mapped) {
        return Owner::default();
    }
    let root = |mappings: Vec<nvidia_oci::IdMapping>| {
        mappings.iter().find(|mapping| mapping.container_id == 0).map(|mapping| mapping.host_id)
    };
    Owner {
        uid: root(spec.uid_mappings()).unwrap_or_default(),
        gid: root(spec.gid_mappings()).unwrap_or_default(),
    }
}

fn open_overlay(mount: &RootfsMount, bundle: &Path) -> Result<(Rootfs, Way)> {
    let overlay = match Overlay::parse(&mount.options) {
        Ok(overlay) => overlay,
        Err(what) => return unknown(&format!("an overlay with {what}")),
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
    let mut options =
        vec![format!("lowerdir={}:{}", overlay::escape(&place), overlay::escape(source))];
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
        return unknown("a read-only block device as root filesystem");
    }
    // `loop` is what mount(8) makes of a file, not an option of the kernel.
    if mount.has("loop") {
        return unknown("an image file as root filesystem");
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
        Err(error) => unknown(&format!("{} could not be mounted: {error}", mount.source)),
    }
}

/// Options of the mount, which the file system does not know.
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

/// An empty tree to look at, and nothing to be written.
fn unknown(what: &str) -> Result<(Rootfs, Way)> {
    let empty = detached::empty().map_err(|error| unreadable("an empty tmpfs", error))?;
    Ok((Rootfs::held(empty), Way::Never(format!("{what} cannot be changed beforehand"))))
}

fn open_directory(path: &Path) -> Result<Rootfs> {
    Rootfs::open(path).map_err(|error| unreadable(&path.display().to_string(), error))
}

/// An empty directory at `path`, in place of an earlier one. Its parent is containerd's.
fn fresh_directory(path: &Path) -> Result<Rootfs> {
    let made = match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::create_dir(path),
    };
    made.and_then(|()| Rootfs::open(path)).map_err(|error| {
        Error::caused(Code::FixupFailed, format!("the layer {}", path.display()), error)
    })
}

fn unreadable(what: &str, error: io::Error) -> Error {
    Error::caused(Code::RootfsUnreadable, what, error)
}
