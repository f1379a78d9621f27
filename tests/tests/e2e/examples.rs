//! The example files for containerd, as containerd itself reads them.

use std::fs;
use std::path::Path;
use std::process::Command;

use tests::{Release, on_each_containerd};

on_each_containerd!(drop_in_gives_the_handlers);

fn drop_in_gives_the_handlers(release: Release) {
    let version = if release.version().0 >= 2 { 3 } else { 2 };
    let example = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../examples/containerd/nvidia-v{version}.toml"));
    let dir = tempfile::tempdir().unwrap();
    let main = dir.path().join("config.toml");
    fs::write(&main, format!("version = {version}\nimports = [{example:?}]\n")).unwrap();

    let mut command = Command::new(release.containerd());
    let output = command.arg("--config").arg(&main).args(["config", "dump"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let config: toml::Table = text.parse().unwrap();
    let plugins = &config["plugins"];
    let plugin = plugins.get("io.containerd.cri.v1.runtime");
    let plugin = plugin.or_else(|| plugins.get("io.containerd.grpc.v1.cri")).unwrap();
    let runtimes = &plugin["containerd"]["runtimes"];
    for (name, kind) in [
        ("runc", "io.containerd.runc.v2"),
        ("nvidia", "io.containerd.nvidia.v2"),
        ("nvidia-cdi", "io.containerd.nvidia-cdi.v2"),
    ] {
        assert_eq!(runtimes[name]["runtime_type"].as_str(), Some(kind), "{text}");
    }
    assert_eq!(runtimes["nvidia"]["options"]["SystemdCgroup"].as_bool(), Some(true), "{text}");
}
