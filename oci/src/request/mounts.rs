//! Lists of devices by volume mounts: `/dev/null` mounted below one directory, where the name of
//! the place is what is asked for. Who may mount is checked by the scheduler, unlike who may set a
//! variable.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use crate::{Spec, SpecMount};

/// Where the places are.
pub(super) const DIRECTORY: &str = "/var/run/nvidia-container-devices";
const SOURCE: &str = "/dev/null";

/// What is asked for by mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountList {
    /// GPUs, each once, in the order of the mounts: `0`, `GPU-…`, `all`, `vendor/class=name`.
    pub(crate) devices: Vec<String>,
    /// IMEX channels: `imex/0`.
    pub(crate) imex_channels: Vec<String>,
    /// Places whose names mean nothing.
    pub(crate) malformed: Vec<PathBuf>,
    /// Items of both lists; those of the second with `true`.
    seen: HashSet<(bool, String)>,
}

impl MountList {
    pub(crate) fn of(spec: &Spec) -> Self {
        Self::of_mounts(spec.mounts().map(|SpecMount { source, destination, .. }| {
            (source.unwrap_or(Path::new("")), destination)
        }))
    }

    /// Of pairs of source and destination.
    pub(super) fn of_mounts<'a>(mounts: impl Iterator<Item = (&'a Path, &'a Path)>) -> Self {
        let mut list = Self::default();
        for (source, destination) in mounts {
            if source.as_os_str() == SOURCE {
                list.take(destination);
            }
        }
        list
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.imex_channels.is_empty()
    }

    fn take(&mut self, destination: &Path) {
        let place = cleaned(destination);
        let Ok(name) = place.strip_prefix(DIRECTORY) else { return };
        let Some(name) = name.to_str() else {
            self.malformed.push(place);
            return;
        };
        let (is_channel, item) = match name.split_once('/') {
            _ if name.is_empty() => return,
            None if name == "cdi" || name == "imex" => (false, None),
            Some(("imex", channel)) => (true, Some(channel.to_owned())),
            Some(("cdi", device)) => (false, qualified(device)),
            _ => (false, Some(name.to_owned())),
        };
        let list = if is_channel { &mut self.imex_channels } else { &mut self.devices };
        match item {
            None => self.malformed.push(place),
            Some(item) if self.seen.insert((is_channel, item.clone())) => list.push(item),
            Some(_) => {}
        }
    }
}

/// `vendor/class=name` of `vendor/class/name` or of itself.
fn qualified(place: &str) -> Option<String> {
    let (vendor, rest) = place.split_once('/')?;
    let (class, name) = rest.split_once('=').or_else(|| rest.split_once('/'))?;
    let is_filled = |part: &str| !part.is_empty();
    let whole = [vendor, class, name].into_iter().all(is_filled) && !name.contains('/');
    whole.then(|| format!("{vendor}/{class}={name}"))
}

/// The path without `.`, `..` and doubled slashes, by its text alone: nothing of it exists yet.
fn cleaned(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) | Component::Normal(_) => {
                clean.push(component);
            }
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(places: &[&str]) -> MountList {
        let places: Vec<_> = places.iter().map(|place| format!("{DIRECTORY}{place}")).collect();
        MountList::of_mounts(places.iter().map(|place| (Path::new("/dev/null"), Path::new(place))))
    }

    #[test]
    fn names_are_those_of_places_below_the_directory() {
        let mounts = list(&["/0", "//GPU-a/", "/./all", "/0", "/imex/3", "/x/../1"]);
        assert_eq!(mounts.devices, ["0", "GPU-a", "all", "1"]);
        assert_eq!(mounts.imex_channels, ["3"]);
        assert_eq!(list(&["", "/", "-x/0", "/..", "/../y/0"]), MountList::default());
        let other = [(Path::new("/dev/zero"), Path::new("/var/run/nvidia-container-devices/0"))];
        assert!(MountList::of_mounts(other.into_iter()).is_empty());
    }

    /// Each is looked at once, however many there are.
    #[test]
    fn of_many_places_each_is_listed_once() {
        let places: Vec<String> = (0..300_000).map(|n| format!("/{}", n % 150_000)).collect();
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        assert_eq!(list(&places).devices.len(), 150_000);
    }

    #[test]
    fn names_of_cdi_are_written_in_two_ways() {
        let mounts = list(&["/cdi/nvidia.com/gpu/0", "/cdi/nvidia.com/gpu=0", "/cdi/a.b/c=1:2"]);
        assert_eq!(mounts.devices, ["nvidia.com/gpu=0", "a.b/c=1:2"]);
        let malformed =
            list(&["/cdi", "/cdi/nvidia.com", "/cdi/nvidia.com/gpu", "/cdi/a/b=", "/imex"]);
        assert!(malformed.is_empty());
        assert_eq!(malformed.malformed.len(), 5);
    }
}
