//! A root filesystem held by a directory handle. Every path of an image is resolved here, beneath
//! the handle and by the kernel (`openat2`, Linux 5.6), and nowhere else.
//!
//! Links in the tree mean what they mean to a process that has it as its root. Nothing leads out:
//! no link, no `..`, no magic link of procfs; no other mount, unless those of the container are
//! meant to be seen, as by a hook. Only regular files are ever opened for reading, so that a FIFO
//! or a device in place of one neither blocks nor answers.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nvidia_oci::{Code, Error};
use rustix::fs::Dir;

use crate::directory::Directory;

/// The kernel's own limit on links in one resolution (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;

/// More names than any real path has, those of links on the way included. Each costs a call, and
/// an image may hold 40 links of 2,000 names.
const MAX_NAMES: usize = 255;

/// `openat2` answers EAGAIN when a rename anywhere races with `..`; who renames without end is
/// refused.
const MAX_TRIES: usize = 128;

/// More entries of one directory than are ever looked at.
const MAX_ENTRIES: usize = 16 * 1024;

/// A root filesystem.
#[derive(Debug)]
pub struct Rootfs {
    root: OwnedFd,
    mounts: Mounts,
}

/// What becomes of mounts on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mounts {
    Refuse,
    /// Those of a container are a part of what it sees.
    Cross,
}

/// What becomes of links on the way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Links {
    Follow,
    /// For paths that were resolved before: a link that is there now was put there since.
    Refuse,
}

impl Rootfs {
    /// The tree at `directory` of the host, whose path is trusted.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self::held(nix::fcntl::open(directory, flags, Mode::empty())?))
    }

    /// The same, of a container: with what is mounted in it.
    pub fn of_container(directory: &Path) -> io::Result<Self> {
        Ok(Self { mounts: Mounts::Cross, ..Self::open(directory)? })
    }

    /// The tree whose root directory is `root`, such as that of a detached mount.
    pub(crate) fn held(root: OwnedFd) -> Self {
        Self { root, mounts: Mounts::Refuse }
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { root: self.root.try_clone()?, mounts: self.mounts })
    }

    /// Whether it is mounted so that nothing can be written.
    pub(crate) fn is_read_only(&self) -> io::Result<bool> {
        Ok(self.flags()?.contains(FsFlags::ST_RDONLY))
    }

    /// What its mount has.
    pub(crate) fn flags(&self) -> io::Result<FsFlags> {
        Ok(fstatvfs(&self.root)?.flags())
    }

    /// A path that leads to its root as long as it is held.
    pub(crate) fn by_handle(&self) -> String {
        format!("/proc/self/fd/{}", self.root.as_raw_fd())
    }

    /// What `path` is, links followed.
    pub fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        File::from(self.resolve(path, OFlag::O_PATH, Links::Follow)?).metadata()
    }

    /// What `path` is; links are followed in its parents only.
    pub fn symlink_metadata(&self, path: &Path) -> io::Result<Metadata> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW;
        File::from(self.resolve(path, flags, Links::Follow)?).metadata()
    }

    /// The target of the link `path`; links are followed in its parents only.
    pub fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let link = self.resolve(path, OFlag::O_PATH | OFlag::O_NOFOLLOW, Links::Follow)?;
        Ok(nix::fcntl::readlinkat(&link, "")?.into())
    }

    /// The regular file `path`, links followed.
    ///
    /// # Errors
    /// `InvalidInput` if it is something else, which is not opened.
    pub fn open_file(&self, path: &Path) -> io::Result<File> {
        let found = File::from(self.resolve(path, OFlag::O_PATH, Links::Follow)?);
        if !found.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        // Reopened through its handle: the very file that was just looked at, whatever the name
        // stands for by now.
        let reopened = format!("/proc/self/fd/{}", found.as_raw_fd());
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        Ok(nix::fcntl::open(reopened.as_str(), flags, Mode::empty())?.into())
    }

    /// The whole of the regular file `path`, links followed, but into no mount: what is read may be
    /// written into the image.
    ///
    /// # Errors
    /// `InvalidInput` if it is something else, `FileTooLarge` if it has more than `limit` bytes.
    pub fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let file = match self.mounts {
            Mounts::Refuse => self.open_file(path)?,
            Mounts::Cross => self.open_file(&self.place(path)?)?,
        };
        let size = file.metadata()?.len().min(limit).saturating_add(1);
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            let what = format!("larger than {limit} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        Ok(bytes)
    }

    /// `path` without links: what follows a component that does not exist is kept as it is.
    ///
    /// # Errors
    /// A component but the last is no directory, or there are more than 40 links or 255 names.
    pub fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        if path.components().nth(MAX_NAMES).is_some() {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let (mut done, mut pending) = self.without_links(path);
        let (mut links, mut names) = (0, 0);
        while let Some(name) = pending.pop() {
            names += 1;
            if names > MAX_NAMES {
                return Err(Errno::ENAMETOOLONG.into());
            }
            if name == ".." {
                done.pop();
                continue;
            }
            let candidate = done.join(&name);
            match self.symlink_metadata(&candidate) {
                Ok(metadata) if metadata.is_symlink() => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::ELOOP.into());
                    }
                    let target = self.read_link(&candidate)?;
                    if target.is_absolute() {
                        done = PathBuf::from("/");
                    }
                    pending.extend(components_reversed(&target));
                }
                Ok(_) => done = candidate,
                Err(error) if error.kind() == io::ErrorKind::NotFound => done = candidate,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// The same, of a path that is to be read or changed as the image's own. Its names may lead into
    /// a mount, but no link does: that may be a directory of the host, or a face of the kernel.
    ///
    /// # Errors
    /// `EXDEV` for such a link, and those of [`canonical`](Self::canonical).
    pub(crate) fn place(&self, path: &Path) -> io::Result<PathBuf> {
        let place = self.canonical(path)?;
        if place != path {
            let without_mounts = Self { root: self.root.try_clone()?, mounts: Mounts::Refuse };
            let is_missing = |path: &&Path| {
                let found = without_mounts.handle(path);
                found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
            };
            if let Some(path) = place.ancestors().find(|path| !is_missing(path)) {
                without_mounts.handle(path)?;
            }
        }
        Ok(place)
    }

    /// The longest start of `path` on which the kernel meets no link, and the rest, reversed.
    fn without_links(&self, path: &Path) -> (PathBuf, Vec<OsString>) {
        let plain = path.is_absolute() && !path.components().any(|c| c == Component::ParentDir);
        let no_link = |start: &&Path| match self.resolve(start, OFlag::O_PATH, Links::Refuse) {
            // Nor is there one before what is missing, and below that there is nothing.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
            Ok(_) => true,
        };
        let start = path.ancestors().filter(|_| plain).find(no_link);
        match start.and_then(|start| Some((start, path.strip_prefix(start).ok()?))) {
            Some((start, rest)) => (start.to_owned(), components_reversed(rest)),
            None => (PathBuf::from("/"), components_reversed(path)),
        }
    }

    /// The directory `path`, which is [canonical](Self::canonical): no link is followed.
    pub(crate) fn directory(&self, path: &Path) -> io::Result<Directory> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        Ok(Directory::held(self.resolve(path, flags, Links::Refuse)?))
    }

    /// The names in the directory `path`, links followed; sorted.
    ///
    /// # Errors
    /// `QuotaExceeded` if there are more than 16384.
    pub(crate) fn names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let mut names = Vec::new();
        for entry in Dir::new(self.resolve(path, flags, Links::Follow)?)? {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if name == "." || name == ".." {
                continue;
            }
            if names.len() == MAX_ENTRIES {
                let what = format!("more than {MAX_ENTRIES} entries");
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, what));
            }
            names.push(name);
        }
        names.sort_unstable();
        Ok(names)
    }

    /// A handle of the file or directory `path` on which no link may lie.
    pub(crate) fn handle(&self, path: &Path) -> io::Result<OwnedFd> {
        self.resolve(path, OFlag::O_PATH, Links::Refuse)
    }

    fn resolve(&self, path: &Path, flags: OFlag, links: Links) -> io::Result<OwnedFd> {
        let mut resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        if self.mounts == Mounts::Refuse {
            resolve |= ResolveFlag::RESOLVE_NO_XDEV;
        }
        if links == Links::Refuse {
            resolve |= ResolveFlag::RESOLVE_NO_SYMLINKS;
        }
        let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve);
        for _ in 0..MAX_TRIES {
            match openat2(&self.root, path, how) {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                answer => return Ok(answer?),
            }
        }
        Err(Errno::EAGAIN.into())
    }
}

/// Makes a refusal of what the system said of `path` in a root filesystem.
pub(crate) fn refusal(code: Code, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |error| match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOSYS) => Error::new(Code::KernelTooOld, "this kernel lacks openat2"),
        Some(Errno::EXDEV) => {
            let what = format!("another file system is mounted on the way to {}", path.display());
            Error::new(code, what)
        }
        _ => Error::caused(code, format!("{} in the root filesystem", path.display()), error),
    }
}

fn components_reversed(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter(|c| matches!(c, Component::Normal(_) | Component::ParentDir))
        .map(|c| c.as_os_str().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use nix::unistd::mkfifo;

    use super::*;

    fn tree() -> (tempfile::TempDir, Rootfs) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("root/usr/lib")).unwrap();
        fs::write(dir.path().join("root/usr/lib/x"), "inside").unwrap();
        fs::write(dir.path().join("secret"), "outside").unwrap();
        let rootfs = Rootfs::open(&dir.path().join("root")).unwrap();
        (dir, rootfs)
    }

    #[test]
    fn links_mean_what_they_mean_inside() {
        let (dir, rootfs) = tree();
        symlink("/usr/lib", dir.path().join("root/lib")).unwrap();
        symlink("../../../usr/lib/x", dir.path().join("root/usr/up")).unwrap();
        assert_eq!(rootfs.read(Path::new("/lib/x"), 10).unwrap(), b"inside");
        assert_eq!(rootfs.read(Path::new("/usr/up"), 10).unwrap(), b"inside");
        assert_eq!(rootfs.canonical(Path::new("/lib/x")).unwrap(), Path::new("/usr/lib/x"));
    }

    #[test]
    fn nothing_leads_out() {
        let (dir, rootfs) = tree();
        let secret = dir.path().join("secret");
        for target in ["../secret", "../../secret", secret.to_str().unwrap()] {
            symlink(target, dir.path().join("root/out")).unwrap();
            let error = rootfs.read(Path::new("/out"), 10).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{target}");
            fs::remove_file(dir.path().join("root/out")).unwrap();
        }
        assert!(rootfs.read(Path::new("../secret"), 10).is_err());
        symlink("/proc/self/root", dir.path().join("root/magic")).unwrap();
        assert!(rootfs.metadata(Path::new("/magic/etc")).is_err());
    }

    #[test]
    fn a_missing_tail_is_kept_below_resolved_parents() {
        let (dir, rootfs) = tree();
        symlink("usr/lib", dir.path().join("root/lib")).unwrap();
        symlink("/gone/away", dir.path().join("root/usr/lib/dangling")).unwrap();
        let canonical = |path: &str| rootfs.canonical(Path::new(path)).unwrap();
        assert_eq!(canonical("/lib/a/b"), Path::new("/usr/lib/a/b"));
        assert_eq!(canonical("/lib/dangling/c"), Path::new("/gone/away/c"));
        assert_eq!(canonical("/../lib/../lib"), Path::new("/usr/lib"));
        assert_eq!(canonical("/"), Path::new("/"));
    }

    #[test]
    fn a_loop_of_links_ends() {
        let (dir, rootfs) = tree();
        symlink("b", dir.path().join("root/a")).unwrap();
        symlink("a", dir.path().join("root/b")).unwrap();
        let error = rootfs.canonical(Path::new("/a/c")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::ELOOP as i32));
    }

    #[test]
    fn a_path_of_too_many_names_is_refused() {
        let (dir, rootfs) = tree();
        let long = "usr/../".repeat(100);
        symlink(format!("{long}long"), dir.path().join("root/long")).unwrap();
        for path in [Path::new("/long"), Path::new(&"/usr".repeat(400_000))] {
            let error = rootfs.canonical(path).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::ENAMETOOLONG as i32));
        }
        let deep = PathBuf::from("/usr".repeat(200));
        assert_eq!(rootfs.canonical(&deep).unwrap(), deep);
    }

    #[test]
    fn only_regular_files_are_opened() {
        let (dir, rootfs) = tree();
        mkfifo(&dir.path().join("root/fifo"), Mode::S_IRWXU).unwrap();
        for path in ["/fifo", "/usr"] {
            let error = rootfs.read(Path::new(path), 10).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
        let error = rootfs.read(Path::new("/usr/lib/x"), 5).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_resolved_path_with_a_link_is_refused() {
        let (dir, rootfs) = tree();
        symlink("usr", dir.path().join("root/link")).unwrap();
        assert!(rootfs.directory(Path::new("/usr/lib")).is_ok());
        assert!(rootfs.directory(Path::new("/link/lib")).is_err());
    }

    #[test]
    fn the_refusal_of_a_mount_on_the_way_names_the_path() {
        let error = refusal(Code::FixupFailed, Path::new("/etc"))(Errno::EXDEV.into());
        assert!(error.to_string().contains("mounted on the way to /etc"), "{error}");
    }
}
