//! Files that lead the vendor-neutral loaders (glvnd, EGL, Vulkan, `OpenCL`) to NVIDIA's
//! libraries, for drivers that came without: minimal installations, and hosts whose own files name
//! libraries by the host's paths.
//!
//! The formats are those of the loaders' documentation; the values are NVIDIA's own files'.

use std::path::Path;

use serde_json::{Value, json};

use super::GeneratedFile;
use crate::Mount;

/// A file of one loader: where it is looked for, and the SONAME that it leads to.
struct Vendor {
    path: &'static str,
    /// Other names that NVIDIA's file may have there.
    also: &'static [&'static str],
    /// The first that is there.
    sonames: &'static [&'static str],
    kind: Kind,
}

enum Kind {
    Egl,
    Vulkan,
    OpenCl,
}

const fn egl(path: &'static str, sonames: &'static [&'static str]) -> Vendor {
    Vendor { path, also: &[], sonames, kind: Kind::Egl }
}

const VENDORS: [Vendor; 8] = [
    egl("/usr/share/glvnd/egl_vendor.d/10_nvidia.json", &["libEGL_nvidia.so.0"]),
    egl("/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json", &["libnvidia-egl-gbm.so.1"]),
    egl(
        "/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
        &["libnvidia-egl-wayland.so.1"],
    ),
    egl(
        "/usr/share/egl/egl_external_platform.d/09_nvidia_wayland2.json",
        &["libnvidia-egl-wayland2.so.1"],
    ),
    egl("/usr/share/egl/egl_external_platform.d/20_nvidia_xcb.json", &["libnvidia-egl-xcb.so.1"]),
    egl("/usr/share/egl/egl_external_platform.d/20_nvidia_xlib.json", &["libnvidia-egl-xlib.so.1"]),
    Vendor {
        path: "/etc/vulkan/icd.d/nvidia_icd.json",
        also: &[
            "/etc/vulkan/icd.d/nvidia_icd.x86_64.json",
            "/etc/vulkan/icd.d/nvidia_icd.aarch64.json",
        ],
        // A driver without X has Vulkan in the other (NVIDIA's README, "Vulkan").
        sonames: &["libGLX_nvidia.so.0", "libEGL_nvidia.so.0"],
        kind: Kind::Vulkan,
    },
    Vendor {
        path: "/etc/OpenCL/vendors/nvidia.icd",
        also: &[],
        sonames: &["libnvidia-opencl.so.1"],
        kind: Kind::OpenCl,
    },
];

/// The files that libraries of the SONAMEs `given` need, and that are not among `mounts`.
pub(super) fn missing(given: &[&str], mounts: &[Mount], version: &str) -> Vec<GeneratedFile> {
    let is_there = |path: &str| mounts.iter().any(|mount| mount.destination == Path::new(path));
    let mut files = Vec::new();
    for vendor in &VENDORS {
        let Some(soname) = vendor.sonames.iter().find(|soname| given.contains(soname)) else {
            continue;
        };
        if is_there(vendor.path) || vendor.also.iter().any(|path| is_there(path)) {
            continue;
        }
        files.push(GeneratedFile {
            path: vendor.path.into(),
            content: vendor.kind.content(soname, version),
        });
    }
    files
}

impl Kind {
    fn content(&self, soname: &str, version: &str) -> String {
        let json =
            |icd: Value| format!("{:#}\n", json!({ "file_format_version": "1.0.0", "ICD": icd }));
        match self {
            Self::OpenCl => format!("{soname}\n"),
            Self::Egl => json(json!({ "library_path": soname })),
            Self::Vulkan => {
                json(json!({ "library_path": soname, "api_version": vulkan_version(version) }))
            }
        }
    }
}

/// The Vulkan version of a driver, by its release notes; 1.3.242 and 1.3.277 are those of the
/// packages of 535 and 550. The loader only asks whether it is above 1.0.
fn vulkan_version(driver: &str) -> &'static str {
    let branch: u32 = driver.split('.').next().and_then(|part| part.parse().ok()).unwrap_or(0);
    match branch {
        570.. => "1.4.303",
        550.. => "1.3.277",
        510.. => "1.3.242",
        _ => "1.2.133",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(given: &[&str], there: &[&str]) -> Vec<String> {
        let mount = |path: &&str| Mount {
            source: "/x".into(),
            destination: (*path).into(),
            ..Mount::default()
        };
        let mounts: Vec<Mount> = there.iter().map(mount).collect();
        let files = missing(given, &mounts, "550.163.01");
        files.iter().map(|file| file.path.display().to_string()).collect()
    }

    #[test]
    fn a_library_without_its_file_gets_one() {
        let glx = ["libGLX_nvidia.so.0"];
        assert_eq!(paths(&glx, &[]), ["/etc/vulkan/icd.d/nvidia_icd.json"]);
        assert_eq!(paths(&glx, &["/etc/vulkan/icd.d/nvidia_icd.x86_64.json"]), [""; 0]);
        assert_eq!(paths(&["libcuda.so.1"], &[]), [""; 0]);
        assert_eq!(
            paths(&["libEGL_nvidia.so.0", "libnvidia-opencl.so.1"], &[]),
            [
                "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
                "/etc/vulkan/icd.d/nvidia_icd.json",
                "/etc/OpenCL/vendors/nvidia.icd",
            ]
        );
    }

    #[test]
    fn the_content_is_what_nvidias_own_files_say() {
        let given = ["libGLX_nvidia.so.0", "libEGL_nvidia.so.0"];
        let files = missing(&given, &[], "550.163.01");
        let value = |index: usize| serde_json::from_str::<Value>(&files[index].content).unwrap();
        let egl = json!({"file_format_version": "1.0.0", "ICD": {"library_path": given[1]}});
        assert_eq!(value(0), egl);
        let icd = json!({"library_path": given[0], "api_version": "1.3.277"});
        assert_eq!(value(1), json!({"file_format_version": "1.0.0", "ICD": icd}));
    }
}
