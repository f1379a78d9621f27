//! Where fix-ups are written: a fresh layer in front of the image's, the upper directory of an
//! overlay where that hides the layer, or the root filesystem itself.
//!
//! Paths are resolved in what the container will see (the view), and then written without
//! following any link. Directories that a layer shares with the image get the image's attributes,
//! since those of the topmost layer are what the container sees.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::errno::Errno;
use nvidia_oci::{Code, Error, Result};

use crate::Rootfs;
use crate::covers::{Covers, Sight};
use crate::directory::{Attributes, Directory, Owner};
use crate::rootfs::refusal;
use crate::upper::Upper;
use crate::work::Work;

const NEW_DIRECTORY: u32 = 0o755;
const NEW_FILE: u32 = 0o644;
const PERMISSIONS: u32 = 0o777;

/// The tree that a path is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tree {
    Front,
    Upper,
}

/// Where a path of the container lies.
#[derive(Debug)]
pub(crate) enum Place {
    /// Here, links on the way resolved, the last component kept.
    Here(PathBuf),
    /// In a mount of the spec, where only a hook can write.
    InMount,
    /// A mount of the spec hides it; that is noted.
    Hidden,
}

impl Place {
    /// The place, where it can be written now.
    pub(crate) fn here(self) -> Option<PathBuf> {
        match self {
            Self::Here(place) => Some(place),
            Self::InMount | Self::Hidden => None,
        }
    }
}

/// What is left when all is written.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// For a person, in the log.
    pub warnings: Vec<String>,
    pub by_hook: Work,
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
    by_hook: Work,
    /// Directories of places, links resolved, by the path that was asked for.
    parents: HashMap<PathBuf, PathBuf>,
    /// Directories made here; their times are set when all is written.
    made: BTreeMap<(Tree, PathBuf), (Rc<Directory>, Attributes)>,
    /// The first empty file in a layer of ours.
    empty: Option<(Rc<Directory>, OsString)>,
}

impl<'a> Target<'a> {
    /// Writes into the root filesystem itself.
    pub(crate) fn in_place(view: &'a Rootfs, owner: Owner, covers: Covers) -> Result<Self> {
        let front = view.try_clone().map_err(refusal(Code::FixupFailed, Path::new("/")))?;
        Ok(Self::new(view, front, owner, covers))
    }

    fn new(view: &'a Rootfs, front: Rootfs, owner: Owner, covers: Covers) -> Self {
        Self {
            view,
            front,
            fresh: false,
            upper: None,
            owner,
            covers,
            by_hook: Work::default(),
            parents: HashMap::new(),
            made: BTreeMap::new(),
            empty: None,
        }
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
                Ok(BTreeMap::from([(
                    (Tree::Front, root.to_owned()),
                    (Rc::new(directory), attributes),
                )]))
            })
            .map_err(refusal(Code::FixupFailed, root))?;
        Ok(Self { fresh: true, upper, made, ..Self::new(view, layer, owner, covers) })
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

    /// What is left to a hook.
    pub(crate) fn by_hook(&mut self) -> &mut Work {
        &mut self.by_hook
    }

    /// Whether what is at `place` may be ours, of an earlier start: everywhere but in a fresh layer.
    pub(crate) fn holds_own(&mut self, place: &Path) -> Result<bool> {
        let tree = self.tree(place).map_err(refusal(Code::FixupFailed, place))?;
        Ok(!self.fresh || tree == Tree::Upper)
    }

    /// Where `path` of the container lies.
    pub(crate) fn place(&mut self, path: &Path) -> Result<Place> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::new(Code::FixupFailed, format!("{} is no file", path.display())));
        };
        let place = match self.parents.get(parent) {
            Some(known) => known.join(name),
            None => {
                let known = self.view.place(parent);
                let known = known.map_err(refusal(Code::FixupFailed, path))?;
                let place = known.join(name);
                self.parents.insert(parent.to_owned(), known);
                place
            }
        };
        Ok(match self.covers.look(&place, path) {
            Sight::Free => Place::Here(place),
            Sight::InMount => Place::InMount,
            Sight::Hidden => Place::Hidden,
        })
    }

    /// Puts a file at a [place](Self::place), with owner and permissions of a file that it takes
    /// the place of.
    pub(crate) fn put_file(&mut self, place: &Path, bytes: &[u8]) -> Result<()> {
        self.put_file_of(place, bytes, NEW_FILE)
    }

    /// The same, with permissions for one that is new.
    pub(crate) fn put_file_of(&mut self, place: &Path, bytes: &[u8], mode: u32) -> Result<()> {
        let old = self
            .seen(place)?
            .filter(Metadata::is_file)
            .map(|old| (Owner { uid: old.uid(), gid: old.gid() }, old.mode() & PERMISSIONS));
        self.put(place, |directory, name, owner| {
            let (owner, mode) = old.unwrap_or((owner, mode));
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
                made = Some((Rc::clone(directory), name.to_owned()));
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

    /// Sets the times of the directories that the image has too.
    pub(crate) fn finish(self) -> Result<Left> {
        for (directory, attributes) in self.made.values() {
            directory.set_times(attributes).map_err(refusal(Code::FixupFailed, Path::new("/")))?;
        }
        Ok(Left { warnings: self.covers.warnings(), by_hook: self.by_hook })
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
        put: impl FnOnce(&Rc<Directory>, &OsStr, Owner) -> io::Result<()>,
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

    fn directory(&mut self, path: &Path, tree: Tree) -> io::Result<Rc<Directory>> {
        if let Some((directory, _)) = self.made.get(&(tree, path.to_owned())) {
            return Ok(Rc::clone(directory));
        }
        let mut attributes = Attributes::new(self.owner(tree), NEW_DIRECTORY);
        let mut whiteout = false;
        // All that a fresh layer has was made here.
        if !self.fresh || tree == Tree::Upper {
            match self.out(tree).directory(path) {
                Ok(directory) => return Ok(Rc::new(directory)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => match &self.upper {
                    Some(upper) if tree == Tree::Upper && upper.is_whiteout(path)? => {
                        whiteout = true;
                    }
                    _ => return Err(error),
                },
            }
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::ENOENT.into());
        };
        match self.view.directory(path) {
            Ok(seen) => attributes = seen.attributes()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let parent = self.directory(parent, tree)?;
        if let Some(upper) = self.upper.as_ref().filter(|_| whiteout) {
            // The container removed the directory: its lower content must not come back.
            parent.remove(name)?;
            attributes.xattrs.push((upper.opaque().to_owned(), b"y".to_vec()));
        }
        let directory = match parent.make_directory(name, &attributes)? {
            Some(made) => Rc::new(made),
            None => Rc::new(self.out(tree).directory(path)?),
        };
        self.made.insert((tree, path.to_owned()), (Rc::clone(&directory), attributes));
        Ok(directory)
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
    fn tree(&mut self, place: &Path) -> io::Result<Tree> {
        let hidden = self.upper.as_mut().map_or(Ok(false), |upper| upper.hides(place))?;
        Ok(if hidden { Tree::Upper } else { Tree::Front })
    }
}
