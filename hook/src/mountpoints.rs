//! Mount points of the bind mounts that were injected: made beforehand, so that runc makes none
//! in the snapshot, where they would become part of a commit.

use std::path::Path;

use nvidia_oci::{Code, Edits, Error, Result, SpecMount};

use crate::rootfs::refusal;
use crate::target::Target;

/// Makes the mount points of `edits` that the root filesystem lacks. `mounts` are those of the
/// edited spec.
pub(crate) fn apply(
    target: &mut Target<'_>,
    edits: &Edits,
    mounts: &[SpecMount<'_>],
) -> Result<()> {
    for edit in &edits.mounts {
        let written = mounts.iter().find(|mount| mount.destination == edit.destination);
        let source = written.and_then(|mount| mount.source).unwrap_or(&edit.source);
        make(target, source, &edit.destination)?;
    }
    Ok(())
}

fn make(target: &mut Target<'_>, source: &Path, destination: &Path) -> Result<()> {
    let place =
        target.view().canonical(destination).map_err(refusal(Code::FixupFailed, destination))?;
    if let Some(cover) = target.covers().holding(&place) {
        if cover.bind {
            let (destination, cover) = (destination.display(), cover.place.display());
            target.warnings.push(format!(
                "the mount point {destination} lies in the mount at {cover}: runc makes it there"
            ));
        }
        return Ok(());
    }
    if target.seen(&place)?.is_some() {
        return Ok(());
    }
    let directory = std::fs::metadata(source)
        .map_err(|error| {
            let what = format!("{}, to be mounted at {}", source.display(), destination.display());
            Error::caused(Code::FixupFailed, what, error)
        })?
        .is_dir();
    if directory { target.make_directory(&place) } else { target.put_file(&place, b"") }
}
