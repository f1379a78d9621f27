//! Specs of a driver that is not there any more.

use nvidia_oci::Code;
use serde_json::{Value, json};

use crate::scene::{Scene, env};

const LIBCUDA: &str = "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so";

fn edits(version: &str) -> Value {
    let library = format!("{LIBCUDA}.{version}");
    json!({
        "env": ["FROM=spec"],
        "mounts": [{"hostPath": library, "containerPath": library}],
        "deviceNodes": [{"path": "/dev/nvidia0"}],
    })
}

fn scene(version: &str) -> Scene {
    Scene::on("deb535-2gpu").described("n", "nvidia.com/gpu", &[("0", edits(version))]).asking("0")
}

fn is_of_spec(scene: &Scene) -> bool {
    scene.plan().edits.env.contains(&("FROM".to_owned(), "spec".to_owned()))
}

#[test]
fn a_spec_of_another_version_is_healed_or_refused_with_both() {
    assert!(is_of_spec(&scene("535.261.03")));
    let stale = scene("550.163.01");
    assert!(!is_of_spec(&stale));
    let warning = stale.plan().report.warnings[0].clone();
    let told = "/etc/cdi/n.json is of driver 550.163.01, and 535.261.03 is loaded";
    assert!(warning.contains(told), "{warning}");
    assert!(stale.nodes().contains("/dev/nvidia0") && stale.nodes().contains("/dev/nvidiactl"));
    let error = stale.set("stale-spec", "fail").refusal();
    assert_eq!(error.code(), Code::StaleSpec);
    assert!(error.to_string().contains(told), "{error}");
}

#[test]
fn a_spec_whose_files_are_gone_is_stale() {
    let gone = scene("535.261.03").remove("/dev/nvidia0");
    let warning = &gone.plan().report.warnings[0];
    assert!(
        warning.contains("names /dev/nvidia0 of driver 535.261.03, which is not there"),
        "{warning}"
    );
    // A node that the driver can have is made.
    assert_eq!(gone.plan().missing_nodes.len(), 1);
    let gone =
        scene("535.261.03").set("stale-spec", "fail").remove(&format!("{LIBCUDA}.535.261.03"));
    assert_eq!(gone.refusal().code(), Code::StaleSpec);
}

#[test]
fn a_name_that_means_nothing_without_its_spec_is_refused() {
    let claim = "k8s.gpu.nvidia.com/claim";
    let scene = Scene::on("deb535-2gpu")
        .described("n", claim, &[("x", edits("550.163.01"))])
        .asking(&format!("{claim}=x"));
    assert_eq!(scene.refusal().code(), Code::StaleSpec);
}

#[test]
fn specs_of_others_are_not_held_against_the_driver() {
    let scene = Scene::on("deb535-2gpu")
        .described("n", "vendor.example/gpu", &[("0", edits("550.163.01"))])
        .described("o", "vendor.example/other", &[("0", env("A=1"))])
        .asking("vendor.example/gpu=0");
    assert!(is_of_spec(&scene));
}
