//! What it costs to find one CDI device among a hundred spec files of 145 devices each, beside one
//! file: the program `nvidia-shim explain` from start to end, and what is between.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tests::product;

use crate::ROUNDS;
use crate::table::{compare, timed, title};

const FILES: usize = 100;
const DEVICES: usize = 145;
const LIMIT: &str = "10 ms more";

pub(crate) fn measure() {
    title(&format!("a CDI device, files of {DEVICES} devices"));
    let one = node(1, |_| 0);
    let vendors = node(FILES, |file| file);
    // The worst: all of them are of the kind that is asked for.
    let kind = node(FILES, |_| 0);
    let spec = one.path().join("config.json");
    let asked = json!({"process": {"env": ["NVIDIA_VISIBLE_DEVICES=vendor0.example/dev=f0d7"]}});
    fs::write(&spec, asked.to_string()).expect("config.json");
    compare(
        ROUNDS,
        &mut [
            ("one file", "", &mut || explain(&spec, one.path())),
            ("100 files of 100 kinds", LIMIT, &mut || explain(&spec, vendors.path())),
            ("100 files of one kind", "", &mut || explain(&spec, kind.path())),
        ],
    );
}

fn explain(spec: &Path, root: &Path) -> std::time::Duration {
    let mut command = Command::new(product().join("nvidia-shim"));
    command.args(["explain", "--handler", "nvidia-cdi", "--spec"]).arg(spec);
    command.arg("--host-root").arg(root).stdout(Stdio::null());
    timed(|| assert!(command.status().expect("nvidia-shim").success()))
}

/// A host with nothing but spec files; every other one is YAML.
fn node(files: usize, vendor: impl Fn(usize) -> usize) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a directory");
    let directory = root.path().join("etc/cdi");
    fs::create_dir_all(&directory).expect("etc/cdi");
    for file in 0..files {
        let spec = spec(file, vendor(file));
        let (name, text) = match file % 2 {
            0 => ("json", spec.to_string()),
            _ => ("yaml", yaml(&spec, "")),
        };
        fs::write(directory.join(PathBuf::from(format!("{file}.{name}"))), text).expect("a spec");
    }
    root
}

/// As those of a node whose GPUs are all divided.
fn spec(file: usize, vendor: usize) -> Value {
    let device = |number: usize| {
        json!({
            "containerEdits": {"deviceNodes": [
                {"major": 195, "path": format!("/dev/x{number}"), "permissions": "rw", "type": "c"},
                {"major": 235, "minor": number, "path": format!("/dev/caps/c{number}"), "type": "c"},
            ]},
            "name": format!("f{file}d{number}"),
        })
    };
    json!({
        "cdiVersion": "0.5.0",
        "containerEdits": {"env": ["VENDOR=1"]},
        "devices": (0..DEVICES).map(device).collect::<Vec<_>>(),
        "kind": format!("vendor{vendor}.example/dev"),
    })
}

/// In block style, as Go's writers have it.
fn yaml(value: &Value, indent: &str) -> String {
    let deeper = format!("{indent}  ");
    let item = |value: &Value| match value {
        Value::Object(_) | Value::Array(_) => format!("\n{}", yaml(value, &deeper)),
        scalar => format!(" {scalar}\n"),
    };
    match value {
        Value::Object(map) => {
            map.iter().map(|(key, value)| format!("{indent}{key}:{}", item(value))).collect()
        }
        Value::Array(list) => list
            .iter()
            .map(|value| match value {
                Value::Object(_) | Value::Array(_) => {
                    format!("{indent}- {}", yaml(value, &deeper).trim_start())
                }
                scalar => format!("{indent}- {scalar}\n"),
            })
            .collect(),
        scalar => scalar.to_string(),
    }
}
