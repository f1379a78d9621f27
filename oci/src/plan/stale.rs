//! Is a CDI spec still of the driver that is there? It was written at some time, and the driver may
//! have been upgraded, or removed, since.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::described::{host_path, is_whole};
use crate::cdi::foreign::{Purpose, purpose};
use crate::cdi::{ContainerEdits, DeviceNode, Found};
use crate::driver::is_version;
use crate::{Host, gpu};

/// Libraries that every driver has, and that bear its version.
const VERSIONED: [&str; 2] = ["libcuda.so.", "libnvidia-ml.so."];

/// What is wrong with a device of a spec of NVIDIA's, if it is stale. `kernel`: the version of the
/// driver that is loaded.
pub(super) fn fault(host: &Host, kernel: Option<&str>, found: Found<'_>) -> Option<String> {
    let edits = [&found.file.spec.edits, &found.device.edits];
    let written = edits.into_iter().find_map(version);
    if let (Some(written), Some(kernel)) = (&written, kernel)
        && written != kernel
    {
        return Some(format!("is of driver {written}, and {kernel} is loaded"));
    }
    let mut paths = edits.into_iter().flat_map(needed);
    if let Some(gone) = paths.find(|path| !host.exists(path)) {
        let of_driver = written.map(|version| format!(" of driver {version}")).unwrap_or_default();
        return Some(format!("names {}{of_driver}, which is not there", gone.display()));
    }
    edits.into_iter().flat_map(|edits| &edits.device_nodes).find_map(|node| renumbered(host, node))
}

/// Majors such as that of nvidia-uvm are given anew at each boot: by the number in the spec the
/// container would get another device.
fn renumbered(host: &Host, node: &DeviceNode) -> Option<String> {
    let path = host_path(node);
    let found = host.symlink_metadata(path).ok()?;
    let (major, minor) = gpu::numbers(found.rdev());
    let said = (node.major, node.minor);
    let is_same = said == (i64::from(major), i64::from(minor));
    if node.major == 0 || is_same || !found.file_type().is_char_device() {
        return None;
    }
    let (path, (said_major, said_minor)) = (path.display(), said);
    Some(format!("says {said_major}:{said_minor} of {path}, which is {major}:{minor}"))
}

/// The version of the driver that the edits were written for.
fn version(edits: &ContainerEdits) -> Option<String> {
    let of_hooks = edits.hooks.iter().find_map(|hook| match purpose(hook)? {
        Ok(Purpose::CudaCompat(compat)) => compat?.driver,
        _ => None,
    });
    of_hooks.or_else(|| {
        let names = edits.mounts.iter().filter_map(|mount| Path::new(&mount.host_path).file_name());
        let mut versions = names.filter_map(|name| {
            let name = name.to_str()?;
            VERSIONED.iter().find_map(|prefix| name.strip_prefix(prefix))
        });
        versions.find(|version| is_version(version)).map(str::to_owned)
    })
}

/// Paths of the host without which the container cannot start.
fn needed(edits: &ContainerEdits) -> impl Iterator<Item = &Path> {
    let mounts = edits.mounts.iter().map(|mount| Path::new(&mount.host_path));
    let nodes = edits.device_nodes.iter().filter(|node| !is_whole(node)).map(host_path);
    mounts.chain(nodes).filter(|path| path.is_absolute())
}
