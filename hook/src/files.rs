//! Small files that a driver came without: where the loaders of EGL, Vulkan and `OpenCL` find it.

use nvidia_oci::{GeneratedFile, Result};

use crate::target::{Place, Target};

/// Writes the files; what is there already and differs is replaced, as a mount would hide it.
pub(crate) fn apply(target: &mut Target<'_>, files: &[GeneratedFile]) -> Result<()> {
    for file in files {
        let place = match target.place(&file.path)? {
            Place::Here(place) => place,
            Place::InMount => {
                target.by_hook().files.push(file.clone());
                continue;
            }
            Place::Hidden => continue,
        };
        let content = file.content.as_bytes();
        let limit = u64::try_from(content.len()).unwrap_or(u64::MAX);
        let is_there = target.view().read(&place, limit).is_ok_and(|there| there == content);
        if !is_there {
            target.put_file(&place, content)?;
        }
    }
    Ok(())
}
