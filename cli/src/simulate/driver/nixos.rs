//! The driver as `NixOS` has it: each part a package in the store, patched to find the others by
//! their store paths, and `/run/opengl-driver`, a directory of links to what graphics needs.
//!
//! Sources: `nvidia-x11/builder.sh` and `hardware/graphics.nix` of nixpkgs.

use anyhow::Result;

use super::libraries::{LIBRARIES, Library};
use super::{Driver, PROGRAMS, platform_json};
use crate::simulate::gpu::Gpu;
use crate::simulate::tree::Tree;

const STORE: &str = "nix/store";
/// Stands for the hash in the name of a package.
const HASH: &str = "0v9q7m0rfz9xr2cbj7cvp5w5zfn6jk1s";
const SYSTEM: &str = "run/current-system/sw/bin";

/// Writes libraries, programs and files of graphics.
pub(super) fn write(root: &Tree, driver: &Driver<'_>, gpus: &[Gpu]) -> Result<()> {
    let package = |name: &str| format!("{STORE}/{HASH}-{name}");
    let nvidia = package(&format!("nvidia-x11-{}", driver.version));
    let programs = format!("{nvidia}-bin");
    let links = package("graphics-drivers");
    root.link("run/opengl-driver", format!("/{links}"))?;
    let shared = Shared { root, package: &nvidia, links: &links };
    for library in &LIBRARIES {
        let content = driver.library(library)?;
        shared.library(library, driver.version, &content)?;
    }
    for (path, library) in [
        ("share/glvnd/egl_vendor.d/10_nvidia.json", "libEGL_nvidia.so.0"),
        ("share/egl/egl_external_platform.d/15_nvidia_gbm.json", "libnvidia-egl-gbm.so.1"),
        ("share/vulkan/icd.d/nvidia_icd.x86_64.json", "libGLX_nvidia.so.0"),
    ] {
        let json = platform_json("1.0.0", &format!("/{nvidia}/lib/{library}"));
        shared.file(path, 0o644, json.as_bytes())?;
    }
    let opencl = format!("/{nvidia}/lib/libnvidia-opencl.so.1\n");
    shared.file("etc/OpenCL/vendors/nvidia.icd", 0o644, opencl.as_bytes())?;

    for name in ["nvidia-smi"].into_iter().chain(PROGRAMS) {
        let content = match name {
            "nvidia-smi" => driver.nvidia_smi(gpus)?,
            _ => driver.program(name)?,
        };
        root.file(format!("{programs}/bin/{name}"), 0o755, content)?;
        root.link(format!("{SYSTEM}/{name}"), format!("/{programs}/bin/{name}"))?;
    }
    Ok(())
}

/// What `/run/opengl-driver` leads to.
struct Shared<'a> {
    root: &'a Tree,
    package: &'a str,
    links: &'a str,
}

impl Shared<'_> {
    /// The file, and the links to it that the builder makes of every library.
    fn library(&self, library: &Library, version: &str, content: &[u8]) -> Result<()> {
        let folder = format!("lib/{}", library.subdir);
        let folder = folder.trim_end_matches('/');
        let (file, soname) = (library.file(version), library.soname(version));
        self.file(&format!("{folder}/{file}"), 0o555, content)?;
        for name in [soname, format!("{}.so", library.name)] {
            if name != file {
                self.root.link(format!("{}/{folder}/{name}", self.package), &file)?;
                self.link(&format!("{folder}/{name}"))?;
            }
        }
        Ok(())
    }

    fn file(&self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.root.file(format!("{}/{path}", self.package), mode, content)?;
        self.link(path)
    }

    fn link(&self, path: &str) -> Result<()> {
        self.root.link(format!("{}/{path}", self.links), format!("/{}/{path}", self.package))
    }
}
