//! CUDA forward compatibility: an image may bring a newer libcuda for an older driver of the host.
//! Where it fits, its directory is named to the loader before those of the driver.
//!
//! Rules of choice: NVIDIA's `enable-cuda-compat`. The directory is written to a file of ours, from
//! which the loader's cache is made afterwards (`folders`), and ldconfig too.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nvidia_oci::elf;
use nvidia_oci::{Code, CudaCompat, Result};
use serde_json::Value;

use crate::rootfs::refusal;
use crate::target::{Place, Target};
use crate::{Rootfs, ldcache};

/// Before the directories of the driver, which are in `00-nvidia-shim.conf` or NVIDIA's `00-nvcr-…`.
const CONFIG: &str = "/etc/ld.so.conf.d/00-compat-nvidia-shim.conf";
/// A path and its end of line.
const MAX_CONFIG: u64 = 4097;
const NOTE: &str = ".note.cuda.fwd_compatibility";
const OWNER: &str = "NVIDIA Corporation";

/// Names the directory to the loader, or, where it does not fit (any more), takes its name away and
/// its libraries out of the `cache` of the image. The answer is the directory that is named now.
pub(crate) fn apply(
    target: &mut Target<'_>,
    compat: &CudaCompat,
    cache: Option<&mut ldcache::Found>,
) -> Result<Option<PathBuf>> {
    let chosen =
        choose(target.view(), compat).map_err(refusal(Code::FixupFailed, &compat.directory))?;
    let before = configured(target.view());
    if chosen != before {
        let place = match target.place(Path::new(CONFIG))? {
            Place::Here(place) => place,
            Place::InMount => {
                target.by_hook().compat = Some(compat.clone());
                return Ok(None);
            }
            Place::Hidden => return Ok(None),
        };
        let mut line = Vec::new();
        if let Some(directory) = &chosen {
            line.extend_from_slice(directory.as_os_str().as_bytes());
            line.push(b'\n');
        }
        target.put_file(&place, &line)?;
    }
    if let (Some(before), Some(cache)) = (before.filter(|dir| chosen.as_ref() != Some(dir)), cache)
    {
        cache.forget(&before);
    }
    Ok(chosen)
}

/// The directory that is named to the loader.
pub(crate) fn configured(view: &Rootfs) -> Option<PathBuf> {
    let mut line = view.read(Path::new(CONFIG), MAX_CONFIG).ok()?;
    line.pop_if(|last| *last == b'\n');
    let path = PathBuf::from(std::ffi::OsString::from_vec(line));
    path.is_absolute().then_some(path)
}

/// The directory, links resolved, if it holds one libcuda and that fits the driver.
fn choose(view: &Rootfs, compat: &CudaCompat) -> io::Result<Option<PathBuf>> {
    if compat.driver.is_none() && compat.cuda.is_none() {
        return Ok(None);
    }
    let Ok(directory) = view.canonical(&compat.directory) else { return Ok(None) };
    let Ok(names) = view.names(&directory) else { return Ok(None) };
    let is_file = |name: &&OsStr| {
        let found = view.symlink_metadata(&directory.join(name));
        found.is_ok_and(|found| found.is_file())
    };
    let mut libraries = names.iter().map(OsStr::new).filter(|name| version_of(name).is_some());
    let Some(library) = libraries.find(is_file) else { return Ok(None) };
    if libraries.any(|name| is_file(&name)) {
        log::warn!("{} holds more than one libcuda", directory.display());
        return Ok(None);
    }
    let file = view.open_file(&directory.join(library))?;
    let note = elf::note(&file, NOTE, OWNER).unwrap_or_else(|error| {
        log::warn!("{} in {}: {error}", library.display(), directory.display());
        None
    });
    let note = note.and_then(|note| serde_json::from_slice(&note).ok());
    let fits = fits(version_of(library).and_then(Version::parse), note.as_ref(), compat);
    // A line break would name other directories too.
    let fits = fits && !directory.as_os_str().as_bytes().contains(&b'\n');
    Ok(fits.then_some(directory))
}

/// The version in the name of a libcuda, which has a point at least: `libcuda.so.1` is a link.
fn version_of(name: &OsStr) -> Option<&str> {
    name.to_str()?.strip_prefix("libcuda.so.").filter(|version| version.contains('.'))
}

/// Whether a libcuda of this version, which says this of itself, serves better than the host's.
fn fits(library: Option<Version>, note: Option<&Value>, host: &CudaCompat) -> bool {
    let version = |text: &Option<String>| text.as_deref().and_then(Version::parse);
    let (driver, cuda) = (version(&host.driver), version(&host.cuda));
    match (note, library, driver) {
        (Some(note), Some(library), Some(driver)) => {
            let drivers = note.get("Driver").and_then(Value::as_array);
            library > driver && drivers.is_some_and(|list| list.contains(&Value::from(driver.0[0])))
        }
        (Some(note), ..) => {
            let newest = note.get("CUDA Version").and_then(Value::as_str).and_then(Version::parse);
            newest.zip(cuda).is_some_and(|(newest, cuda)| newest > cuda)
        }
        (None, Some(library), Some(driver)) => host.cuda.is_none() && library.0[0] > driver.0[0],
        (None, ..) => false,
    }
}

/// Up to three numbers; missing ones count as 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version([u64; 3]);

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = [0; 3];
        let mut parts = text.split('.');
        for (number, part) in numbers.iter_mut().zip(&mut parts) {
            *number = part.parse().ok()?;
        }
        parts.next().is_none().then_some(Self(numbers))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn host(version: &str, cuda: &str) -> CudaCompat {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        CudaCompat {
            driver: some(version),
            cuda: some(cuda),
            directory: CudaCompat::DIRECTORY.into(),
        }
    }

    #[test]
    fn without_a_note_a_newer_branch_fits() {
        for (compat, driver, cuda, expected) in [
            ("550.54.15", "535.261.03", "", true),
            ("535.999.99", "535.261.03", "", false),
            ("525.60.13", "535.261.03", "", false),
            ("550.54.15", "535.261.03", "12.2", false),
            ("550.54.15", "", "12.2", false),
            ("550.x", "535.261.03", "", false),
        ] {
            let fits = fits(Version::parse(compat), None, &host(driver, cuda));
            assert_eq!(fits, expected, "{compat} {driver} {cuda}");
        }
    }

    #[test]
    fn the_note_names_the_branches_that_a_library_is_for() {
        let note = json!({"Format": 1, "CUDA Version": "12.9", "Driver": [535, 550, 575]});
        for (compat, driver, cuda, expected) in [
            ("575.57.08", "550.54.15", "", true),
            ("575.57.08", "575.57.04", "", true),
            ("575.57.08", "575.57.08", "", false),
            ("575.57.08", "545.23.06", "", false),
            ("575.57.08", "545.23.06", "12.3", false),
            ("1.1", "", "12.8", true),
            ("1.1", "", "12.9", false),
            ("1.1", "", "13.0", false),
        ] {
            let fits = fits(Version::parse(compat), Some(&note), &host(driver, cuda));
            assert_eq!(fits, expected, "{compat} {driver} {cuda}");
        }
        let orin = json!({"Format": 1, "CUDA Version": "13.2"});
        assert!(fits(Version::parse("1.1"), Some(&orin), &host("", "12.6")));
        assert!(!fits(Version::parse("1.1"), Some(&json!([])), &host("540.3", "12.6")));
    }
}
