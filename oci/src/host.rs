//! Where things on the host are looked for: one tree below one prefix.
//!
//! `/` is the real host; a simulated node or a driver root is the same tree below another prefix.
//! Links are followed as a process chrooted into the tree would: an absolute target starts again
//! at the prefix, and `..` never leaves it. Paths handed in and out are those of the tree itself,
//! absolute and without the prefix.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The kernel's own limit on links in one resolution (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;

/// The files of procfs, sysfs and configuration that are read whole have less.
const USUAL_SIZE: usize = 4096;

/// A file tree below a prefix.
///
/// Directories on the way to files are resolved once in the life of a value, which is that of one
/// decision: a decision looks at a few directories, there or not, hundreds of times.
#[derive(Clone, Debug)]
pub struct Host {
    prefix: PathBuf,
    /// Links resolved, by the path that was asked for; `None` is missing.
    directories: Arc<Mutex<HashMap<OsString, Option<PathBuf>>>>,
}

/// What a path leads to.
pub(crate) struct Found {
    /// Without links.
    pub path: PathBuf,
    pub metadata: Metadata,
}

impl Host {
    /// The tree below `prefix`.
    pub fn new(prefix: impl Into<PathBuf>) -> Self {
        Self { prefix: prefix.into(), directories: Arc::default() }
    }

    /// The same tree, of which nothing is known yet.
    pub fn afresh(&self) -> Self {
        Self::new(self.prefix.clone())
    }

    /// The tree below `root`, a directory of this tree, as a driver root is: absolute links in it
    /// resolve below it. It may itself be reached by links.
    pub fn below(&self, root: &Path) -> Self {
        let resolved = self.resolve(root);
        Self::new(self.join(resolved.as_deref().unwrap_or(root)))
    }

    /// The directory on this machine at which the tree begins.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Where `path` of the tree lies on this machine; no link is followed.
    pub fn join(&self, path: &Path) -> PathBuf {
        below(&self.prefix, path)
    }

    /// Follows every link of `path` inside the tree.
    ///
    /// # Errors
    /// `NotFound` if a component is missing, `FilesystemLoop` (as `Other`) after 40 links.
    pub fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(self.find(path)?.path)
    }

    /// As [`Self::resolve`], with what is there.
    pub(crate) fn find(&self, path: &Path) -> io::Result<Found> {
        self.follow(path, 0)
    }

    /// After `links` links that led here.
    fn follow(&self, path: &Path, links: usize) -> io::Result<Found> {
        let mut done = match path.parent() {
            Some(parent) => self.directory(parent, links)?,
            None => PathBuf::from("/"),
        };
        match path.file_name() {
            Some(name) => done.push(name),
            // `..` is where the directory before it really lies.
            None => _ = done.pop(),
        }
        let real = self.join(&done);
        let metadata = fs::symlink_metadata(&real)?;
        if !metadata.is_symlink() || path.file_name().is_none() {
            return Ok(Found { path: done, metadata });
        }
        if links == MAX_LINKS {
            return Err(io::Error::other(format!("too many links at {}", path.display())));
        }
        done.pop();
        self.follow(&done.join(fs::read_link(&real)?), links + 1)
    }

    fn directory(&self, path: &Path, links: usize) -> io::Result<PathBuf> {
        let known = || self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(resolved) = known().get(path.as_os_str()) {
            return resolved.clone().ok_or_else(|| io::ErrorKind::NotFound.into());
        }
        let resolved = match self.follow(path, links) {
            Ok(found) => Some(found.path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        known().insert(path.into(), resolved.clone());
        resolved.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// What `path` is, links followed.
    pub fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        Ok(self.find(path)?.metadata)
    }

    /// What `path` is; links are followed in its parents only.
    pub fn symlink_metadata(&self, path: &Path) -> io::Result<Metadata> {
        fs::symlink_metadata(self.join(&self.resolve_parent(path)?))
    }

    /// The target of the link `path`; links are followed in its parents only.
    pub fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        fs::read_link(self.join(&self.resolve_parent(path)?))
    }

    /// Whether `path` exists, links followed.
    pub fn exists(&self, path: &Path) -> bool {
        self.resolve(path).is_ok()
    }

    /// The file `path`, links followed, opened for reading.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        File::open(self.join(&self.resolve(path)?))
    }

    /// The whole of the file `path`, links followed.
    ///
    /// # Errors
    /// `InvalidData` if it has more than `limit` bytes.
    pub fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(USUAL_SIZE);
        self.open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            let what = format!("{} is larger than {limit} bytes", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(bytes)
    }

    /// As [`Self::read`], as text; bytes that are not UTF-8 are replaced.
    pub fn read_text(&self, path: &Path, limit: u64) -> io::Result<String> {
        let bytes = self.read(path, limit)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// The names in the directory `path`, links followed, in byte order.
    pub fn read_dir(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let directory = fs::read_dir(self.join(&self.resolve(path)?))?;
        let mut names =
            directory.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn resolve_parent(&self, path: &Path) -> io::Result<PathBuf> {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => Ok(self.directory(parent, 0)?.join(name)),
            _ => self.resolve(path),
        }
    }
}

/// `path` below `root`; no link is followed, and no `..` counts.
pub(crate) fn below(root: &Path, path: &Path) -> PathBuf {
    let length = root.as_os_str().len() + path.as_os_str().len() + 1;
    let mut joined = PathBuf::with_capacity(length);
    joined.push(root);
    joined.extend(path.components().filter(|c| matches!(c, Component::Normal(_))));
    joined
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree() -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("usr/lib")).unwrap();
        fs::write(dir.path().join("usr/lib/x"), "x").unwrap();
        let host = Host::new(dir.path());
        (dir, host)
    }

    #[test]
    fn absolute_links_stay_below_the_prefix() {
        let (dir, host) = tree();
        symlink("/usr/lib", dir.path().join("lib")).unwrap();
        assert_eq!(host.resolve(Path::new("/lib/x")).unwrap(), Path::new("/usr/lib/x"));
        assert_eq!(host.read(Path::new("/lib/x"), 10).unwrap(), b"x");
    }

    #[test]
    fn a_root_that_is_a_link_is_found_in_the_tree() {
        let (dir, host) = tree();
        symlink("/usr", dir.path().join("driver")).unwrap();
        let driver = host.below(Path::new("/driver"));
        assert_eq!(driver.prefix(), dir.path().join("usr"));
        assert!(driver.exists(Path::new("/lib/x")));
    }

    #[test]
    fn parents_do_not_lead_out() {
        let (dir, host) = tree();
        symlink("../../../../usr/lib/x", dir.path().join("usr/up")).unwrap();
        assert_eq!(host.resolve(Path::new("/usr/up")).unwrap(), Path::new("/usr/lib/x"));
        assert_eq!(host.join(Path::new("/../../etc")), dir.path().join("etc"));
    }

    #[test]
    fn what_follows_a_link_is_below_its_target() {
        let (dir, host) = tree();
        fs::create_dir(dir.path().join("etc")).unwrap();
        fs::write(dir.path().join("usr/y"), "y").unwrap();
        symlink("../usr/lib", dir.path().join("etc/lib")).unwrap();
        symlink("/etc/lib/x", dir.path().join("usr/lib/z")).unwrap();
        // Twice: the second time the directories are known.
        for _ in 0..2 {
            assert_eq!(host.resolve(Path::new("/etc/lib/../y")).unwrap(), Path::new("/usr/y"));
            assert_eq!(host.resolve(Path::new("etc/lib/z")).unwrap(), Path::new("/usr/lib/x"));
            assert!(!host.exists(Path::new("/etc/lib/none/x")));
        }
    }

    #[test]
    fn a_loop_of_links_ends() {
        let (dir, host) = tree();
        symlink("b", dir.path().join("a")).unwrap();
        symlink("a", dir.path().join("b")).unwrap();
        symlink("c/d", dir.path().join("c")).unwrap();
        for path in ["/a", "/a/x", "/c"] {
            let error = host.resolve(Path::new(path)).unwrap_err();
            assert!(error.to_string().contains("too many links"), "{error}");
        }
    }

    #[test]
    fn a_file_over_the_limit_is_refused() {
        let (_dir, host) = tree();
        assert_eq!(
            host.read(Path::new("/usr/lib/x"), 0).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }
}
