//! Which capability each file of the driver belongs to, by its name.
//!
//! The table is libnvidia-container's (`nvc_info.c`), with what it leaves to others: platform
//! libraries of EGL, NVAPI, parts of Vulkan that came later. Where a library cannot be
//! loaded without another, that one has the capabilities of both.

use std::path::Path;

use super::{DriverFile, FileKind, Library};
use crate::Capabilities;
use crate::elf::Class;

const COMPUTE: Capabilities = Capabilities::COMPUTE;
const UTILITY: Capabilities = Capabilities::UTILITY;
const GRAPHICS: Capabilities = Capabilities::GRAPHICS;
const VIDEO: Capabilities = Capabilities::VIDEO;

/// Names before `.so`; a name that ends in `*` is the beginning of several.
const LIBRARIES: [(&str, Capabilities); 52] = [
    ("libnvidia-ml", UTILITY),
    ("libnvidia-cfg", UTILITY),
    ("libnvidia-nscq", UTILITY),
    ("libnvidia-sandboxutils", UTILITY),
    ("libnvsdm", UTILITY),
    ("libcuda", COMPUTE),
    ("libcudadebugger", COMPUTE),
    ("libnvidia-opencl", COMPUTE),
    // The compiler of shaders too: the GL cores of 550 need it (DT_NEEDED).
    ("libnvidia-gpucomp", COMPUTE.or(GRAPHICS)),
    // OptiX and ray tracing compile with it.
    ("libnvidia-ptxjitcompiler", COMPUTE.or(GRAPHICS)),
    ("libnvidia-fatbinaryloader", COMPUTE),
    // Buffers of GBM too: it is what gbm/nvidia-drm_gbm.so leads to.
    ("libnvidia-allocator", COMPUTE.or(GRAPHICS)),
    ("libnvidia-compiler", COMPUTE),
    ("libnvidia-compiler-next", COMPUTE),
    ("libnvidia-pkcs11*", COMPUTE),
    ("libnvidia-nvvm", COMPUTE),
    ("libnvidia-nvvm70", COMPUTE),
    ("libnvidia-tileiras", COMPUTE),
    ("libvdpau_nvidia", VIDEO),
    ("libnvidia-encode", VIDEO),
    ("libnvidia-opticalflow", VIDEO),
    ("libnvcuvid", VIDEO),
    ("libnvidia-eglcore", GRAPHICS),
    ("libnvidia-glcore", GRAPHICS),
    ("libnvidia-tls", GRAPHICS),
    ("libnvidia-glsi", GRAPHICS),
    ("libnvidia-fbc", GRAPHICS),
    ("libnvidia-ifr", GRAPHICS),
    ("libnvidia-rtcore", GRAPHICS),
    ("libnvoptix", GRAPHICS),
    ("libGLX_nvidia", GRAPHICS),
    ("libEGL_nvidia", GRAPHICS),
    ("libGLESv2_nvidia", GRAPHICS),
    ("libGLESv1_CM_nvidia", GRAPHICS),
    ("libnvidia-glvkspirv", GRAPHICS),
    ("libnvidia-cbl", GRAPHICS),
    // Of drivers without the vendor-neutral loaders.
    ("libGL", GRAPHICS),
    ("libEGL", GRAPHICS),
    ("libGLX", GRAPHICS),
    ("libGLESv1_CM", GRAPHICS),
    ("libGLESv2", GRAPHICS),
    ("libOpenGL", GRAPHICS),
    ("libGLdispatch", GRAPHICS),
    ("libnvidia-egl-*", GRAPHICS),
    ("libnvidia-vulkan-producer", GRAPHICS),
    ("libnvidia-vksc-core", GRAPHICS),
    ("libnvidia-present", GRAPHICS),
    ("libnvidia-api", GRAPHICS),
    ("libnvidia-wayland-client", GRAPHICS),
    ("libnvidia-gtk*", GRAPHICS),
    ("libglxserver_nvidia", GRAPHICS),
    ("libnvidia-ngx", Capabilities::NGX),
];

const COMPUTE_PROGRAMS: [&str; 2] = ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server"];
const GRAPHICS_PROGRAMS: [&str; 1] = ["nvidia-xconfig"];

impl Library {
    /// `libcuda` of `libcuda.so.550.163.01`.
    pub fn name(&self) -> &str {
        let file = self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        file.split_once(".so").map_or(file, |(name, _)| name)
    }

    /// The capabilities that have use for it, any of them; those of a library that a newer driver
    /// brings are not known, and any may be nothing without it.
    pub fn capabilities(&self) -> Capabilities {
        let name = self.name();
        let is = |known: &str| match known.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == known,
        };
        let found = LIBRARIES.iter().find(|(known, _)| is(known));
        found.map_or(Capabilities::ALL, |(_, capabilities)| *capabilities)
    }

    /// Whether a container that may use `granted` gets it.
    pub fn is_for(&self, granted: Capabilities) -> bool {
        let class = self.class == Class::Elf64 || granted.holds(Capabilities::COMPAT32);
        class && self.capabilities().meets(granted)
    }
}

impl DriverFile {
    /// The capabilities that have use for it, any of them.
    pub fn capabilities(&self) -> Capabilities {
        let name = self.destination.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match self.kind {
            FileKind::Firmware => Capabilities::ALL,
            FileKind::Binary if COMPUTE_PROGRAMS.contains(&name) => COMPUTE,
            FileKind::Binary if GRAPHICS_PROGRAMS.contains(&name) => GRAPHICS,
            FileKind::Binary => UTILITY,
            FileKind::Socket if self.destination.starts_with("/tmp") => COMPUTE,
            FileKind::Socket => UTILITY,
            FileKind::Module => GRAPHICS,
            // NVIDIA gives it with graphics; its library is one of compute.
            FileKind::Data if self.destination.starts_with("/etc/OpenCL") => COMPUTE.or(GRAPHICS),
            FileKind::Data => GRAPHICS,
        }
    }
}

/// The capabilities that have use for a control node: libnvidia-container gives `nvidia-uvm` to
/// compute only, `nvidia-modeset` to display only.
pub(crate) fn of_control_node(name: &str) -> Capabilities {
    match name {
        "nvidia-modeset" => Capabilities::DISPLAY,
        name if name.starts_with("nvidia-uvm") => COMPUTE,
        _ => Capabilities::ALL,
    }
}

/// Libraries without which a capability is nothing: any one of each list.
pub(crate) const MANDATORY: [(Capabilities, &[&str]); 3] = [
    (COMPUTE, &["libcuda"]),
    (UTILITY, &["libnvidia-ml"]),
    (GRAPHICS, &["libEGL_nvidia", "libGLX_nvidia"]),
];

/// Whether `path` is a file of the library `name`.
pub(crate) fn is_library(path: &Path, name: &str) -> bool {
    let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    file.strip_prefix(name).is_some_and(|rest| rest.starts_with(".so."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::Machine;

    fn library(file: &str, class: Class) -> Library {
        Library {
            path: Path::new("/usr/lib64").join(file),
            soname: None,
            class,
            machine: Machine::X86_64,
            subdir: "".into(),
            links: Vec::new(),
        }
    }

    #[test]
    fn a_library_belongs_to_what_its_name_says() {
        for (file, capabilities) in [
            ("libcuda.so.550.163.01", "compute"),
            ("libcudadebugger.so.550.163.01", "compute"),
            ("libnvidia-pkcs11-openssl3.so.550.163.01", "compute"),
            ("libnvidia-nvvm70.so.4", "compute"),
            ("libnvidia-gpucomp.so.550.163.01", "compute,graphics"),
            ("libnvidia-egl-wayland2.so.1.0.1", "graphics"),
            ("libGL.so.390.157", "graphics"),
            ("libnvcuvid.so.550.163.01", "video"),
            ("libnvidia-ngx.so.550.163.01", "ngx"),
        ] {
            let found = library(file, Class::Elf64).capabilities();
            assert_eq!(found.to_string(), capabilities, "{file}");
        }
        let new = library("libnvidia-novel.so.999.1", Class::Elf64);
        assert_eq!(new.capabilities(), Capabilities::ALL);
    }

    #[test]
    fn a_32_bit_library_is_for_compat32_and_its_own() {
        let library = library("libcuda.so.550.163.01", Class::Elf32);
        assert!(!library.is_for(COMPUTE));
        assert!(!library.is_for(Capabilities::COMPAT32));
        assert!(library.is_for(COMPUTE.or(Capabilities::COMPAT32)));
    }

    #[test]
    fn a_name_is_of_one_library_only() {
        assert!(is_library(Path::new("/a/libcuda.so.1"), "libcuda"));
        assert!(!is_library(Path::new("/a/libcudadebugger.so.1"), "libcuda"));
    }
}
