//! Permissions of what is in a container, such as `/dev/dri`.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nvidia_oci::{Code, Result};

use crate::Rootfs;
use crate::rootfs::refusal;

/// Sets them where they differ. What is missing is passed over, and what may not be changed.
pub(crate) fn apply(rootfs: &Rootfs, modes: &[(PathBuf, u32)]) -> Result<()> {
    for (path, mode) in modes {
        match set(rootfs, path, *mode) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                log::debug!("{}: {error}", path.display());
            }
            done => done.map_err(refusal(Code::FixupFailed, path))?,
        }
    }
    Ok(())
}

fn set(rootfs: &Rootfs, path: &Path, mode: u32) -> io::Result<()> {
    let found = rootfs.place(&Path::new("/").join(path)).and_then(|path| rootfs.handle(&path));
    let found = match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => File::from(found?),
    };
    if found.metadata()?.mode() & 0o7777 == mode {
        return Ok(());
    }
    // By its handle: the very file, whatever the name stands for by now.
    let handle = format!("/proc/self/fd/{}", found.as_raw_fd());
    fs::set_permissions(handle, Permissions::from_mode(mode))
}
