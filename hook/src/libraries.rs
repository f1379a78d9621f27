//! The libraries in directories of a container, by the rules of ldconfig.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nvidia_oci::elf::{Elf, ObjectKind};
use nvidia_oci::{Code, Error, LibraryEntry, Result, ldcache};

use crate::Rootfs;
use crate::rootfs::refusal;

/// More libraries than the largest image has in one place.
const MAX_LIBRARIES: usize = 8192;

/// A library, by the name that programs ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Library {
    pub entry: LibraryEntry,
    /// Its file's name, in the same directory.
    pub file: OsString,
}

/// The libraries of `folders`, in their order; in each of them the newest of a name. A folder that
/// is not there has none.
///
/// # Errors
/// [`Code::FixupFailed`]: more libraries than any image has.
pub(crate) fn find(view: &Rootfs, folders: &[PathBuf]) -> Result<Vec<Library>> {
    let mut found = Vec::new();
    let mut looked_at = 0;
    for folder in folders {
        let mut of_folder: BTreeMap<String, Library> = BTreeMap::new();
        for name in names(view, folder)? {
            looked_at += 1;
            if looked_at > MAX_LIBRARIES {
                let what = format!("more than {MAX_LIBRARIES} libraries, up to those of");
                let what = format!("{what} {} in the root filesystem", folder.display());
                return Err(Error::new(Code::FixupFailed, what));
            }
            let Some(library) = read(view, folder, name) else { continue };
            let newest = of_folder.get(&library.entry.soname).is_none_or(|other| {
                ldcache::compare(library.file.as_bytes(), other.file.as_bytes()).is_gt()
            });
            if newest {
                of_folder.insert(library.entry.soname.clone(), library);
            }
        }
        found.extend(of_folder.into_values());
    }
    Ok(found)
}

/// Names of libraries in a folder.
fn names(view: &Rootfs, folder: &Path) -> Result<Vec<OsString>> {
    match view.names(folder) {
        Ok(mut names) => {
            names.retain(|name| is_library(name));
            Ok(names)
        }
        Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => {
            Err(refusal(Code::FixupFailed, folder)(error))
        }
        Err(error) => {
            log::debug!("{}: {error}", folder.display());
            Ok(Vec::new())
        }
    }
}

/// ldconfig's own rule.
fn is_library(name: &OsStr) -> bool {
    let name = name.as_bytes();
    (name.starts_with(b"lib") || name.starts_with(b"ld-"))
        && name.windows(3).any(|window| window == b".so")
}

/// The library `name` of `folder`, if it is one. A link to a file beside it is none of its own.
fn read(view: &Rootfs, folder: &Path, name: OsString) -> Option<Library> {
    let path = folder.join(&name);
    if view.symlink_metadata(&path).ok()?.is_symlink()
        && view.read_link(&path).is_ok_and(|target| target.components().count() == 1)
    {
        return None;
    }
    let elf = Elf::read(&view.open_file(&path).ok()?).ok()?;
    if elf.kind != ObjectKind::Shared {
        return None;
    }
    let soname = match elf.soname {
        // It would lead elsewhere.
        Some(soname) if soname.contains('/') => return None,
        Some(soname) => soname,
        None => name.to_str()?.to_owned(),
    };
    let entry =
        LibraryEntry { path: folder.join(&soname), soname, class: elf.class, machine: elf.machine };
    Some(Library { entry, file: name })
}
