//! The fix-ups as one small overlay layer in front of the image's, or written in place where the
//! root filesystem is no overlay.
//!
//! The container's overlay is never mounted writably here: ending such a mount syncs the whole
//! file system, and one that is still held makes the container's own mount undefined. The image
//! is looked at through a read-only mount of all its layers, and the layer of ours is put in
//! front of them by rewriting the mount of the Create request.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::path::Path;

use nvidia_oci::{Code, Edits, Error, Fixups, IdMapping, Image, Libc, Result, Spec, SpecMount};

use crate::by_hook::ByHook;
use crate::covers::Covers;
use crate::directory::Owner;
use crate::target::{Left, Target};
use crate::upper::Upper;
use crate::way::{self, RootfsMount, UpperDirectory, Way, open_directory};
use crate::work::Work;
use crate::{Rootfs, compat, files, folders, ldcache, libraries, links, mountpoints, musl};

/// A root filesystem looked at before the container exists, without a writable mount of it.
#[derive(Debug)]
pub struct Look {
    rootfs: Rootfs,
    mounts: Vec<RootfsMount>,
    way: Way,
}

/// How the root filesystem is mounted after the fix-ups.
#[derive(Debug)]
pub struct Prepared {
    pub mounts: Vec<RootfsMount>,
    /// For a person, in the log.
    pub warnings: Vec<String>,
    /// What has to be done by a hook, when the container's mounts are there.
    pub by_hook: Option<ByHook>,
}

impl Look {
    /// Opens what the container will have as its root: `mounts` of the Create request, or, where
    /// there are none, the directory that `root.path` of the spec names (relative to `bundle`).
    ///
    /// A root filesystem of a kind that cannot be looked at is an empty one, and
    /// [`apply`](Self::apply) leaves all to a hook, or says that it cannot be done.
    ///
    /// # Errors
    /// [`Code::RootfsUnreadable`] with the layer or directory that cannot be opened.
    pub fn open(mounts: &[RootfsMount], bundle: &Path, spec: &Spec) -> Result<Self> {
        let (rootfs, way) = way::open(mounts, bundle, spec)?;
        Ok(Self { rootfs, mounts: mounts.to_vec(), way })
    }

    pub fn rootfs(&self) -> &Rootfs {
        &self.rootfs
    }

    /// Brings the fix-ups and the mount points of the edits' bind mounts into the root
    /// filesystem, of which `image` are the [`facts`](crate::facts). `spec` is the edited one:
    /// what lies below a mount of it would be hidden.
    pub fn apply(
        self,
        image: &Image,
        fixups: &Fixups,
        edits: &Edits,
        spec: &Spec,
    ) -> Result<Prepared> {
        if *fixups == Fixups::default() && edits.mounts.is_empty() {
            return Ok(Prepared { mounts: self.mounts, warnings: Vec::new(), by_hook: None });
        }
        let root = root_of(spec);
        // Where the mount maps ids, files are stored with those of the image.
        let mapped = self.mounts.iter().any(RootfsMount::is_id_mapped);
        let owner = if mapped { Owner::default() } else { root };
        let fix = Fix { image, mounts: spec.mounts().collect(), fixups, edits };
        let covers = Covers::new(&self.rootfs, &fix.mounts);
        let (mounts, left, reason) = match self.way {
            Way::Never(reason) => {
                let warning = format!("links and ld.so.cache were left out: {reason}");
                (self.mounts, Left { warnings: vec![warning], ..Left::default() }, None)
            }
            Way::ByHook(reason) => {
                let by_hook = Work::of(fixups);
                (self.mounts, Left { by_hook, ..Left::default() }, Some(reason))
            }
            Way::InPlace => {
                let target = Target::in_place(&self.rootfs, owner, covers)?;
                (self.mounts, fix.apply(target)?, None)
            }
            Way::Layer { place, upper, layered } => {
                let layer = fresh_directory(&place)?;
                let open = |upper: UpperDirectory| -> Result<Upper> {
                    let rootfs = open_directory(&upper.path)?;
                    // Ids of the lower layers are mapped, those of the upper directory never.
                    Ok(Upper::new(rootfs, upper.userxattr, root))
                };
                let upper = upper.map(open).transpose()?;
                let target = Target::layer(&self.rootfs, layer, upper, owner, covers)?;
                (vec![layered], fix.apply(target)?, None)
            }
        };
        let by_hook = ByHook::of(left.by_hook, reason);
        Ok(Prepared { mounts, warnings: left.warnings, by_hook })
    }
}

/// What is to be done in a root filesystem.
struct Fix<'a> {
    image: &'a Image,
    mounts: Vec<SpecMount<'a>>,
    fixups: &'a Fixups,
    edits: &'a Edits,
}

impl Fix<'_> {
    /// Does it; the answer is what is left to be done and said.
    fn apply(&self, mut target: Target<'_>) -> Result<Left> {
        let mut cache = match self.image.libc {
            Some(Libc::Glibc) => ldcache::find(&mut target, self.fixups)?,
            Some(Libc::Musl) | None => None,
        };
        mountpoints::apply(&mut target, self.edits, &self.mounts)?;
        links::apply(&mut target, &self.fixups.links)?;
        files::apply(&mut target, &self.fixups.files)?;
        match self.image.libc {
            Some(Libc::Glibc) => {
                let fixups = self.with_compat(&mut target, cache.as_mut())?;
                ldcache::apply(&mut target, self.image, &fixups, cache)?;
            }
            Some(Libc::Musl) => musl::apply(&mut target, self.image, self.fixups)?,
            None => {}
        }
        // In what is there only when the container's mounts are.
        target.by_hook().mask_params = self.fixups.mask_params;
        target.by_hook().profile = self.fixups.application_profile;
        target.finish()
    }

    /// The fix-ups with the libraries of CUDA's compatibility directory before all others, if the
    /// image has one that fits.
    fn with_compat(
        &self,
        target: &mut Target<'_>,
        cache: Option<&mut ldcache::Found>,
    ) -> Result<Cow<'_, Fixups>> {
        let Some(compat) = &self.fixups.cuda_compat else { return Ok(Cow::Borrowed(self.fixups)) };
        let directory = compat::apply(target, compat, cache)?;
        let found = libraries::find(target.view(), directory.as_slice())?;
        found.iter().try_for_each(|library| folders::link(target, library))?;
        let mut fixups = self.fixups.clone();
        fixups.libraries.splice(0..0, found.into_iter().map(|library| library.entry));
        Ok(Cow::Owned(fixups))
    }
}

/// The ids that the container's root has on the host.
fn root_of(spec: &Spec) -> Owner {
    let root = |mappings: Vec<IdMapping>| {
        mappings.iter().find(|mapping| mapping.container_id == 0).map(|mapping| mapping.host_id)
    };
    Owner {
        uid: root(spec.uid_mappings()).unwrap_or_default(),
        gid: root(spec.gid_mappings()).unwrap_or_default(),
    }
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
