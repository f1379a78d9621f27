//! Whether something changed that a spec describes. Directories tell by inotify; procfs and mounts
//! do not, and are looked at now and then.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use nix::sys::signalfd::SignalFd;
use nvidia_oci::Host;
use nvidia_oci::cdi::Spec;

/// Between looks at what no event tells of.
const INTERVAL: Duration = Duration::from_secs(5);
/// Without an event for so long, an installation is taken to be done.
const SETTLED: Duration = Duration::from_secs(1);
/// An installation that takes longer is described twice.
const MOST_EVENTS: usize = 100;
/// Directories of device nodes, and how names in them begin that matter.
const NODE_DIRS: [&str; 4] =
    ["/dev", "/dev/dri", "/dev/nvidia-caps", "/dev/nvidia-caps-imex-channels"];
const NODES: [&str; 6] = ["nvidia", "dri", "card", "renderD", "channel", "gdrdrv"];
/// What the kernel driver tells of itself.
const KERNEL: [&str; 5] = [
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/params",
    "/proc/driver/nvidia/gpus",
    "/proc/driver/nvidia/capabilities",
    "/proc/devices",
];
const DEEPEST: usize = 6;
const LARGEST: u64 = 1 << 20;

/// Directories that matter, as the host names them.
#[derive(Debug)]
pub(super) struct Directories(BTreeSet<PathBuf>);

/// What events do not tell.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Of the kernel driver.
    texts: Vec<String>,
    /// Device and inode of each directory: another where something else is mounted by now.
    identities: Vec<Option<(u64, u64)>>,
}

/// Events of directories.
#[derive(Debug)]
pub(super) struct Changes {
    inotify: Inotify,
    /// Whether the directory is one of device nodes.
    watched: HashMap<WatchDescriptor, bool>,
}

enum Woken {
    Signal,
    Event,
    Nothing,
}

impl Directories {
    /// Those of a spec, and those of device nodes.
    pub(super) fn of(spec: Option<&Spec>) -> Self {
        let edits = spec
            .iter()
            .flat_map(|spec| spec.devices.iter().map(|device| &device.edits).chain([&spec.edits]));
        let mut directories: BTreeSet<PathBuf> = NODE_DIRS.map(PathBuf::from).into();
        for edits in edits {
            let files = edits.mounts.iter().map(|mount| &mount.host_path);
            let nodes = edits.device_nodes.iter().map(|node| &node.host_path);
            let parents = files.chain(nodes).filter_map(|path| Path::new(path).parent());
            directories.extend(parents.filter(|it| it.is_absolute()).map(Path::to_path_buf));
        }
        Self(directories)
    }

    pub(super) fn watch(&self, host: &Host) -> anyhow::Result<Changes> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let events = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVE
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        let mut watched = HashMap::new();
        for directory in &self.0 {
            let Ok(resolved) = host.resolve(directory) else { continue };
            match inotify.add_watch(&host.join(&resolved), events) {
                Ok(watch) => drop(watched.insert(watch, directory.iter().any(|it| it == "dev"))),
                Err(Errno::ENOENT | Errno::ENOTDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Changes { inotify, watched })
    }
}

impl Look {
    pub(super) fn at(host: &Host, directories: &Directories) -> Self {
        let host = host.afresh();
        let mut texts = Vec::new();
        for path in KERNEL {
            collect(&host, Path::new(path), DEEPEST, &mut texts);
        }
        let identity = |directory: &PathBuf| {
            let found = host.metadata(directory).ok()?;
            Some((found.dev(), found.ino()))
        };
        Self { texts, identities: directories.0.iter().map(identity).collect() }
    }
}

/// The text of a file, or those of all files in a directory, each with its path.
fn collect(host: &Host, path: &Path, depth: usize, texts: &mut Vec<String>) {
    match host.read_dir(path) {
        Ok(names) if depth > 0 => {
            names.iter().for_each(|name| collect(host, &path.join(name), depth - 1, texts));
        }
        Ok(_) => {}
        Err(_) => {
            let text = host.read_text(path, LARGEST).unwrap_or_default();
            texts.push(format!("{} {text}", path.display()));
        }
    }
}

impl Changes {
    /// Waits until something changes, be it that `is_other` says so, and then until it changes no
    /// more; says no if a signal came.
    pub(super) fn wait(
        &self,
        signals: &SignalFd,
        is_other: impl Fn() -> bool,
    ) -> anyhow::Result<bool> {
        let mut look = Instant::now() + INTERVAL;
        loop {
            let left = look.saturating_duration_since(Instant::now());
            match self.next(signals, left)? {
                Woken::Signal => return Ok(false),
                Woken::Event => break,
                // Something that does not matter, in a directory that does.
                Woken::Nothing if Instant::now() < look => {}
                Woken::Nothing if is_other() => return Ok(true),
                Woken::Nothing => look = Instant::now() + INTERVAL,
            }
        }
        for _ in 0..MOST_EVENTS {
            match self.next(signals, SETTLED)? {
                Woken::Signal => return Ok(false),
                Woken::Event => {}
                Woken::Nothing => break,
            }
        }
        Ok(true)
    }

    fn next(&self, signals: &SignalFd, time: Duration) -> anyhow::Result<Woken> {
        let mut sources = [self.inotify.as_fd(), signals.as_fd()]
            .map(|source| PollFd::new(source, PollFlags::POLLIN));
        // Rounded up: a wait for less than a millisecond is not to be none.
        let milliseconds = u16::try_from(time.as_millis() + 1).unwrap_or(u16::MAX);
        match poll(&mut sources, PollTimeout::from(milliseconds)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        if sources[1].any() == Some(true) {
            return Ok(Woken::Signal);
        }
        let events = match self.inotify.read_events() {
            Err(Errno::EAGAIN) => Vec::new(),
            events => events?,
        };
        let matters = events.iter().any(|event| {
            let name = event.name.as_deref().unwrap_or_default().as_encoded_bytes();
            let of_nodes = self.watched.get(&event.wd) == Some(&true);
            !of_nodes || NODES.iter().any(|begin| name.starts_with(begin.as_bytes()))
        });
        Ok(if matters { Woken::Event } else { Woken::Nothing })
    }
}
