//! Mounts of the spec, as covers of the root filesystem: what is written below one beforehand is
//! hidden. Where a hook can write into the mount, that is left to one; for the rest a person is told
//! what was left out, one line a mount.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use nvidia_oci::SpecMount;

use crate::Rootfs;

/// udev's names of GPUs, which hardly any program misses: not worth a line in every log.
pub(crate) const BY_BUS_ID: &str = "/dev/dri/by-path";

/// File systems of the kernel's own, in which there is nothing to write.
const OF_THE_KERNEL: [&str; 9] =
    ["proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "debugfs", "tracefs", "securityfs"];

/// The host's own system, where it is shown to a container: not ours to change.
const OF_THE_HOST: [&str; 11] =
    ["/", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/run", "/usr", "/usr/lib", "/var"];

/// What is seen of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// What is written beforehand.
    Free,
    /// What is in a mount, into which a hook can write.
    InMount,
    /// A mount, or what is in one that cannot be written.
    Hidden,
}

/// A mount, at its resolved place.
#[derive(Debug)]
struct Cover {
    place: PathBuf,
    /// Whether it shows files of the host, such as a volume.
    bind: bool,
    /// Whether a hook can write into it.
    writable: bool,
    /// What was left out below it.
    hidden: Vec<PathBuf>,
    /// Mount points that runc makes in it.
    held: Vec<PathBuf>,
}

/// The mounts of a spec, in their order.
#[derive(Debug, Default)]
pub(crate) struct Covers {
    covers: Vec<Cover>,
    by_place: HashMap<PathBuf, usize>,
}

impl Covers {
    /// Resolves the destinations as runc does, in the root filesystem.
    pub(crate) fn new(view: &Rootfs, mounts: &[SpecMount<'_>]) -> Self {
        let cover = |mount: &SpecMount<'_>| Cover {
            // What cannot be resolved, runc refuses in its own words.
            place: view
                .canonical(mount.destination)
                .unwrap_or_else(|_| Path::new("/").join(mount.destination)),
            bind: is_bind(mount),
            writable: is_writable(mount),
            hidden: Vec::new(),
            held: Vec::new(),
        };
        let covers: Vec<Cover> = mounts.iter().map(cover).collect();
        let by_place =
            covers.iter().enumerate().map(|(index, cover)| (cover.place.clone(), index)).collect();
        Self { covers, by_place }
    }

    /// Where each mount of the spec lies.
    pub(crate) fn places(&self) -> Vec<PathBuf> {
        self.covers.iter().map(|cover| cover.place.clone()).collect()
    }

    /// Whether a mount hides `place`.
    pub(crate) fn hide(&self, place: &Path) -> bool {
        place.ancestors().any(|path| self.by_place.contains_key(path))
    }

    /// What the container will see at `place`, which `path` leads to. What is hidden is left out, and
    /// that is noted; so is what a link of the image leads into a mount, where it may do harm.
    pub(crate) fn look(&mut self, place: &Path, path: &Path) -> Sight {
        match self.find(place.ancestors()) {
            None => Sight::Free,
            Some(cover) if cover.writable && cover.place != place && place == path => {
                Sight::InMount
            }
            Some(cover) => {
                if !path.starts_with(BY_BUS_ID) {
                    cover.hidden.push(path.to_owned());
                }
                Sight::Hidden
            }
        }
    }

    /// Whether the mount point `place` lies in a mount, where it is runc that makes it. In files
    /// of the host that is noted.
    pub(crate) fn hold(&mut self, place: &Path) -> bool {
        let cover = self.find(place.ancestors().skip(1));
        let held = cover.is_some();
        if let Some(cover) = cover.filter(|cover| cover.bind) {
            cover.held.push(place.to_owned());
        }
        held
    }

    fn find<'a>(&mut self, mut paths: impl Iterator<Item = &'a Path>) -> Option<&mut Cover> {
        let index = paths.find_map(|path| self.by_place.get(path).copied())?;
        self.covers.get_mut(index)
    }

    /// What a person should know.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for cover in &self.covers {
            let place = cover.place.display();
            if let Some(paths) = some(&cover.hidden) {
                warnings.push(format!("left out, as the mount at {place} would hide it: {paths}"));
            }
            if let Some(paths) = some(&cover.held) {
                warnings
                    .push(format!("runc will make mount points in the mount at {place}: {paths}"));
            }
        }
        warnings
    }
}

fn is_bind(mount: &SpecMount<'_>) -> bool {
    mount.kind == Some("bind")
        || mount.options.iter().any(|&option| option == "bind" || option == "rbind")
}

fn is_writable(mount: &SpecMount<'_>) -> bool {
    let read_only = ["ro", "rro"];
    let is_of = |list: &[&str], name: Option<&str>| name.is_some_and(|name| list.contains(&name));
    let of_the_host = is_bind(mount) && is_of(&OF_THE_HOST, mount.source.and_then(Path::to_str));
    let taboo = of_the_host || is_of(&OF_THE_KERNEL, mount.kind);
    !taboo && !mount.options.iter().any(|option| read_only.contains(option))
}

/// The paths, shortened to what a line of a log can hold.
pub(crate) fn some(paths: &[PathBuf]) -> Option<String> {
    const SHOWN: usize = 3;
    let (first, rest) = paths.split_first()?;
    let mut line = first.display().to_string();
    for path in rest.iter().take(SHOWN - 1) {
        line.push_str(&format!(", {}", path.display()));
    }
    if paths.len() > SHOWN {
        line.push_str(&format!(" and {} more", paths.len() - SHOWN));
    }
    Some(line)
}
