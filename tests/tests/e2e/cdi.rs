//! CDI through the CRI plugin: a device is injected once, by whomever, and by whatever it is asked.

use std::fs;

use serde_json::{Value, json};
use tests::cri::messages::{CDIDevice, ContainerConfig};
use tests::{BUSYBOX, Containerd, Cuda, GLIBC, Node, Release, Sight, on_each_containerd};

use crate::pods::{Cluster, container_config};

on_each_containerd!(
    pods_by_cdi_get_a_device_once,
    specs_of_nvidias_toolkit_need_none_of_its_programs,
    devices_of_links_alone_beside_all_gpus,
);

/// What the device plugin writes for a GPU: containerd reads it as its own, our shim on the
/// simulated node.
fn spec(cluster: &Cluster, root: &str) -> Value {
    let node = |path: &str| json!({"path": path, "hostPath": format!("{root}{path}")});
    let gpu = |index: usize| {
        let path = format!("/dev/{}", cluster.node.gpu(index).node());
        json!({"name": index.to_string(), "containerEdits": {"deviceNodes": [node(&path)]}})
    };
    json!({
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "containerEdits": {
            "deviceNodes": [node("/dev/nvidiactl")],
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        },
        "devices": [gpu(0), gpu(1)],
    })
}

fn install(cluster: &Cluster) {
    let real = cluster.node.root();
    for (directory, root) in
        [(cluster.containerd.path("cdi"), real.to_str().unwrap()), (real.join("etc/cdi"), "")]
    {
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("nvidia.json"), spec(cluster, root).to_string()).unwrap();
    }
}

fn pods_by_cdi_get_a_device_once(release: Release) {
    let cluster = Cluster::with_handler(release, "nvidia-cdi");
    install(&cluster);
    let pod = cluster.run_pod();

    let mut annotated = container_config("annotated", None);
    let name = "nvidia.com/gpu=0".to_owned();
    annotated.annotations.insert("cdi.k8s.io/nvidia_gpu".to_owned(), name);
    is_given_once(&cluster, &pod, &annotated, 0);

    // By the field of CRI, since 1.7.
    if release != Release::Installed {
        let mut by_field = container_config("field", None);
        let mut device = CDIDevice::new();
        device.name = "nvidia.com/gpu=1".to_owned();
        by_field.CDI_devices.push(device);
        is_given_once(&cluster, &pod, &by_field, 1);
        // As the device plugin does that knows not which of the two the engine understands.
        by_field.metadata.mut_or_insert_default().name = "both".to_owned();
        let name = "nvidia.com/gpu=1".to_owned();
        by_field.annotations.insert("cdi.k8s.io/nvidia_gpu".to_owned(), name);
        is_given_once(&cluster, &pod, &by_field, 1);
    }
    cluster.remove(&pod);
}

fn is_given_once(cluster: &Cluster, pod: &str, config: &ContainerConfig, gpu: usize) {
    let container = cluster.create_as(pod, config);
    cluster.cri.start(&container).expect("StartContainer");
    let bundle = cluster.containerd.bundle("k8s.io", &container);
    let spec = fs::read_to_string(bundle.join("config.json")).expect("config.json");
    let spec: Value = serde_json::from_str(&spec).expect("JSON");
    let gpu = cluster.node.gpu(gpu);
    let list =
        |pointer: &str| spec.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let count = |name: &str| {
        let path = format!("/dev/{name}");
        list("/linux/devices").filter(|device| device["path"] == path).count()
    };
    let node = gpu.node();
    assert_eq!((count(&node), count("nvidiactl")), (1, 1), "{spec}");
    let is_its = |rule: &&Value| rule["major"] == 195 && rule["minor"] == gpu.minor;
    assert_eq!(list("/linux/resources/devices").filter(is_its).count(), 1, "{spec}");
    let env = list("/process/env").filter_map(Value::as_str);
    let said: Vec<_> = env.filter(|entry| entry.starts_with("NVIDIA_VISIBLE_DEVICES=")).collect();
    assert_eq!(said, ["NVIDIA_VISIBLE_DEVICES=void"]);
    let sight = cluster.look(&container);
    assert_eq!(sight.nodes(), [node.as_str(), "nvidiactl"], "{sight:?}");
}

const VERSION: &str = "550.163.01";

/// As `nvidia-ctk cdi generate` writes it, in YAML and with all its hooks; kinds come last there.
fn generated(node: &Node) -> String {
    let folder = "/usr/lib/x86_64-linux-gnu/nvidia/current";
    let hook = |words: &[&str]| {
        let args: Vec<String> = words.iter().map(|word| format!("\n    - {word}")).collect();
        format!(
            "  - args:\n    - nvidia-cdi-hook{}\n    env:\n    - NVIDIA_CTK_DEBUG=false\n    \
             hookName: createContainer\n    path: /usr/bin/nvidia-cdi-hook\n",
            args.concat()
        )
    };
    let link = format!("libcuda.so.1::{folder}/libcuda.so");
    let driver = format!("--host-driver-version={VERSION}");
    let hooks = [
        hook(&["create-symlinks", "--link", &link]),
        hook(&["enable-cuda-compat", &driver]),
        hook(&["update-ldcache", "--folder", folder]),
        hook(&["disable-device-node-modification"]),
        hook(&["update-application-profile"]),
    ];
    let mount = |name: &str| {
        let path = format!("{folder}/{name}.so.{VERSION}");
        format!(
            "  - containerPath: {path}\n    hostPath: {path}\n    \
             options: [ro, nosuid, nodev, rbind, rprivate]\n"
        )
    };
    let nodes =
        ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"].map(|it| format!("  - path: /dev/{it}\n"));
    format!(
        "---\ncdiVersion: 0.5.0\ncontainerEdits:\n  deviceNodes:\n{}  env:\n  \
         - NVIDIA_VISIBLE_DEVICES=void\n  hooks:\n{}  mounts:\n{}{}devices:\n\
         - containerEdits:\n    deviceNodes:\n    - path: /dev/{}\n  name: \"0\"\nkind: nvidia.com/gpu\n",
        nodes.concat(),
        hooks.concat(),
        mount("libcuda"),
        mount("libnvidia-ml"),
        node.gpu(0).node(),
    )
}

fn specs_of_nvidias_toolkit_need_none_of_its_programs(release: Release) {
    let containerd = Containerd::start(release);
    containerd.import(&GLIBC);
    let node = Node::new(2);
    let directory = node.root().join("etc/cdi");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("nvidia.yaml"), generated(&node)).unwrap();
    for runtime in ["io.containerd.nvidia.v2", "io.containerd.nvidia-cdi.v2"] {
        let run = containerd.container(&GLIBC, "c").runtime(runtime).on(&node);
        let output = run.gpus("nvidia.com/gpu=0").run(&["probe", "--cuda"]).ok();
        let sight = Sight::parse(&output);
        assert_eq!(sight.cuda, Some(Cuda::Loaded { init: 0, result: 0, count: 1 }), "{sight:?}");
        assert_eq!(sight.nodes().len(), 4, "{sight:?}");
        // Of the spec and not of what is there: it has no programs.
        assert!(!sight.mounts.iter().any(|place| place.ends_with("nvidia-smi")), "{sight:?}");
        containerd.assert_clean();
    }
}

/// A device of another vendor whose only edit is a hook of NVIDIA's, which is done without: nothing
/// of the OCI spec changes for it.
fn devices_of_links_alone_beside_all_gpus(release: Release) {
    let containerd = Containerd::start(release);
    containerd.import(&BUSYBOX);
    let node = Node::new(2);
    let hook = json!({
        "hookName": "createContainer",
        "path": "/none/nvidia-cdi-hook",
        "args": ["nvidia-cdi-hook", "create-symlinks", "--link", "here::/opt/x/link"],
    });
    let spec = json!({
        "cdiVersion": "0.5.0",
        "kind": "vendor.com/tool",
        "devices": [{"name": "links", "containerEdits": {"hooks": [hook]}}],
    });
    let directory = node.root().join("etc/cdi");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("tool.json"), spec.to_string()).unwrap();
    for (names, gpus) in [("vendor.com/tool=links", "0"), ("vendor.com/tool=links,all", "2")] {
        let run = containerd.container(&BUSYBOX, "c").runtime("io.containerd.nvidia.v2").on(&node);
        let look = "readlink /opt/x/link; ls /dev | grep -c nvidia[0-9]; true";
        let output = run.gpus(names).run(&["sh", "-c", look]).ok();
        assert_eq!(output.split_whitespace().collect::<Vec<_>>(), ["here", gpus], "{names}");
        containerd.assert_clean();
    }
}
