//! Mount points of the bind mounts that were injected: made beforehand, so that runc makes none
//! in the snapshot, where they would become part of a commit.

use std::collections::HashSet;
use std::path::Path;

use nvidia_oci::{Code, Edits, Error, Result, SpecMount};

use crate::target::Target;

/// Makes the mount points of `edits` that the root filesystem lacks. `mounts` are those of the
/// edited spec, where sources are this machine's own paths.
pub(crate) fn apply(
    target: &mut Target<'_>,
    edits: &Edits,
    mounts: &[SpecMount<'_>],
) -> Result<()> {
    let ours: HashSet<&Path> = edits.mounts.iter().map(|edit| edit.destination.as_path()).collect();
    for (mount, place) in mounts.iter().zip(target.covers().places()) {
        if ours.contains(mount.destination) {
            make(target, mount, &place)?;
        }
    }
    Ok(())
}

fn make(target: &mut Target<'_>, mount: &SpecMount<'_>, place: &Path) -> Result<()> {
    if target.covers_mut().hold(place) || target.seen(place)?.is_some() {
        return Ok(());
    }
    let source = mount.source.unwrap_or(Path::new(""));
    let metadata = std::fs::metadata(source).map_err(|error| {
        let destination = mount.destination.display();
        let what = format!("{}, to be mounted at {destination}", source.display());
        Error::caused(Code::FixupFailed, what, error)
    })?;
    if metadata.is_dir() { target.make_directory(place) } else { target.put_empty_file(place) }
}
