//! Where fix-ups are written: a fresh layer in front of the image's, the upper directory of an
//! overlay where that hides the layer, or the root filesystem itself.
//!
//! Paths are resolved in what the container will see (the view), and then written without
//! following any link. Directories that a layer shares with the image get the image's attributes,
//! since those of the topmost layer are what the container sees.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nvidia_oci::{Code, Error, Result};

use crate::Rootfs;
use crate::covers::Covers;
use crate::directory::{Attributes, Directory, Owner};
use crate::rootfs::refusal;

const NEW_DIRECTORY: u32 = 0o755;
const NEW_FILE: u32 = 0o644;
const PERMISSIONS: u32 = 0o777;

/// The upper directory of an overlay that is not mounted.
#[derive(Debug)]
pub(crate) struct Upper {
    pub rootfs: Rootfs,
    /// Whether overlayfs keeps its notes in `user.overlay.*`.
    pub userxattr: bool,
    /// Who owns what is new in it.
    pub owner: Owner,
}

/// The tree that a path is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tree {
    Front,
    Upper,
}

/// Where the fix-ups of a container go.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    view: &'a Rootfs,
    /// The layer, or the root filesystem itself.
    front: Rootfs,
    /// Whether `front` is a layer that holds nothing yet.
    fresh: bool,
    upper: Option<Upper>,
    owner: Owner,
    covers: Covers,
    /// Directories made here; their times are set when all is written.
    made: BTreeMap<(Tree, PathBuf), (Directory, Attributes)>,
    /// The first empty file in a layer of ours.
    empty: Option<(Directory, OsString)>,
}

impl<'a> Target<'a> {
    /// Writes into the root filesystem itself.
    pub(crate) fn in_place(view: &'a Rootfs, owner: Owner, covers: Covers) -> Result<Self> {
        let front = view.try_clone().map_err(refusal(Code::FixupFailed, Path::new("/")))?;
        let made = BTreeMap::new();
        Ok(Self { view, front, fresh: false, upper: None, owner, covers, made, empty: None })
    }

    /// Writes into `layer`, an empty directory.
    pub(crate) fn layer(
        view: &'a Rootfs,
        layer: Rootfs,
        upper: Option<Upper>,
        owner: Owner,
        covers: Covers,
    ) -> Result<Self> {
        let root = Path::new("/");
        let made = view
            .directory(root)
            .and_then(|seen| seen.attributes())
            .and_then(|attributes| {
                let directory = layer.directory(root)?.into_own();
                directory.set_attributes(&attributes)?;
                Ok(BTreeMap::from([((Tree::Front, root.to_owned()), (directory, attributes))]))
            })
            .map_err(refusal(Code::FixupFailed, root))?;
        Ok(Self { view, front: layer, fresh: true, upper, owner, covers, made, empty: None })
    }

    pub(crate) fn view(&self) -> &Rootfs {
        self.view
    }

    pub(crate) fn covers(&self) -> &Covers {
        &self.covers
    }

    pub(crate) fn covers_mut(&mut self) -> &mut Covers {
        &mut self.covers
    }

    /// Whether what is at `place` may be ours, of an earlier start: everywhere but in a fresh layer.
    pub(crate) fn holds_own(&self, place: &Path) -> Result<bool> {
        let tree = self.tree(place).map_err(refusal(Code::FixupFailed, place))?;
        Ok(!self.fresh || tree == Tree::Upper)
    }

    /// Where `path` of the container lies with the links on the way resolved; its last component
    /// is kept. `None`, with a warning, where a mount of the spec would hide it.
    pub(crate) fn place(&mut self, path: &Path) -> Result<Option<PathBuf>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::new(Code::FixupFailed, format!("{} is no file", path.display())));
        };
        let parent = self.view.canonical(parent).map_err(refusal(Code::FixupFailed, path))?;
        let place = parent.join(name);
        let hidden = self.covers.leave_out(&place, path);
        Ok((!hidden).then_some(place))
    }

    /// Puts a file at a [place](Self::place), with owner and permissions of a file that it takes
    /// the place of.
    pub(crate) fn put_file(&mut self, place: &Path, bytes: &[u8]) -> Result<()> {
        let old = self
            .seen(place)?
            .filter(Metadata::is_file)
            .map(|old| (Owner { uid: old.uid(), gid: old.gid() }, old.mode() & PERMISSIONS));
        self.put(place, |directory, name, owner| {
            let (owner, mode) = old.unwrap_or((owner, NEW_FILE));
            directory.put_file(name, bytes, owner, mode)
        })
    }

    /// Puts a symbolic link at a [place](Self::place), unless the same is there.
    pub(crate) fn put_link(&mut self, place: &Path, target: &Path) -> Result<()> {
        match self.seen(place)? {
            Some(old) if old.is_dir() => {
                let what = format!("{} is a directory where a link belongs", place.display());
                return Err(Error::new(Code::FixupFailed, what));
            }
            Some(old) if old.is_symlink() => {
                let there =
                    self.view.read_link(place).map_err(refusal(Code::FixupFailed, place))?;
                if there == target {
                    return Ok(());
                }
            }
            _ => {}
        }
        self.put(place, |directory, name, owner| directory.put_link(name, target, owner))
    }

    /// Puts an empty file at a [place](Self::place) where nothing is. In a layer of ours all such
    /// files are one: another name costs a tenth of another file.
    pub(crate) fn put_empty_file(&mut self, place: &Path) -> Result<()> {
        let first = self.empty.take();
        let mut made = None;
        self.put(place, |directory, name, owner| {
            if let Some((there, first)) = first.as_ref().filter(|_| directory.is_own()) {
                return directory.put_hard_link(name, there, first);
            }
            directory.put_file(name, b"", owner, NEW_FILE)?;
            if directory.is_own() {
                made = Some((directory.try_clone()?, name.to_owned()));
            }
            Ok(())
        })?;
        self.empty = first.or(made);
        Ok(())
    }

    /// Makes the directory at `place` with its parents.
    pub(crate) fn make_directory(&mut self, place: &Path) -> Result<()> {
        self.tree(place)
            .and_then(|tree| self.directory(place, tree))
            .map(drop)
            .map_err(refusal(Code::FixupFailed, place))
    }

    /// Sets the times of the directories that the image has too, and says what was left out.
    pub(crate) fn finish(self) -> Result<Vec<String>> {
        for (directory, attributes) in self.made.values() {
            directory.set_times(attributes).map_err(refusal(Code::FixupFailed, Path::new("/")))?;
        }
        Ok(self.covers.warnings())
    }

    /// What the container would see at `place`, if anything.
    pub(crate) fn seen(&self, place: &Path) -> Result<Option<Metadata>> {
        match self.view.symlink_metadata(place) {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(refusal(Code::FixupFailed, place)(error)),
        }
    }

    fn put(
        &mut self,
        place: &Path,
        put: impl FnOnce(&Directory, &OsStr, Owner) -> io::Result<()>,
    ) -> Result<()> {
        let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else {
            return Err(Error::new(Code::FixupFailed, format!("{} is no file", place.display())));
        };
        self.tree(place)
            .and_then(|tree| {
                let directory = self.directory(parent, tree)?;
                put(&directory, name, self.owner(tree))
            })
            .map_err(refusal(Code::FixupFailed, place))
    }

    fn directory(&mut self, path: &Path, tree: Tree) -> io::Result<Directory> {
        if let Some((directory, _)) = self.made.get(&(tree, path.to_owned())) {
            return directory.try_clone();
        }
        let out = self.out(tree);
        let whiteout = match out.directory(path) {
            Ok(directory) => return Ok(directory),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(_) if tree == Tree::Upper && is_whiteout(&out.symlink_metadata(path)?) => true,
            Err(error) => return Err(error),
        };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::ENOENT.into());
        };
        let mut attributes = match self.view.directory(path) {
            Ok(seen) => seen.attributes()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Attributes::new(self.owner(tree), NEW_DIRECTORY)
            }
            Err(error) => return Err(error),
        };
        let parent = self.directory(parent, tree)?;
        if whiteout {
            // The container removed the directory: its lower content must not come back.
            parent.remove(name)?;
            attributes.xattrs.push((self.note("opaque").to_owned(), b"y".to_vec()));
        }
        parent.make_directory(name, &attributes)?;
        let mut directory = self.out(tree).directory(path)?;
        if self.fresh && tree == Tree::Front {
            directory = directory.into_own();
        }
        let answer = directory.try_clone()?;
        self.made.insert((tree, path.to_owned()), (directory, attributes));
        Ok(answer)
    }

    fn out(&self, tree: Tree) -> &Rootfs {
        match (&self.upper, tree) {
            (Some(upper), Tree::Upper) => &upper.rootfs,
            _ => &self.front,
        }
    }

    fn owner(&self, tree: Tree) -> Owner {
        match (&self.upper, tree) {
            (Some(upper), Tree::Upper) => upper.owner,
            _ => self.owner,
        }
    }

    /// The tree in which what is written at `place` will be seen.
    fn tree(&self, place: &Path) -> io::Result<Tree> {
        let Some(upper) = &self.upper else { return Ok(Tree::Front) };
        let mut ancestors: Vec<&Path> = place.ancestors().collect();
        ancestors.pop();
        for path in ancestors.into_iter().rev() {
            match upper.rootfs.symlink_metadata(path) {
                Ok(metadata) if path != place && metadata.is_dir() => {
                    let directory = upper.rootfs.directory(path)?;
                    if directory.has_xattr(self.note("opaque"))?
                        || directory.has_xattr(self.note("redirect"))?
                    {
                        return Ok(Tree::Upper);
                    }
                }
                Ok(_) => return Ok(Tree::Upper),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Tree::Front),
                Err(error) => return Err(error),
            }
        }
        Ok(Tree::Front)
    }

    /// The attribute in which overlayfs keeps a note of a directory.
    fn note(&self, note: &str) -> &'static CStr {
        let userxattr = self.upper.as_ref().is_some_and(|upper| upper.userxattr);
        match (note, userxattr) {
            ("opaque", false) => c"trusted.overlay.opaque",
            ("opaque", true) => c"user.overlay.opaque",
            (_, false) => c"trusted.overlay.redirect",
            (_, true) => c"user.overlay.redirect",
        }
    }
}

/// Whether overlayfs takes a name in the upper directory as removed: the device 0:0.
fn is_whiteout(metadata: &Metadata) -> bool {
    metadata.file_type().is_char_device() && metadata.rdev() == 0
}
