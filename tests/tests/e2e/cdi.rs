//! CDI through the CRI plugin: a device is injected once, by whomever, and by whatever it is asked.

use std::fs;

use serde_json::{Value, json};
use tests::cri::messages::{CDIDevice, ContainerConfig};
use tests::{Release, on_each_containerd};

use crate::pods::{Cluster, container_config};

on_each_containerd!(pods_by_cdi_get_a_device_once);

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
