//! `nvidia-shim cdi` on a simulated node: what it prints, and how it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nvidia_shim::simulate::{Layout, Node};
use serde_json::Value;
use tempfile::TempDir;

struct Host {
    _dir: TempDir,
    root: PathBuf,
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("host");
        Node::new(Layout::Debian, 2).write(&root).unwrap();
        Self { _dir: dir, root }
    }

    /// Exit code and standard output.
    fn run(&self, words: &[&str]) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvidia-shim"));
        command.arg("cdi").args(words);
        if words[0] != "diff" {
            command.arg("--host-root").arg(&self.root);
        }
        let output = command.output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code().unwrap(), text)
    }

    fn path(&self, path: &str) -> String {
        self.root.join(path).display().to_string()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn list_shows_devices_files_and_problems() {
    let host = Host::new();
    assert_eq!(host.run(&["list"]), (0, "no CDI specs\n".to_owned()));
    let file = host.path("etc/cdi/nvidia.yaml");
    assert_eq!(host.run(&["generate", "--output", &file]), (0, String::new()));
    host.write("etc/cdi/broken.json", "{");
    let (code, text) = host.run(&["list"]);
    assert_eq!(code, 0);
    let line = text.lines().find(|line| line.starts_with("nvidia.com/gpu=0 ")).unwrap();
    assert!(line.ends_with("/etc/cdi/nvidia.yaml"), "{line}");
    assert!(text.contains("problem: /etc/cdi/broken.json is no CDI spec"), "{text}");
    let all = json(&host.run(&["list", "--json"]).1);
    assert_eq!(all["devices"].as_array().unwrap().len(), 5);
    assert_eq!(all["devices"][0]["kind"], "nvidia.com/gpu");
    assert_eq!(all["problems"][0]["file"], "/etc/cdi/broken.json");
    assert_eq!(host.run(&["list", "--spec-dir=/none"]).1, "no CDI specs\n");
}

#[test]
fn validate_tells_all_that_is_wrong() {
    let host = Host::new();
    host.write(
        "a.yaml",
        "cdiVersion: 0.3.0\nkind: a/b\ndevices:\n- name: _x\n  containerEdits: {env: [A]}\n\
         - name: y\n  containerEdits:\n    deviceNodes: [{path: /a, type: z}, {path: /b, permissions: q}]\n",
    );
    let (code, text) = host.run(&["validate", "/a.yaml", "/none"]);
    assert_eq!(code, 1);
    for what in ["\"_x\"", "\"A\" in env", "device y: ", "/a is of type", "/b has permissions"] {
        assert!(text.contains(what), "{what} is not in {text}");
    }
    assert!(text.contains("/none: cannot be read"), "{text}");
    assert!(text.lines().all(|line| line.starts_with('/')), "{text}");
}

#[test]
fn diff_compares_what_specs_mean() {
    let host = Host::new();
    let [one, other, third] = ["a.json", "b.yaml", "c.json"].map(|name| host.path(name));
    host.run(&["generate", "--output", &one]);
    host.run(&["generate", "--output", &other]);
    host.run(&["generate", "--output", &third, "--device-id=1"]);
    assert_eq!(host.run(&["diff", &one, &other]), (0, String::new()));
    let (code, text) = host.run(&["diff", &one, &third]);
    assert_eq!(code, 1);
    assert!(text.contains("- device 0\n") && !text.contains('+'), "{text}");
    assert_eq!(host.run(&["diff", &one, "/none.json"]).0, 2);
}

#[test]
fn resolve_tells_what_containers_get() {
    let host = Host::new();
    let file = host.path("etc/cdi/nvidia.json");
    host.run(&["generate", "--output", &file]);
    let spec = json(&fs::read_to_string(Path::new(&file)).unwrap());
    let (code, text) = host.run(&["resolve", "nvidia.com/gpu=1"]);
    assert_eq!(code, 0, "{text}");
    let mounts = spec["containerEdits"]["mounts"].as_array().unwrap();
    let paths = mounts.iter().map(|mount| mount["containerPath"].as_str().unwrap());
    for path in paths {
        assert!(text.contains(path), "{path} is not in {text}");
    }
    let all = json(&host.run(&["resolve", "--json", "nvidia.com/gpu=1"]).1);
    assert_eq!(all["edits"]["mounts"].as_array().unwrap().len(), mounts.len());
    // What a spec describes and what is there are the same.
    let just_in_time = json(&host.run(&["resolve", "--json", "runtime.nvidia.com/gpu=1"]).1);
    for kind in ["devices", "mounts", "additional_gids"] {
        let list = |value: &Value| {
            let items = value["edits"][kind].as_array().unwrap().iter();
            let place = |item: &Value| {
                let path = item.get("path").or_else(|| item.get("destination"));
                path.unwrap_or(item).to_string()
            };
            let mut items: Vec<String> = items.map(place).collect();
            items.sort();
            items
        };
        assert_eq!(list(&all), list(&just_in_time), "{kind}");
    }
    let (code, text) = host.run(&["resolve", "nvidia.com/gpu=9"]);
    assert_eq!(code, 3);
    assert!(text.contains("NVS-101") || text.contains("NVS-111"), "{text}");
}
