//! `nvidia-shim cdi generate --watch`: the file follows what is there, and a signal ends it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nvidia_oci::Host;
use nvidia_oci::cdi::{self, Spec};
use nvidia_shim::simulate::{Layout, Node};

/// How long anything may take before the test gives up on it.
const PATIENCE: Duration = Duration::from_secs(60);
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu/nvidia/current";

struct Watcher {
    child: Child,
    /// What it says.
    log: PathBuf,
}

impl Watcher {
    fn start(node: &Path, output: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvidia-shim"));
        command.args(["cdi", "generate", "--watch", "--host-root"]).arg(node);
        command.arg("--output").arg(output);
        let log = node.with_file_name("log");
        command.stdin(Stdio::null()).stderr(fs::File::create(&log).unwrap());
        Self { child: command.spawn().unwrap(), log }
    }

    #[track_caller]
    fn says(&self, text: &str) {
        eventually(|| fs::read_to_string(&self.log).unwrap().contains(text));
    }

    fn end(mut self) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn eventually(is_true: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_true() {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the file is a spec of which that is true; it is never anything but a whole spec.
#[track_caller]
fn wait(output: &Path, is_true: impl Fn(&Spec) -> bool) {
    eventually(|| match cdi::read(&Host::new("/"), output) {
        Ok(spec) => is_true(&spec),
        Err(problem) => {
            assert!(!output.exists(), "{problem}");
            false
        }
    });
}

#[test]
fn the_file_follows_driver_and_devices() {
    let dir = tempfile::tempdir().unwrap();
    let (root, output) = (dir.path().join("node"), dir.path().join("cdi/nvidia.json"));
    fs::create_dir(&root).unwrap();
    let watcher = Watcher::start(&root, &output);
    watcher.says("NVS-201");

    // A driver that comes later.
    fs::remove_dir(&root).unwrap();
    Node::new(Layout::Debian, 2).write(&root).unwrap();
    wait(&output, |spec| spec.device("1").is_some());

    // Of what procfs says no event comes.
    let gpus = root.join("proc/driver/nvidia/gpus");
    let mut names: Vec<_> = fs::read_dir(&gpus).unwrap().map(|it| it.unwrap().path()).collect();
    names.sort();
    let away = dir.path().join("gpu");
    fs::rename(&names[1], &away).unwrap();
    wait(&output, |spec| spec.device("1").is_none());
    fs::rename(&away, &names[1]).unwrap();
    wait(&output, |spec| spec.device("1").is_some());

    let libraries = root.join(LIBRARIES);
    let is_nvml = |name: &str| name.starts_with("libnvidia-ml.so.") && name.contains('1');
    let names = fs::read_dir(&libraries).unwrap().map(|it| it.unwrap().file_name());
    let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    let real = names.iter().filter(|name| is_nvml(name)).max_by_key(|name| name.len()).unwrap();
    let new = real.replace("-ml.", "-novel.");
    fs::copy(libraries.join(real), libraries.join(&new)).unwrap();
    wait(&output, |spec| spec.edits.mounts.iter().any(|it| it.container_path.ends_with(&new)));

    // Nothing is written for want of a device: whoever asks is told what is missing.
    let before = fs::read(&output).unwrap();
    fs::rename(root.join("dev/nvidiactl"), dir.path().join("nvidiactl")).unwrap();
    watcher.says("NVS-206");
    assert_eq!(fs::read(&output).unwrap(), before);
    fs::rename(dir.path().join("nvidiactl"), root.join("dev/nvidiactl")).unwrap();
    fs::remove_file(libraries.join(&new)).unwrap();
    wait(&output, |spec| !spec.edits.mounts.iter().any(|it| it.container_path.ends_with(&new)));

    watcher.says("nvidia.json is written");
    watcher.end();
    assert_eq!(fs::read_dir(output.parent().unwrap()).unwrap().count(), 1);
}
