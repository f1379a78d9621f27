//! The libraries of the driver: names and SONAMEs.
//!
//! Those of 550.163.01, read from Debian trixie's packages (`driver-debian-550.json` of the
//! corpus).

/// One library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Library {
    /// `libcuda` of `libcuda.so.550.163.01`.
    pub(super) name: &'static str,
    pub(super) soname: Soname,
    /// Whether there is a bare `.so` link beside it.
    pub(super) bare_link: bool,
    /// Below the library directory: `vdpau`; empty for most.
    pub(super) subdir: &'static str,
}

/// How file name and SONAME relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Soname {
    /// `name.so.<driver version>` with SONAME `name.so.<this>`, and a link so named.
    Number(&'static str),
    /// `name.so.<driver version>` is file name and SONAME.
    Version,
    /// `name.so.<this>` is file name and SONAME.
    Only(&'static str),
    /// A project of its own: `name.so.<second>` with SONAME `name.so.<first>`.
    Own(&'static str, &'static str),
}

impl Library {
    /// The name of the file.
    pub(super) fn file(&self, version: &str) -> String {
        let suffix = match self.soname {
            Soname::Number(_) | Soname::Version => version,
            Soname::Only(number) | Soname::Own(_, number) => number,
        };
        format!("{}.so.{suffix}", self.name)
    }

    /// The SONAME.
    pub(super) fn soname(&self, version: &str) -> String {
        let suffix = match self.soname {
            Soname::Number(number) | Soname::Only(number) | Soname::Own(number, _) => number,
            Soname::Version => version,
        };
        format!("{}.so.{suffix}", self.name)
    }
}

const fn numbered(name: &'static str, number: &'static str) -> Library {
    Library { name, soname: Soname::Number(number), bare_link: false, subdir: "" }
}

const fn with_bare_link(name: &'static str) -> Library {
    Library { name, soname: Soname::Number("1"), bare_link: true, subdir: "" }
}

const fn versioned(name: &'static str) -> Library {
    Library { name, soname: Soname::Version, bare_link: false, subdir: "" }
}

const fn own(name: &'static str, version: &'static str) -> Library {
    Library { name, soname: Soname::Own("1", version), bare_link: false, subdir: "" }
}

/// All 64-bit libraries.
pub(super) const LIBRARIES: [Library; 29] = [
    numbered("libEGL_nvidia", "0"),
    numbered("libGLESv1_CM_nvidia", "1"),
    numbered("libGLESv2_nvidia", "2"),
    numbered("libGLX_nvidia", "0"),
    with_bare_link("libcuda"),
    with_bare_link("libnvcuvid"),
    numbered("libnvidia-allocator", "1"),
    Library { name: "libnvidia-api", soname: Soname::Only("1"), bare_link: false, subdir: "" },
    numbered("libnvidia-cfg", "1"),
    own("libnvidia-egl-gbm", "1.1.2"),
    own("libnvidia-egl-wayland", "1.1.18"),
    versioned("libnvidia-eglcore"),
    with_bare_link("libnvidia-encode"),
    with_bare_link("libnvidia-fbc"),
    versioned("libnvidia-glcore"),
    versioned("libnvidia-glsi"),
    versioned("libnvidia-glvkspirv"),
    versioned("libnvidia-gpucomp"),
    with_bare_link("libnvidia-ml"),
    with_bare_link("libnvidia-ngx"),
    numbered("libnvidia-nvvm", "4"),
    numbered("libnvidia-opencl", "1"),
    with_bare_link("libnvidia-opticalflow"),
    versioned("libnvidia-pkcs11-openssl3"),
    numbered("libnvidia-ptxjitcompiler", "1"),
    versioned("libnvidia-rtcore"),
    versioned("libnvidia-tls"),
    numbered("libnvoptix", "1"),
    Library {
        name: "libvdpau_nvidia",
        soname: Soname::Number("1"),
        bare_link: false,
        subdir: "vdpau",
    },
];

/// The 32-bit ones among them that a RHEL-like host of the corpus has (`rhel-580.json`).
pub(super) const LIBRARIES_32: [Library; 4] = [
    numbered("libEGL_nvidia", "0"),
    numbered("libcuda", "1"),
    numbered("libnvidia-ml", "1"),
    numbered("libnvidia-ptxjitcompiler", "1"),
];
