//! `/proc/driver/nvidia/params` of a container, masked by a copy that says `ModifyDeviceFiles: 0`:
//! else nvidia-smi and NVML make nodes of GPUs that are not the container's.
//!
//! The copy is a mount of one file that no other path leads to, so that the image keeps no trace.

use std::fs;
use std::io;
use std::path::Path;

use nvidia_oci::{Code, Error, Result};
use rustix::mount::{MoveMountFlags, move_mount};

use crate::rootfs::refusal;
use crate::{Rootfs, detached};

const PARAMS: &str = "/proc/driver/nvidia/params";
const MAX_PARAMS: u64 = 64 * 1024;
const KEY: &str = "ModifyDeviceFiles:";

/// Masks the file, if this host's driver may make nodes and the container has such a file.
pub(crate) fn mask(rootfs: &Rootfs) -> Result<()> {
    let Ok(host) = fs::read_to_string(PARAMS) else { return Ok(()) };
    let Some(masked) = masked(&host) else { return Ok(()) };
    let path = Path::new(PARAMS);
    let failed = || refusal(Code::FixupFailed, path);
    match rootfs.read(path, MAX_PARAMS) {
        Ok(there) if there == masked.as_bytes() => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        there => there.map_err(failed())?,
    };
    let place = rootfs.handle(path).map_err(failed())?;
    let beside = path.parent().unwrap_or(path);
    let beside = rootfs.handle(beside).map_err(failed())?;
    let cannot = |error: io::Error| {
        Error::caused(Code::FixupFailed, format!("a mount over {PARAMS} of the container"), error)
    };
    let file = detached::file(masked.as_bytes(), &beside).map_err(cannot)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&file, "", &place, "", flags).map_err(|error| cannot(error.into()))
}

/// The text with the key set to 0; `None` where it is not 1.
fn masked(text: &str) -> Option<String> {
    let value = |line: &str| line.strip_prefix(KEY).map(|value| value.trim() == "1");
    text.lines().any(|line| value(line) == Some(true)).then(|| {
        let line = |line: &str| match value(line) {
            Some(true) => format!("{KEY} 0\n"),
            _ => format!("{line}\n"),
        };
        text.lines().map(line).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_one_line_changes_and_only_where_it_must() {
        let text = "RmLogonRC: 1\nModifyDeviceFiles: 1\nDeviceFileMode: 438\n";
        let expected = "RmLogonRC: 1\nModifyDeviceFiles: 0\nDeviceFileMode: 438\n";
        assert_eq!(masked(text).as_deref(), Some(expected));
        assert_eq!(masked(expected), None);
        assert_eq!(masked("ModifyDeviceFiles: 10\n"), None);
    }
}
