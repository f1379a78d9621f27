//! What a hook is to do in a container that is being created, and how it is done: all of it in one
//! process, by one opening of the root filesystem. Each command of `nvidia-cdi-hook` is a part.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nvidia_oci::{Code, CudaCompat, Error, Fixups, GeneratedFile, Libc, Link, Result};

use crate::covers::Covers;
use crate::directory::Owner;
use crate::rootfs::refusal;
use crate::target::Target;
use crate::unlocked::while_writable;
use crate::{Rootfs, compat, files, folders, image, ldcache, links, modes, params, profile};

/// What is to be done; in this order it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    pub links: Vec<Link>,
    pub files: Vec<GeneratedFile>,
    /// Permissions of files and directories that are there.
    pub modes: Vec<(PathBuf, u32)>,
    /// The driver that CUDA's compatibility libraries of the image are compared with.
    pub compat: Option<CudaCompat>,
    /// Directories whose libraries the loader shall find.
    pub folders: Option<Vec<PathBuf>>,
    /// Whether EGL and Vulkan are told to use only GPUs that are there.
    pub profile: bool,
    /// Whether the driver's library is told to make no device nodes.
    pub mask_params: bool,
}

impl Work {
    /// What fix-ups are when they are all left to a hook.
    pub(crate) fn of(fixups: &Fixups) -> Self {
        let mut work = Self {
            links: fixups.links.clone(),
            files: fixups.files.clone(),
            compat: fixups.cuda_compat.clone(),
            profile: fixups.application_profile,
            mask_params: fixups.mask_params,
            ..Self::default()
        };
        work.add_folders(&fixups.library_dirs);
        work
    }

    /// More directories, each once.
    pub(crate) fn add_folders(&mut self, folders: &[PathBuf]) {
        for folder in folders {
            let known = self.folders.get_or_insert_default();
            if !known.contains(folder) {
                known.push(folder.clone());
            }
        }
    }

    /// Does it in the container whose root filesystem is at `root`, with all its mounts, and which
    /// does not run yet. Twice is once.
    ///
    /// # Errors
    /// [`Code::RootfsUnreadable`], [`Code::FixupFailed`] or [`Code::CacheUnreadable`] with the
    /// path in the container; [`Code::SpecUnreadable`]: `root` is the host's own. What was done
    /// before stays.
    pub fn carry_out(&self, root: &Path) -> Result<()> {
        let rootfs = open(root)?;
        let written = while_writable(&rootfs, || self.write(&rootfs));
        written.map_err(refusal(Code::FixupFailed, Path::new("/")))??;
        if self.mask_params { params::mask(&rootfs) } else { Ok(()) }
    }

    fn write(&self, rootfs: &Rootfs) -> Result<()> {
        let image = image::facts(rootfs)?;
        // Ids are those of the namespace that we are in.
        let mut target = Target::in_place(rootfs, Owner::default(), Covers::default())?;
        let mut cache = match image.libc {
            _ if self.compat.is_none() && self.folders.is_none() => None,
            Some(Libc::Musl) => None,
            // An image without loader may have one of a machine that we do not know.
            Some(Libc::Glibc) | None => ldcache::find(&mut target, &Fixups::default())?,
        };
        links::apply(&mut target, &self.links)?;
        files::apply(&mut target, &self.files)?;
        modes::apply(rootfs, &self.modes)?;
        if let Some(host) = &self.compat {
            compat::apply(&mut target, host, cache.as_mut())?;
        }
        match (&self.folders, cache) {
            (Some(folders), cache) => folders::apply(&mut target, &image, folders, cache)?,
            (None, Some(cache)) => ldcache::store(&mut target, &cache)?,
            (None, None) => {}
        }
        if self.profile {
            profile::apply(&mut target)?;
        }
        target.finish().map(drop)
    }
}

/// A root filesystem that is not the host's own.
fn open(root: &Path) -> Result<Rootfs> {
    let what = || format!("the root filesystem {}", root.display());
    let unreadable = |error| Error::caused(Code::RootfsUnreadable, what(), error);
    let rootfs = Rootfs::of_container(root).map_err(unreadable)?;
    let id = |found: Metadata| (found.dev(), found.ino());
    let seen = rootfs.metadata(Path::new("/")).map(id);
    let seen = seen.map_err(refusal(Code::RootfsUnreadable, Path::new("/")))?;
    if fs::metadata("/").map(id).map_err(unreadable)? == seen {
        return Err(Error::new(Code::SpecUnreadable, format!("{} is the host's own", what())));
    }
    Ok(rootfs)
}
