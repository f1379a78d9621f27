use std::fs;
use std::path::Path;

use clap::Parser;
use serde_json::json;

use super::*;
use crate::simulate::{Layout, Node};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

/// A simulated node, and beside it a bundle.
struct Rig(tempfile::TempDir);

impl Rig {
    fn new(env: &[&str]) -> Self {
        let rig = Self(tempfile::tempdir().unwrap());
        Node::new(Layout::Debian, 2).write(&rig.host()).unwrap();
        rig.write(&json!({"process": {"env": env}}).to_string());
        rig
    }

    fn host(&self) -> PathBuf {
        self.0.path().join("host")
    }

    fn write(&self, config_json: &str) {
        fs::create_dir_all(self.0.path().join("bundle")).unwrap();
        fs::write(self.0.path().join("bundle/config.json"), config_json).unwrap();
    }

    fn question(&self, more: &[&str]) -> anyhow::Result<Question> {
        let (host, bundle) = (self.host(), self.0.path().join("bundle"));
        let path = |path: &Path| path.display().to_string();
        let line = ["explain", "--handler", "nvidia", "--host-root", &path(&host), "--bundle"]
            .map(str::to_owned)
            .into_iter()
            .chain([path(&bundle)])
            .chain(more.iter().map(|word| (*word).to_owned()));
        Question::of(&Line::try_parse_from(line)?.args)
    }

    fn explain(&self, more: &[&str]) -> Explanation {
        self.question(more).unwrap().explain()
    }
}

#[test]
fn an_edited_spec_names_host_paths_without_the_prefix() {
    let rig = Rig::new(&["NVIDIA_VISIBLE_DEVICES=0"]);
    let answer = rig.explain(&["--set", "library-path=host"]);
    assert_eq!(answer.outcome, Verdict::Edited, "{:?}", answer.message);
    let json = serde_json::to_string(&answer).unwrap();
    assert!(!json.contains(&rig.host().display().to_string()));
    let devices = answer.spec["linux"]["devices"].as_array().unwrap();
    let gpus = devices.iter().filter(|device| device["path"] == "/dev/nvidia1").count();
    assert_eq!(gpus, 1, "index 0 is minor 1");
    assert!(devices.iter().all(|device| device["path"] != "/dev/nvidia0"));
    let cuda = |link: &&Link| link.link.ends_with("libcuda.so.1");
    assert_eq!(answer.fixups.links.iter().filter(cuda).count(), 1);
}

#[test]
fn the_json_form_has_every_key_of_the_contract() {
    let answer = serde_json::to_value(Rig::new(&[]).explain(&[])).unwrap();
    assert_eq!(answer["outcome"], "untouched");
    assert_eq!(
        answer["fixups"],
        json!({"links": [], "library_dirs": [], "files": [], "cuda_compat": null, "mask_params": false,
               "app_profile": null})
    );
    let keys: Vec<_> = answer.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["outcome", "code", "message", "spec", "fixups", "report"]);
}

#[test]
fn a_refusal_leaves_the_spec_as_it_was() {
    let rig = Rig::new(&["NVIDIA_VISIBLE_DEVICES=7"]);
    let answer = rig.explain(&[]);
    assert_eq!((answer.outcome, answer.code), (Verdict::Refused, Some("NVS-101")));
    assert_eq!(answer.spec, json!({"process": {"env": ["NVIDIA_VISIBLE_DEVICES=7"]}}));
    assert_eq!(answer.report.request.as_deref(), Some("NVIDIA_VISIBLE_DEVICES=7"));
    assert!(answer.message.unwrap().lines().count() == 1);
}

#[test]
fn broken_json_is_refused_with_its_place() {
    let rig = Rig::new(&[]);
    rig.write("{\n");
    let answer = rig.explain(&[]);
    assert_eq!((answer.code, &answer.spec), (Some("NVS-001"), &Value::Null));
    assert!(answer.message.unwrap().contains("bundle/config.json is not JSON: "));
}

#[test]
fn broken_settings_stop_only_those_who_ask() {
    let rig = Rig::new(&["NVIDIA_VISIBLE_DEVICES=0"]);
    let file = rig.0.path().join("config.toml");
    fs::write(&file, "[\n").unwrap();
    let option = ["--config", file.to_str().unwrap()];
    assert_eq!(rig.explain(&option).code, Some("NVS-002"));
    rig.write("{}");
    assert_eq!(rig.explain(&option).outcome, Verdict::Untouched);
}

#[test]
fn wrong_arguments_are_no_answer() {
    let rig = Rig::new(&[]);
    let wrong = |more: &[&str]| rig.question(more).unwrap_err().to_string();
    assert!(wrong(&["--set", "library-path=there"]).contains("\"image\""));
    assert!(wrong(&["--set", "colour=red"]).contains("no setting"));
    assert!(wrong(&["--set", "colour"]).contains("KEY=VALUE"));
    assert!(wrong(&["--config", "/nonexistent"]).contains("/nonexistent"));
    assert!(wrong(&["--spec", "/x"]).contains("cannot be used with"));
    fs::remove_file(rig.0.path().join("bundle/config.json")).unwrap();
    assert!(wrong(&[]).contains("config.json"));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_image_of_a_bundle_tells_where_libraries_go() {
    let rig = Rig::new(&["NVIDIA_VISIBLE_DEVICES=0"]);
    rig.write(
        &json!({"process": {"env": ["NVIDIA_VISIBLE_DEVICES=0"]}, "root": {"path": "rootfs"}})
            .to_string(),
    );
    let without = rig.explain(&[]);
    assert!(without.report.warnings.iter().any(|line| line.contains("no root filesystem")));
    let library_dir = rig.0.path().join("bundle/rootfs/usr/lib64");
    fs::create_dir_all(&library_dir).unwrap();
    let loader = "ld-linux-x86-64.so.2";
    fs::copy(Path::new("/lib64").join(loader), library_dir.join(loader)).unwrap();
    std::os::unix::fs::symlink("usr/lib64", rig.0.path().join("bundle/rootfs/lib64")).unwrap();
    let answer = rig.explain(&[]);
    assert_eq!(answer.outcome, Verdict::Edited, "{:?}", answer.message);
    assert!(answer.fixups.library_dirs.contains(&PathBuf::from("/usr/lib64")));
}

#[test]
fn nothing_on_disk_changes() {
    let rig = Rig::new(&["NVIDIA_VISIBLE_DEVICES=all"]);
    let before = fs::read(rig.0.path().join("bundle/config.json")).unwrap();
    rig.explain(&[]);
    assert_eq!(fs::read(rig.0.path().join("bundle/config.json")).unwrap(), before);
    assert_eq!(fs::read_dir(rig.0.path().join("bundle")).unwrap().count(), 1);
}
