//! The loader's cache of a glibc image: the injected libraries are merged into what the image's
//! ldconfig wrote, and their directories are named in `/etc/ld.so.conf.d`, so that a later
//! ldconfig in the container keeps them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nvidia_oci::ldcache::{Cache, CacheError, MAX_SIZE};
use nvidia_oci::{Code, Error, Fixups, Image, Result};

use crate::Rootfs;
use crate::rootfs::refusal;
use crate::target::{Place, Target};

const CACHE: &str = "/etc/ld.so.cache";
const CONFIG: &str = "/etc/ld.so.conf";
const OUR_CONFIG: &str = "/etc/ld.so.conf.d/00-nvidia-shim.conf";
/// What every distribution has there.
const INCLUDE: &[u8] = b"include /etc/ld.so.conf.d/*.conf\n";
/// As many directories and libraries of a cache as are looked for: more than any real one has.
const MAX_DIRECTORIES: usize = 256;
const MAX_LIBRARIES: usize = 4096;
/// Configuration is compared with what should be there, never parsed.
const MAX_CONFIG: u64 = 64 * 1024;

/// The cache that an image came with, and its place.
pub(crate) struct Found {
    place: PathBuf,
    bytes: Option<Vec<u8>>,
    cache: Cache,
}

impl Found {
    /// Takes the libraries of `directory` out.
    pub(crate) fn forget(&mut self, directory: &Path) {
        self.cache.retain(|entry| entry.path().parent() != Some(directory));
    }
}

/// Reads the cache of a glibc image, before anything is written: a root filesystem that is written
/// in place has no way back. `None` where a mount of the spec hides it, or a hook has to do it.
///
/// # Errors
/// [`Code::CacheUnreadable`] if the image has a cache that is damaged: writing one without what
/// it held would break the image's own programs.
pub(crate) fn find(target: &mut Target<'_>, fixups: &Fixups) -> Result<Option<Found>> {
    let place = match target.place(Path::new(CACHE))? {
        Place::Here(place) => place,
        Place::InMount => {
            target.by_hook().add_folders(&fixups.library_dirs);
            return Ok(None);
        }
        Place::Hidden => return Ok(None),
    };
    let bytes = read(target)?;
    let cache = bytes.as_deref().map(Cache::parse).transpose().map_err(damaged)?;
    Ok(Some(Found { place, bytes, cache: cache.unwrap_or_default() }))
}

/// Brings the libraries into the cache that was found.
///
/// # Errors
/// It cannot be written.
pub(crate) fn apply(
    target: &mut Target<'_>,
    image: &Image,
    fixups: &Fixups,
    found: Option<Found>,
) -> Result<()> {
    configure(target, image, fixups)?;
    let Some(mut found) = found else { return Ok(()) };
    if target.holds_own(&found.place)? {
        drop_stale(target, &mut found.cache, fixups);
    }
    // An entry goes before its equals, so the first of the plan is inserted last.
    for library in fixups.libraries.iter().rev() {
        found.cache.insert(&library.soname, &library.path, library.class, library.machine);
    }
    store(target, &found)
}

/// Writes the cache, if it is another one by now.
///
/// # Errors
/// It cannot be written.
pub(crate) fn store(target: &mut Target<'_>, found: &Found) -> Result<()> {
    let new = found.cache.to_bytes().map_err(damaged)?;
    let same = match &found.bytes {
        Some(old) => *old == new,
        None => found.cache.entries().is_empty(),
    };
    if same { Ok(()) } else { target.put_file(&found.place, &new) }
}

/// Directories that were named here before, by another hook or an earlier start.
pub(crate) fn configured(view: &Rootfs) -> Vec<PathBuf> {
    let lines = view.read(Path::new(OUR_CONFIG), MAX_CONFIG).unwrap_or_default();
    let paths = lines.split(|byte| *byte == b'\n').map(|line| Path::new(OsStr::from_bytes(line)));
    paths.filter(|path| path.is_absolute()).take(MAX_DIRECTORIES).map(Path::to_owned).collect()
}

/// The image's cache. What is absent, empty, or no regular file holds no entries.
fn read(target: &Target<'_>) -> Result<Option<Vec<u8>>> {
    match target.view().read(Path::new(CACHE), MAX_SIZE) {
        Ok(bytes) if bytes.is_empty() => Ok(None),
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(refusal(Code::CacheUnreadable, Path::new(CACHE))(error)),
    }
}

fn damaged(error: CacheError) -> Error {
    Error::caused(Code::CacheUnreadable, format!("{CACHE} of the image"), error)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput)
        || error.raw_os_error() == Some(Errno::ELOOP as i32)
}

/// Drops what an earlier start left in a cache that outlives it: entries in directories of ours
/// whose library is gone, as after an upgrade of the driver. What is too much to look at stays.
fn drop_stale(target: &Target<'_>, cache: &mut Cache, fixups: &Fixups) {
    let view = target.view();
    let mut places: HashMap<PathBuf, Option<PathBuf>> = HashMap::new();
    let mut place_of = |directory: &Path| match places.get(directory) {
        Some(place) => place.clone(),
        None if places.len() == MAX_DIRECTORIES => None,
        None => {
            let place = view.canonical(directory).ok();
            places.insert(directory.to_owned(), place.clone());
            place
        }
    };
    let mut left = MAX_LIBRARIES;
    let ours: Vec<PathBuf> = fixups.library_dirs.iter().filter_map(|dir| place_of(dir)).collect();
    cache.retain(|entry| {
        let path = entry.path();
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return true };
        match place_of(parent) {
            Some(parent) if left > 0 && ours.contains(&parent) => {
                left -= 1;
                let place = parent.join(name);
                target.covers().hide(&place) || view.metadata(&place).is_ok()
            }
            _ => true,
        }
    });
}

/// Names the directories that the image's loader does not search by itself.
fn configure(target: &mut Target<'_>, image: &Image, fixups: &Fixups) -> Result<()> {
    let mut lines = Vec::new();
    for directory in &fixups.library_dirs {
        if !searched(image).contains(directory) {
            lines.extend_from_slice(directory.as_os_str().as_bytes());
            lines.push(b'\n');
        }
    }
    let old = target.view().read(Path::new(OUR_CONFIG), MAX_CONFIG);
    match old {
        Ok(old) if old == lines => return Ok(()),
        Err(_) if lines.is_empty() => return Ok(()),
        _ => {}
    }
    match target.place(Path::new(OUR_CONFIG))? {
        Place::Here(place) => target.put_file(&place, &lines)?,
        Place::InMount if !lines.is_empty() => target.by_hook().add_folders(&fixups.library_dirs),
        Place::InMount | Place::Hidden => {}
    }
    if let Some(place) = target.place(Path::new(CONFIG))?.here()
        && target.seen(&place)?.is_none()
    {
        target.put_file(&place, INCLUDE)?;
    }
    Ok(())
}

/// The directories that the image's loader and ldconfig know without configuration.
fn searched(image: &Image) -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> = vec!["/lib".into(), "/usr/lib".into()];
    for directory in [&image.library_dir, &image.library_dir_32].into_iter().flatten() {
        directories.push(directory.clone());
        if let Ok(beside_root) = directory.strip_prefix("/usr") {
            directories.push(Path::new("/").join(beside_root));
        }
    }
    directories
}
