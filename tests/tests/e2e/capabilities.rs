//! What the driver's capabilities give and miss, proven from inside.

use std::fs;
use std::path::PathBuf;

use nvidia_shim::simulate::Layout;
use tests::{BUSYBOX, Containerd, GLIBC, Node, Release, Run, on_each_containerd};

on_each_containerd!(
    are_honoured,
    mandatory_library_is_missed,
    missing_node_is_made,
    module_that_is_not_loaded_is_missed,
    vendor_files_are_written,
);

fn machine(release: Release) -> (Containerd, Node) {
    let containerd = Containerd::start(release);
    containerd.import(&BUSYBOX);
    (containerd, Node::new(1))
}

fn asking<'a>(containerd: &'a Containerd, node: &Node, capabilities: &str) -> Run<'a> {
    let run = containerd.container(&BUSYBOX, "c").on(node).gpus("0");
    run.env("NVIDIA_DRIVER_CAPABILITIES", capabilities)
}

/// The line that a person gets.
#[track_caller]
fn refusal(containerd: &Containerd, node: &Node, capabilities: &str) -> String {
    let words = asking(containerd, node, capabilities).run(&["true"]).refused();
    // The container is there although its task is not: `ctr run --rm` gave up before.
    containerd.ctr(&["containers", "delete", "c"]);
    words
}

fn are_honoured(release: Release) {
    let (containerd, node) = machine(release);
    let gpu = node.gpu(0).node();
    for (capabilities, control, libraries) in [
        ("", &["nvidia-uvm", "nvidia-uvm-tools"][..], &["libcuda.so", "libnvidia-ml.so"][..]),
        ("utility", &[], &["libnvidia-ml.so"]),
        ("graphics", &[], &["libEGL_nvidia.so"]),
        ("display", &["nvidia-modeset"], &["libEGL_nvidia.so"]),
        ("video", &["nvidia-uvm", "nvidia-uvm-tools"], &["libcuda.so", "libnvcuvid.so"]),
    ] {
        let sight = asking(&containerd, &node, capabilities).look(&[]);
        let mut expected = vec![gpu.as_str(), "nvidiactl"];
        expected.extend(control);
        expected.sort_unstable();
        let mut nodes = sight.nodes();
        nodes.retain(|name| name.starts_with("nvidia"));
        nodes.sort_unstable();
        assert_eq!(nodes, expected, "{capabilities}");
        for library in ["libcuda.so", "libnvidia-ml.so", "libEGL_nvidia.so", "libnvcuvid.so"] {
            let given = sight.mounts.iter().any(|point| point.contains(library));
            assert_eq!(given, libraries.contains(&library), "{capabilities}: {library}");
        }
        let has_drm = asking(&containerd, &node, capabilities).run(&["ls", "/dev/dri/renderD128"]);
        let draws = ["graphics", "display"].contains(&capabilities);
        assert_eq!(has_drm.success(), draws, "{capabilities}: {has_drm}");
    }
    containerd.assert_clean();
}

/// Every file of the node with that beginning of a name.
fn files(node: &Node, name: &str) -> Vec<PathBuf> {
    let mut pending = vec![node.root().join("usr/lib")];
    let mut found = Vec::new();
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).expect("a directory").flatten() {
            if entry.file_type().expect("a type").is_dir() {
                pending.push(entry.path());
            } else if entry.file_name().to_string_lossy().starts_with(name) {
                found.push(entry.path());
            }
        }
    }
    found
}

fn mandatory_library_is_missed(release: Release) {
    let (containerd, node) = machine(release);
    for name in ["libcuda.so", "libEGL_nvidia.so", "libGLX_nvidia.so"] {
        let found = files(&node, name);
        assert!(!found.is_empty(), "{name}");
        found.iter().for_each(|path| fs::remove_file(path).expect("remove"));
    }
    for (capabilities, words) in [
        ("compute", "has no libcuda.so, which compute"),
        ("graphics", "has no libEGL_nvidia.so or libGLX_nvidia.so, which graphics"),
    ] {
        let line = refusal(&containerd, &node, capabilities);
        assert!(line.contains("NVS-205") && line.contains(words), "{line}");
    }
    asking(&containerd, &node, "utility").run(&["true"]).ok();
    containerd.assert_clean();
}

fn missing_node_is_made(release: Release) {
    let (containerd, node) = machine(release);
    let missing = node.root().join("dev/nvidia-uvm");
    fs::remove_file(&missing).expect("remove");
    let sight = asking(&containerd, &node, "utility").look(&[]);
    assert!(!sight.nodes().contains(&"nvidia-uvm") && !missing.exists(), "{sight:?}");
    let sight = asking(&containerd, &node, "compute").look(&[]);
    assert!(sight.nodes().contains(&"nvidia-uvm") && missing.exists(), "{sight:?}");
    containerd.assert_clean();
}

fn module_that_is_not_loaded_is_missed(release: Release) {
    let (containerd, node) = machine(release);
    node.configure("", "load-kmods = false");
    let devices = node.root().join("proc/devices");
    let text = fs::read_to_string(&devices).expect("proc/devices");
    let rest: Vec<_> = text.lines().filter(|line| !line.contains("nvidia-uvm")).collect();
    fs::write(devices, rest.join("\n") + "\n").expect("proc/devices");
    let line = refusal(&containerd, &node, "compute");
    assert!(line.contains("NVS-209") && line.contains("nvidia-uvm"), "{line}");
    asking(&containerd, &node, "utility").run(&["true"]).ok();
    containerd.assert_clean();
}

/// GKE's driver has the libraries of EGL, and not the file by which they are found.
fn vendor_files_are_written(release: Release) {
    let containerd = Containerd::start(release);
    containerd.import(&GLIBC);
    let node = Node::with(Layout::Gke, 1);
    let run = containerd.container(&GLIBC, "c").on(&node).gpus("0");
    let run = run.env("NVIDIA_DRIVER_CAPABILITIES", "graphics,utility");
    let vendor = "/usr/share/glvnd/egl_vendor.d/10_nvidia.json";
    let text = run.run(&["cat", vendor, "/etc/vulkan/icd.d/nvidia_icd.json"]).ok();
    assert!(text.contains("libEGL_nvidia.so.0") && text.contains("libGLX_nvidia.so.0"), "{text}");
    containerd.assert_clean();
}
