//! A mount namespace of a test's own, with an own `/run/containerd`.
//!
//! containerd keeps shim sockets, runc's state and `ctr`'s fifos at fixed paths there. In a
//! namespace, daemons of parallel tests do not meet, every mount in it is one of the test, and
//! none can stay behind on the machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;
use nix::unistd::mkdir;

/// The directory that each namespace has of its own.
pub(crate) const RUN: &str = "/run/containerd";

pub(crate) struct MountNamespace {
    handle: File,
    at_first: Mutex<Vec<String>>,
}

impl MountNamespace {
    /// With the procfs entries of `node`, the root of a simulated node, in place of the machine's.
    pub(crate) fn new(node: Option<&Path>) -> Self {
        fs::create_dir_all(RUN).expect(RUN);
        let node = node.map(Path::to_owned);
        let made = thread::spawn(move || -> nix::Result<_> {
            unshare(CloneFlags::CLONE_NEWNS)?;
            let none: Option<&str> = None;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
            mount(Some("tmpfs"), RUN, Some("tmpfs"), MsFlags::empty(), Some("mode=0711"))?;
            if let Some(node) = node {
                // A user namespace gets a procfs only where one is wholly visible.
                let whole = Path::new(RUN).join("proc");
                mkdir(&whole, Mode::S_IRWXU)?;
                mount(Some("proc"), &whole, Some("proc"), MsFlags::empty(), none)?;
                for entry in ["proc/driver", "proc/devices"] {
                    let place = Path::new("/").join(entry);
                    mount(Some(&node.join(entry)), &place, none, MsFlags::MS_BIND, none)?;
                }
            }
            Ok((File::open("/proc/thread-self/ns/mnt"), mounts("/proc/thread-self")))
        });
        let made = made.join().expect("thread").expect("a mount namespace (tests run as root)");
        Self { handle: made.0.expect("/proc/thread-self/ns/mnt"), at_first: Mutex::new(made.1) }
    }

    /// Takes the mounts of now for those that were there at first.
    pub(crate) fn settle(&self) {
        *self.at_first() = self.enter(|| mounts("/proc/thread-self"));
    }

    /// Runs `work` in the namespace; processes that it starts stay there.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                unshare(CloneFlags::CLONE_FS).expect("unshare");
                setns(&self.handle, CloneFlags::CLONE_NEWNS).expect("setns");
                work()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Mount points that were not there at first.
    pub(crate) fn new_mounts(&self) -> Vec<String> {
        let now = self.enter(|| mounts("/proc/thread-self"));
        let at_first = self.at_first();
        now.into_iter().filter(|point| !at_first.contains(point)).collect()
    }

    /// The processes in it.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let own = self.identity();
        processes().filter(|pid| identity(&format!("/proc/{pid}/ns/mnt")) == Some(own)).collect()
    }

    /// The names in a directory as it is here.
    pub(crate) fn names(&self, dir: &str) -> Vec<PathBuf> {
        let entries = self.enter(|| fs::read_dir(dir).map(|dir| dir.flatten().collect::<Vec<_>>()));
        entries.unwrap_or_default().iter().map(fs::DirEntry::path).collect()
    }

    fn at_first(&self) -> MutexGuard<'_, Vec<String>> {
        self.at_first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn identity(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        self.handle.metadata().expect("fstat of a namespace").ino()
    }
}

/// All processes of this machine.
pub(crate) fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn identity(namespace: &str) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    Some(fs::metadata(Path::new(namespace)).ok()?.ino())
}

fn mounts(process: &str) -> Vec<String> {
    let table = fs::read_to_string(format!("{process}/mountinfo")).expect("mountinfo");
    table.lines().filter_map(|line| line.split(' ').nth(4)).map(str::to_owned).collect()
}
