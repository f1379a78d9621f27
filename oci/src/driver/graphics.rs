//! What graphics needs beside libraries: X modules, and JSON files of the vendor-neutral loaders.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::files::Place;
use super::{DriverFile, FileKind};

/// Where files of the table below are looked for.
/// NixOS has them in its directory of drivers, a driver root that is nothing but the driver at its
/// top.
const DATA_DIRS: [&str; 6] = [
    "/etc",
    "/usr/local/share",
    "/usr/share",
    "/run/opengl-driver/share",
    "/run/opengl-driver/etc",
    "/share",
];
/// Larger than any of the files that name a library.
const MAX_JSON: u64 = 64 * 1024;

const OPTIX: &str = "nvidia/nvoptix.bin";

/// Data files, and the directory in which every container's loader looks for them.
const DATA: [(&str, &str); 15] = [
    ("glvnd/egl_vendor.d/10_nvidia.json", "/usr/share"),
    ("egl/egl_external_platform.d/15_nvidia_gbm.json", "/usr/share"),
    ("egl/egl_external_platform.d/10_nvidia_wayland.json", "/usr/share"),
    ("egl/egl_external_platform.d/09_nvidia_wayland2.json", "/usr/share"),
    ("egl/egl_external_platform.d/20_nvidia_xcb.json", "/usr/share"),
    ("egl/egl_external_platform.d/20_nvidia_xlib.json", "/usr/share"),
    (OPTIX, "/usr/share"),
    ("X11/xorg.conf.d/10-nvidia.conf", "/usr/share"),
    ("X11/xorg.conf.d/nvidia-drm-outputclass.conf", "/usr/share"),
    ("OpenCL/vendors/nvidia.icd", "/etc"),
    ("vulkan/icd.d/nvidia_icd.json", "/etc"),
    ("vulkan/icd.d/nvidia_layers.json", "/etc"),
    ("vulkan/implicit_layer.d/nvidia_layers.json", "/etc"),
    ("vulkan/icd.d/nvidia_icd.x86_64.json", "/etc"),
    ("vulkan/icd.d/nvidia_icd.aarch64.json", "/etc"),
];

/// Places of X modules below a directory of libraries.
const MODULE_DIRS: [&str; 5] = [
    "nvidia/xorg",
    "xorg/modules/drivers",
    "xorg/modules/extensions",
    "xorg/modules/updates/drivers",
    "xorg/modules/updates/extensions",
];
/// Places of X itself, and those of modules below them.
const X_DIRS: [&str; 4] =
    ["/usr/lib/xorg", "/usr/lib64/xorg", "/usr/X11R6/lib", "/usr/X11R6/lib64"];
const X_MODULE_DIRS: [&str; 5] = [
    "",
    "modules/drivers",
    "modules/extensions",
    "modules/updates/drivers",
    "modules/updates/extensions",
];

/// JSON and other data files. One that names a library by a path of the host is of no use.
pub(super) fn data(
    place: &Place,
    own_dirs: &[PathBuf],
    library_dirs: &[&Path],
    left_out: &mut Vec<(PathBuf, String)>,
) -> Vec<DriverFile> {
    let on_host = Place { host: place.host, tree: place.host, root: Path::new("/") };
    let (from, usual, vulkan) = match own_dirs {
        // GKE has vulkan's files at the top of its driver root.
        [] => (place, place.dirs(DATA_DIRS), place.dirs(DATA_DIRS.iter().chain(&["/"]))),
        own => (&on_host, on_host.dirs(own), on_host.dirs(own)),
    };
    let mut files = Vec::new();
    for (name, container_dir) in DATA {
        let dirs = if name.starts_with("vulkan/") { &vulkan } else { &usual };
        let file = from.first(FileKind::Data, dirs, name).or_else(|| match name {
            // Debian has it beside libnvoptix, which looks for it there.
            OPTIX => place.first(FileKind::Data, &place.dirs(library_dirs), "nvoptix.bin"),
            _ => None,
        });
        let Some(file) = file else { continue };
        match library_of(from, &file.source) {
            Some(library) if library.contains('/') => {
                let reason = format!("the library that it names, {library}, is at no container's");
                left_out.push((from.inside(&file), reason));
            }
            _ => {
                files.push(DriverFile { destination: Path::new(container_dir).join(name), ..file })
            }
        }
    }
    files
}

/// The library that a vendor file names: JSON has it as `library_path`, that of
/// `OpenCL` is nothing else.
fn library_of(place: &Place, path: &Path) -> Option<String> {
    let extension = path.extension()?.to_str()?;
    if !["json", "icd"].contains(&extension) {
        return None;
    }
    let text = place.host.read_text(path, MAX_JSON).ok()?;
    if extension == "icd" {
        return Some(text.trim().to_owned());
    }
    let json: Value = serde_json::from_str(&text).ok()?;
    let library = ["ICD", "layer"].iter().find_map(|key| json.get(key)?.get("library_path"));
    Some(library?.as_str()?.to_owned())
}

/// X modules, and the links that go with them.
pub(super) fn modules(
    place: &Place,
    library_dirs: &[&Path],
    version: &str,
) -> (Vec<DriverFile>, Vec<(PathBuf, PathBuf)>) {
    let mut dirs: Vec<PathBuf> = Vec::new();
    for dir in library_dirs {
        dirs.extend(MODULE_DIRS.map(|module| dir.join(module)));
    }
    for dir in X_DIRS {
        dirs.extend(X_MODULE_DIRS.map(|module| Path::new(dir).join(module)));
    }
    let dirs = place.dirs(dirs);
    let first = |name: &str| place.first(FileKind::Module, &dirs, name);
    let server = format!("libglxserver_nvidia.so.{version}");
    let (driver, server) = (first("nvidia_drv.so"), first(&server));
    let link = server.as_ref().and_then(|file| {
        let target = PathBuf::from(file.destination.file_name()?);
        Some((file.destination.with_file_name("libglxserver_nvidia.so"), target))
    });
    (driver.into_iter().chain(server).collect(), link.into_iter().collect())
}
