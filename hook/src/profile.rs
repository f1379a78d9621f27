//! The driver's application profile by which EGL and Vulkan see only the GPUs of the container.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::sys::stat::minor;
use nvidia_oci::{Code, Result};

use crate::Rootfs;
use crate::rootfs::refusal;
use crate::target::Target;

pub(crate) const FILE: &str = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf";
/// Nobody but the driver has a use for it.
const MODE: u32 = 0o444;

/// Writes the profile, if there is a GPU.
pub(crate) fn apply(target: &mut Target<'_>) -> Result<()> {
    let path = Path::new(FILE);
    let mask = gpus(target.view()).map_err(refusal(Code::FixupFailed, Path::new("/dev")))?;
    if mask == 0 {
        return Ok(());
    }
    let text = format!(
        r#"{{"profiles":[{{"name":"_container_","settings":["EGLVisibleDGPUDevices",{mask:#x}]}}],"rules":[{{"pattern":[],"profile":"_container_"}}]}}"#
    );
    match target.place(path)?.here() {
        Some(place) => target.put_file_of(&place, text.as_bytes(), MODE),
        None => Ok(()),
    }
}

/// A bit for each minor number of a GPU that the container has.
fn gpus(view: &Rootfs) -> io::Result<u64> {
    let names = match view.names(Path::new("/dev")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        names => names?,
    };
    let mut mask = 0;
    for name in names.iter().filter(|name| is_gpu(name)) {
        let found = view.symlink_metadata(&Path::new("/dev").join(name))?;
        let bit =
            u32::try_from(minor(found.rdev())).ok().and_then(|minor| 1_u64.checked_shl(minor));
        if found.file_type().is_char_device() {
            mask |= bit.unwrap_or_default();
        }
    }
    Ok(mask)
}

/// `nvidia0`, and no control node.
fn is_gpu(name: &OsStr) -> bool {
    let number = name.to_str().and_then(|name| name.strip_prefix("nvidia"));
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}
