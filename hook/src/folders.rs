//! Directories of a container whose libraries its loader shall find, as ldconfig would have it:
//! a link by the SONAME of each library, and the loader's cache or paths. Nothing is executed.

use std::path::{Path, PathBuf};

use nvidia_oci::{Fixups, Image, Libc, Link, Result};

use crate::libraries::{self, Library};
use crate::target::Target;
use crate::{compat, ldcache, musl};

/// Brings the libraries of `folders` to the loader; of two with one name the first is found. Before
/// them all comes the directory of CUDA's compatibility libraries, where one is configured.
pub(crate) fn apply(
    target: &mut Target<'_>,
    image: &Image,
    folders: &[PathBuf],
    cache: Option<ldcache::Found>,
) -> Result<()> {
    let mut library_dirs = ldcache::configured(target.view());
    let mut searched: Vec<PathBuf> = compat::configured(target.view()).into_iter().collect();
    for folder in folders {
        let folder = Path::new("/").join(folder);
        if !library_dirs.contains(&folder) {
            library_dirs.push(folder.clone());
        }
        if !searched.contains(&folder) {
            searched.push(folder);
        }
    }
    let found = libraries::find(target.view(), &searched)?;
    let libraries = found.iter().map(|library| library.entry.clone()).collect();
    let fixups = Fixups { library_dirs, libraries, ..Fixups::default() };
    for library in &found {
        link(target, library)?;
    }
    match image.libc {
        Some(Libc::Musl) => musl::apply(target, image, &fixups),
        Some(Libc::Glibc) | None => ldcache::apply(target, image, &fixups, cache),
    }
}

/// Makes the name that programs ask for, if nothing is there.
pub(crate) fn link(target: &mut Target<'_>, library: &Library) -> Result<()> {
    let path = &library.entry.path;
    let Some(place) = target.place(path)?.here() else { return Ok(()) };
    if target.seen(&place)?.is_some() {
        return Ok(());
    }
    let link = Link { link: path.clone(), target: library.file.clone().into() };
    crate::links::apply(target, &[link])
}
