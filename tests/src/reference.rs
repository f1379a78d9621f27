//! What each driver capability gives, by the tables of NVIDIA's libnvidia-container and of its
//! runtime, kept here apart from the product's own.

use std::collections::BTreeSet;

/// libnvidia-container's lists, with what NVIDIA's runtime adds for graphics.
pub const REFERENCE: [(&str, &str); 6] = [
    (
        "utility",
        "libnvidia-ml libnvidia-cfg libnvidia-nscq nv-fabricmanager nvidia-smi \
         nvidia-debugdump nvidia-persistenced socket",
    ),
    (
        "compute",
        "libcuda libcudadebugger libnvidia-fatbinaryloader libnvidia-pkcs11 libnvidia-tileiras \
         libnvidia-opencl libnvidia-gpucomp libnvidia-ptxjitcompiler libnvidia-allocator \
         libnvidia-compiler libnvidia-pkcs11-openssl3 libnvidia-nvvm nvidia-cuda-mps-control \
         nvidia-cuda-mps-server nvidia-uvm nvidia-uvm-tools",
    ),
    ("video", "libvdpau_nvidia libnvidia-encode libnvidia-opticalflow libnvcuvid"),
    (
        "graphics",
        "libnvidia-eglcore libnvidia-glcore libnvidia-tls libnvidia-glsi libnvidia-fbc \
         libnvidia-ifr libnvidia-rtcore libnvoptix libGLX_nvidia libEGL_nvidia libGLESv2_nvidia \
         libGLESv1_CM_nvidia libnvidia-glvkspirv libnvidia-cbl libnvidia-egl-gbm \
         libnvidia-egl-wayland libnvidia-vulkan-producer 10_nvidia.json 15_nvidia_gbm.json \
         10_nvidia_wayland.json nvoptix.bin nvidia_icd.json nvidia_layers.json nvidia.icd card1 \
         renderD128",
    ),
    ("ngx", "libnvidia-ngx"),
    ("display", "nvidia-modeset"),
];
/// What is given beyond the lists: that without which a part does not load.
pub const BEYOND: [(&str, &str); 2] = [
    ("compute", "nvidia.icd"),
    ("graphics", "libnvidia-gpucomp libnvidia-ptxjitcompiler libnvidia-allocator"),
];
pub const ALWAYS: &str = "nvidia0 nvidiactl gsp_ga10x.bin gsp_tu10x.bin";

/// Names, without directory and version, of what these capabilities give.
pub fn names(capabilities: &[&str]) -> BTreeSet<&'static str> {
    let lists = REFERENCE.iter().chain(&BEYOND);
    let given = lists.filter(|(capability, _)| capabilities.contains(capability));
    given.map(|(_, names)| *names).chain([ALWAYS]).flat_map(str::split_whitespace).collect()
}
