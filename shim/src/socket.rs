//! The two sockets of a group: their names, the lock under which they are made, and their end.
//!
//! The outer one is what containerd connects to, the inner one what the inner shim listens on.
//! Names are hashes with a prefix of our own, in the directory of the stock shim's sockets, so
//! that they collide with nobody's and fit into a socket address.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::sys::stat::{Mode, umask};
use sha2::{Digest, Sha256};

/// What tells one group of containers from another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group<'a> {
    /// Name of the `RuntimeClass` handler: each has its own relays.
    pub(crate) handler: &'a str,
    /// containerd's GRPC socket: several daemons share the directory.
    pub(crate) address: &'a str,
    pub(crate) namespace: &'a str,
    /// The sandbox id, or whatever the group annotation says.
    pub(crate) name: &'a str,
}

/// The socket files of a group.
#[derive(Debug)]
pub(crate) struct Sockets {
    pub(crate) outer: PathBuf,
    pub(crate) inner: PathBuf,
}

impl Sockets {
    /// Those of `group` in `dir`.
    pub(crate) fn of(group: Group<'_>, dir: &Path) -> Self {
        Self { outer: dir.join(name(group, "outer")), inner: dir.join(name(group, "inner")) }
    }

    /// The outer socket as containerd is told it.
    ///
    /// # Errors
    /// A directory that is not UTF-8.
    pub(crate) fn address(&self) -> io::Result<String> {
        let path = self.outer.to_str().ok_or_else(|| at(&self.outer, &not_text()))?;
        Ok(format!("unix://{path}"))
    }

    /// Takes the group's lock, making the directory where it is missing.
    ///
    /// # Errors
    /// Those of the system; the message names the file.
    pub(crate) fn lock(&self) -> io::Result<Lock> {
        if let Some(dir) = self.outer.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .map_err(|error| at(dir, &error))?;
        }
        Lock::take(self.outer.with_extension("lock"))
    }

    /// Whether somebody listens on the outer socket. Never blocks.
    pub(crate) fn is_live(&self) -> io::Result<bool> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        let address = UnixAddr::new(&self.outer)?;
        match connect(socket.as_raw_fd(), &address) {
            // EAGAIN: alive, with a full queue.
            Ok(()) | Err(Errno::EAGAIN) => Ok(true),
            Err(Errno::ECONNREFUSED | Errno::ENOENT) => Ok(false),
            Err(errno) => Err(at(&self.outer, &errno.into())),
        }
    }

    /// Makes both sockets, for root alone, in place of dead ones. Only under the lock.
    pub(crate) fn bind(&self, _lock: &Lock) -> io::Result<Bound<'_>> {
        self.unlink()?;
        // The process has one thread, and nothing else makes a file meanwhile.
        let before = umask(Mode::from_bits_truncate(0o177));
        let bound = self.bind_both();
        umask(before);
        bound
    }

    fn bind_both(&self) -> io::Result<Bound<'_>> {
        let outer = UnixListener::bind(&self.outer).map_err(|error| at(&self.outer, &error))?;
        let inner = UnixListener::bind(&self.inner).map_err(|error| {
            // The cause is reported; a stale name would be harmless.
            let _ = fs::remove_file(&self.outer);
            at(&self.inner, &error)
        })?;
        Ok(Bound { sockets: self, listeners: Some((outer, inner)) })
    }

    /// Unlinks both; only under the lock.
    pub(crate) fn unlink(&self) -> io::Result<()> {
        for path in [&self.outer, &self.inner] {
            unlink(path).map_err(|error| at(path, &error))?;
        }
        Ok(())
    }
}

/// Both sockets, listening. Their names go again unless somebody took them.
#[derive(Debug)]
pub(crate) struct Bound<'a> {
    sockets: &'a Sockets,
    listeners: Option<(UnixListener, UnixListener)>,
}

impl Bound<'_> {
    /// Hands the outer and the inner listener to `taker`; the names stay if it succeeds.
    pub(crate) fn hand_to<T>(
        mut self,
        taker: impl FnOnce(UnixListener, UnixListener) -> io::Result<T>,
    ) -> io::Result<T> {
        let (outer, inner) = self.listeners.take().ok_or(io::ErrorKind::NotFound)?;
        taker(outer, inner).inspect_err(|_| self.give_up())
    }

    fn give_up(&self) {
        // What made us give up is reported by the caller.
        let _ = self.sockets.unlink();
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        if self.listeners.is_some() {
            self.give_up();
        }
    }
}

/// The sockets that this process serves, and removes in the end.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) sockets: Sockets,
    outer: Option<FileId>,
    inner: Option<FileId>,
}

impl Served {
    /// Those that `start` made for this process; they are there as long as it lives.
    pub(crate) fn adopt(outer: &Path, inner: &Path) -> Self {
        let sockets = Sockets { outer: outer.to_owned(), inner: inner.to_owned() };
        Self { outer: FileId::of(outer), inner: FileId::of(inner), sockets }
    }

    /// Unlinks both. A name that a newer relay has by now stays: an inner shim of containerd 1.x
    /// unlinks the outer socket early, and the next `start` may have come since.
    ///
    /// # Errors
    /// Those of the system, with the file's name.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let _lock = self.sockets.lock()?;
        for (path, id) in [(&self.sockets.outer, self.outer), (&self.sockets.inner, self.inner)] {
            if id.is_some() && FileId::of(path) == id {
                unlink(path).map_err(|error| at(path, &error))?;
            }
        }
        Ok(())
    }
}

/// The lock of a group; its file goes with it.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    _file: Flock<File>,
}

impl Lock {
    fn take(path: PathBuf) -> io::Result<Self> {
        loop {
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(OFlag::O_NOFOLLOW.bits())
                .open(&path)
                .map_err(|error| at(&path, &error))?;
            let file = Flock::lock(file, FlockArg::LockExclusive)
                .map_err(|(_, errno)| at(&path, &errno.into()))?;
            let ours = file.metadata()?;
            // Whoever held it before unlinked it: then this is nobody's lock any more.
            if FileId::of(&path) == Some(FileId { dev: ours.dev(), ino: ours.ino() }) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Left behind it is an empty file that the next one uses.
        let _ = fs::remove_file(&self.path);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    dev: u64,
    ino: u64,
}

impl FileId {
    fn of(path: &Path) -> Option<Self> {
        let found = fs::symlink_metadata(path).ok()?;
        Some(Self { dev: found.dev(), ino: found.ino() })
    }
}

fn name(group: Group<'_>, role: &str) -> String {
    let mut hash = Sha256::new();
    for part in
        ["containerd-shim-nvidia", group.handler, group.address, group.namespace, group.name, role]
    {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn unlink(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn not_text() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not UTF-8")
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Group<'_> = Group {
        handler: "nvidia",
        address: "/run/containerd/containerd.sock",
        namespace: "k8s.io",
        name: "abc",
    };

    #[test]
    fn every_part_of_a_group_and_the_role_give_another_name() {
        let names = [
            name(GROUP, "outer"),
            name(GROUP, "inner"),
            name(Group { handler: "nvidia-cdi", ..GROUP }, "outer"),
            name(Group { address: "/other", ..GROUP }, "outer"),
            name(Group { namespace: "default", ..GROUP }, "outer"),
            name(Group { name: "abd", ..GROUP }, "outer"),
            name(Group { namespace: "k8s.i", name: "oabc", ..GROUP }, "outer"),
        ];
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        assert!(names.iter().all(|name| name.len() == 64));
    }

    #[test]
    fn sockets_are_made_for_root_alone_and_go_unless_kept() {
        let dir = tempfile::tempdir().unwrap();
        let sockets = Sockets::of(GROUP, &dir.path().join("s"));
        let lock = sockets.lock().unwrap();
        assert!(!sockets.is_live().unwrap());
        let bound = sockets.bind(&lock).unwrap();
        assert!(sockets.is_live().unwrap());
        assert_eq!(fs::metadata(&sockets.outer).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&sockets.inner).unwrap().mode() & 0o777, 0o600);
        drop(bound);
        assert!(!sockets.outer.exists() && !sockets.inner.exists());
        sockets.bind(&lock).unwrap().hand_to(|_, _| Ok(())).unwrap();
        assert!(sockets.outer.exists() && !sockets.is_live().unwrap());
        // Dead ones are replaced.
        let bound = sockets.bind(&lock).unwrap();
        assert!(sockets.is_live().unwrap());
        drop((bound, lock));
        assert_eq!(fs::read_dir(dir.path().join("s")).unwrap().count(), 0);
    }

    #[test]
    fn a_relay_removes_its_own_sockets_and_never_its_successors() {
        let dir = tempfile::tempdir().unwrap();
        let sockets = Sockets::of(GROUP, dir.path());
        let bound = sockets.bind(&sockets.lock().unwrap()).unwrap();
        let _listeners = bound.hand_to(|outer, inner| Ok((outer, inner))).unwrap();
        let old = Served::adopt(&sockets.outer, &sockets.inner);
        fs::remove_file(&sockets.outer).unwrap();
        fs::remove_file(&sockets.inner).unwrap();
        let _newer = UnixListener::bind(&sockets.outer).unwrap();
        let _newer_inner = UnixListener::bind(&sockets.inner).unwrap();
        old.remove().unwrap();
        assert!(sockets.outer.exists() && sockets.inner.exists());
        Served::adopt(&sockets.outer, &sockets.inner).remove().unwrap();
        assert!(!sockets.outer.exists() && !sockets.inner.exists());
    }

    #[test]
    fn one_at_a_time_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let inside = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let lock = Sockets::of(GROUP, dir.path()).lock().unwrap();
                        let order = std::sync::atomic::Ordering::SeqCst;
                        assert_eq!(inside.fetch_add(1, order), 0);
                        std::thread::yield_now();
                        inside.fetch_sub(1, order);
                        drop(lock);
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
