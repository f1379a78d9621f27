//! The OCI-runtime front as a program, in front of a runtime that notes how it was called.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use proptest::prelude::*;
use serde_json::Value;

const ASKS: &str = r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES=all"]}}"#;
const ASKS_NOT: &str = r#"{"process":{"env":["PATH=/bin"]}}"#;

/// A bundle, settings, and a runtime that writes its words and environment to files.
struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    fn new(spec: &str) -> Self {
        let scene = Self { dir: tempfile::tempdir().unwrap() };
        fs::write(scene.path("config.json"), spec).unwrap();
        fs::create_dir(scene.path("rootfs")).unwrap();
        let dir = scene.dir.path().display();
        let script = format!(
            "#!/bin/sh\nprintf '%s\\0' \"$@\" > {dir}/words\n\
             cat /proc/$$/environ > {dir}/environment\necho the runtime\nexit 7\n"
        );
        fs::write(scene.path("runtime"), script).unwrap();
        fs::set_permissions(scene.path("runtime"), Permissions::from_mode(0o755)).unwrap();
        scene.settings("");
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// On a host where there is nothing, with further settings.
    fn settings(&self, more: &str) {
        let (runtime, host) = (self.path("runtime"), self.path("host"));
        fs::create_dir_all(&host).unwrap();
        let text = format!(
            "[nvidia-container-runtime]\nruntimes = [{runtime:?}]\n\
             [nvidia-shim]\nhost-root = {host:?}\n{more}\n"
        );
        fs::write(self.path("config.toml"), text).unwrap();
    }

    fn command(&self, words: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_containerd-shim-nvidia-v2"));
        command
            .arg0("/usr/bin/nvidia-container-runtime")
            .args(words)
            .env_clear()
            .env("NVIDIA_CTK_CONFIG_FILE_PATH", self.path("config.toml"))
            .env("A_VARIABLE", "its value\n")
            .current_dir(self.dir.path());
        command
    }

    fn call(&self, words: &[impl AsRef<OsStr>]) -> Output {
        self.command(words).output().unwrap()
    }

    /// The words that the runtime got, if it was called.
    fn words(&self) -> Option<Vec<OsString>> {
        let text = fs::read(self.path("words")).ok()?;
        let words = text.strip_suffix(b"\0")?.split(|byte| *byte == 0);
        Some(words.map(|word| OsString::from_vec(word.to_vec())).collect())
    }

    #[track_caller]
    fn passes(&self, words: &[&str]) {
        let output = self.call(words);
        assert_eq!(output.status.code(), Some(7), "{words:?} {output:?}");
        assert_eq!(output.stdout, b"the runtime\n", "{words:?}");
        assert!(output.stderr.is_empty(), "{words:?} {output:?}");
        assert_eq!(self.words().unwrap(), words);
        fs::remove_file(self.path("words")).unwrap();
    }

    /// The message for containerd, which is on standard error as well.
    #[track_caller]
    fn refused(&self, create: &[&str]) -> String {
        let log = self.path("log.json");
        let words = ["--log", log.to_str().unwrap(), "--log-format", "json"];
        let before = fs::read(self.path("config.json")).unwrap();
        let output = self.call(&[&words[..], create].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(self.words(), None);
        assert_eq!(fs::read(self.path("config.json")).unwrap(), before);
        let text = fs::read_to_string(log).unwrap();
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(last["level"], "error");
        let message = last["msg"].as_str().unwrap().to_owned();
        assert_eq!(String::from_utf8(output.stderr).unwrap().trim_end(), message);
        message
    }
}

#[test]
fn the_runtime_gets_words_and_environment_as_they_are() {
    let scene = Scene::new(ASKS_NOT);
    scene.passes(&["--root", "/r", "create", "--bundle", ".", "--pid-file", "/p", "c1"]);
    let environment = fs::read(scene.path("environment")).unwrap();
    let mut environment: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
    environment.retain(|entry| !entry.is_empty());
    let config = scene.path("config.toml");
    let config = [&b"NVIDIA_CTK_CONFIG_FILE_PATH="[..], config.as_os_str().as_bytes()];
    environment.sort_unstable();
    assert_eq!(environment, [&b"A_VARIABLE=its value\n"[..], &config.concat()[..]]);
}

#[test]
fn only_who_asks_and_is_created_is_looked_at() {
    let scene = Scene::new(ASKS);
    for line in ["state c1", "exec c1 create", "delete create", "features", "-v", "list -f json"] {
        scene.passes(&line.split(' ').collect::<Vec<_>>());
    }
    for line in ["create c1", "run --bundle . c1"] {
        let message = scene.refused(&line.split(' ').collect::<Vec<_>>());
        assert!(message.starts_with("NVS-201: "), "{message}");
    }
    let message = scene.refused(&["create", "c1", "--bundle"]);
    assert!(message.contains("--bundle has no value"), "{message}");
}

#[test]
fn a_broken_file_stops_only_who_asks() {
    let scene = Scene::new(ASKS);
    fs::write(scene.path("config.toml"), "[nvidia-shim\n").unwrap();
    let message = scene.refused(&["create", "c1"]);
    let asked = "NVS-002: NVIDIA_VISIBLE_DEVICES=all asks for devices: ";
    assert!(message.starts_with(asked), "{message}");
    // The default list, in our PATH.
    symlink("runtime", scene.path("runc")).unwrap();
    let call = |words: &[&str]| {
        let output = scene.command(words).env("PATH", scene.dir.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{output:?}");
    };
    call(&["state", "c1"]);
    fs::write(scene.path("config.json"), ASKS_NOT).unwrap();
    call(&["create", "c1"]);
}

#[test]
fn a_spec_that_is_none_is_for_the_runtime_to_refuse() {
    let scene = Scene::new("{");
    scene.passes(&["create", "c1"]);
    fs::remove_file(scene.path("config.json")).unwrap();
    scene.passes(&["create", "c1"]);
    fs::write(scene.path("config.json"), "{ NVIDIA_VISIBLE_DEVICES").unwrap();
    let message = scene.refused(&["create", "c1"]);
    assert!(message.starts_with("NVS-001: "), "{message}");
}

/// crun's `--config` names another file than the bundle's.
#[test]
fn a_spec_elsewhere_is_refused_if_it_asks() {
    let scene = Scene::new(ASKS_NOT);
    fs::write(scene.path("other"), ASKS).unwrap();
    let message = scene.refused(&["create", "--config", "other", "c1"]);
    assert!(message.starts_with("NVS-001: other asks for GPUs"), "{message}");
    fs::write(scene.path("other"), ASKS_NOT).unwrap();
    fs::write(scene.path("config.json"), ASKS).unwrap();
    scene.passes(&["create", "--config", "other", "c1"]);
}

#[test]
fn the_log_file_that_nvidia_documents_is_written() {
    let scene = Scene::new(ASKS);
    let log = scene.path("debug.log");
    let runtime = format!("[nvidia-container-runtime]\ndebug = {log:?}\nlog-level = \"debug\"\n");
    let table = "[nvidia-container-runtime]\n";
    let settings = fs::read_to_string(scene.path("config.toml")).unwrap();
    fs::write(scene.path("config.toml"), settings.replace(table, &runtime)).unwrap();
    let message = scene.refused(&["create", "c1"]);
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("level=error msg=\"NVS-201") && message.starts_with("NVS-201"), "{text}");
    scene.passes(&["state", "c1"]);
    assert_eq!(fs::read_to_string(&log).unwrap(), text);
}

#[test]
fn a_node_without_driver_may_start_containers_without_gpus() {
    let scene = Scene::new(ASKS);
    scene.settings("no-driver = \"start\"");
    let output = scene.call(&["create", "c1"]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    // A warning is where runc's are.
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("level=warning msg=\"c1: no driver"), "{text}");
}

#[test]
fn our_version_comes_before_the_runtimes() {
    let scene = Scene::new(ASKS);
    let output = scene.call(&["--version"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let ours = format!("nvidia-container-runtime version {}", env!("CARGO_PKG_VERSION"));
    assert!(text.starts_with(&ours) && text.ends_with("\nthe runtime\n"), "{text}");
    assert_eq!(scene.words().unwrap(), ["--version"]);
}

#[test]
fn without_a_runtime_nothing_is_prepared() {
    let scene = Scene::new(ASKS);
    fs::remove_file(scene.path("runtime")).unwrap();
    let message = scene.refused(&["create", "c1"]);
    assert!(message.starts_with("NVS-404: ") && message.contains("is no program"), "{message}");
    let message = scene.refused(&["state", "c1"]);
    assert!(message.starts_with("NVS-404: "), "{message}");
}

#[test]
fn an_error_without_a_log_is_on_standard_error_as_runc_writes_it() {
    let scene = Scene::new(ASKS);
    let output = scene.call(&["create", "c1"]);
    let text = String::from_utf8(output.stderr).unwrap();
    let line = text.lines().last().unwrap();
    assert!(line.starts_with("time=") && line.contains("level=error msg=\"NVS-201"), "{text}");
}

#[test]
fn our_own_verbs_are_the_runtimes_here() {
    let scene = Scene::new(ASKS);
    for word in ["worker", "relay", "start"] {
        scene.passes(&[word]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn words_pass_unchanged(
        words in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(1_u8.., 1..12),
                prop::sample::select(&["create", "run", "--bundle", "-b", "--root", "--", "-"][..])
                    .prop_map(|word| word.as_bytes().to_vec()),
            ],
            1..6,
        ),
    ) {
        let scene = Scene::new(ASKS_NOT);
        let words: Vec<OsString> = words.into_iter().map(OsString::from_vec).collect();
        let output = scene.call(&words);
        // Only a bundle without its name is ours to refuse.
        if output.status.code() == Some(7) {
            prop_assert_eq!(scene.words().unwrap(), words);
        } else {
            let last = words.last().unwrap();
            prop_assert!(last == "--bundle" || last == "-b", "{:?} {:?}", words, output);
        }
    }
}
