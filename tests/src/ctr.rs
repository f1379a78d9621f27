//! `ctr` on a private containerd.

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::{Containerd, Image, Node, Sight, eventually};

/// The runtime under test. The harness itself is proven with the stock one:
/// `NVS_TEST_RUNTIME=io.containerd.runc.v2`.
pub fn runtime() -> String {
    std::env::var("NVS_TEST_RUNTIME").unwrap_or_else(|_| "io.containerd.nvidia.v2".to_owned())
}

/// What a program said.
#[derive(Debug)]
pub struct Output {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    fn of(child: Child) -> Self {
        let output = child.wait_with_output().expect("wait");
        Self {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub fn success(&self) -> bool {
        self.status.success()
    }

    /// Standard output of a program that must have succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.success(), "{self}");
        self.stdout
    }

    /// Standard error of a program that must have failed.
    #[track_caller]
    pub fn refused(self) -> String {
        assert!(!self.success(), "{self}");
        self.stderr
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nstdout: {}\nstderr: {}", self.status, self.stdout, self.stderr)
    }
}

impl Containerd {
    /// `ctr ARGUMENTS…` in the test's namespace.
    pub fn ctr(&self, arguments: &[&str]) -> Output {
        self.output(self.ctr_in(self.name()).args(arguments))
    }

    pub(crate) fn ctr_in(&self, namespace: &str) -> Command {
        let mut command = Command::new(self.release().ctr());
        command.arg("--address").arg(self.socket()).args(["--namespace", namespace]);
        command.env("PATH", self.search_path());
        command
    }

    /// Runs a program in the daemon's mount namespace, with nothing on standard input.
    pub fn output(&self, command: &mut Command) -> Output {
        command.stdin(Stdio::null());
        Output::of(self.spawn(command))
    }

    fn spawn(&self, command: &mut Command) -> Child {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.namespace().enter(|| command.spawn()).expect("spawn")
    }

    /// A `ctr run` of the container `id` from an imported image.
    pub fn container<'a>(&'a self, image: &Image, id: &'a str) -> Run<'a> {
        Run { containerd: self, id, what: image.reference(), flags: Vec::new(), runtime: runtime() }
    }

    /// A `ctr run` of the container `id` in a directory that is its root filesystem.
    pub fn container_in<'a>(&'a self, rootfs: &Path, id: &'a str) -> Run<'a> {
        let what = rootfs.display().to_string();
        let flags =
            vec!["--rootfs".to_owned(), "--env=PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned()];
        Run { containerd: self, id, what, flags, runtime: runtime() }
    }

    /// Runs a program in a container that runs.
    pub fn exec(&self, id: &str, program: &[&str]) -> Output {
        let exec = ["tasks", "exec", "--exec-id", "e", id];
        self.ctr(&[&exec[..], program].concat())
    }

    /// The state of a container's task, as `ctr tasks ls` shows it.
    pub fn state(&self, id: &str) -> Option<String> {
        let table = self.ctr(&["tasks", "ls"]).ok();
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row = rows.into_iter().find(|row| row.first() == Some(&id))?;
        row.get(2).map(|&state| state.to_owned())
    }

    /// Kills, then deletes the container and its task.
    pub fn remove(&self, id: &str) {
        // The task may have ended, or be gone already.
        self.ctr(&["tasks", "kill", "--signal", "SIGKILL", id]);
        self.ctr(&["tasks", "delete", "--force", id]);
        self.ctr(&["containers", "delete", id]).ok();
    }
}

/// A `ctr run` in the making.
#[derive(Clone)]
pub struct Run<'a> {
    containerd: &'a Containerd,
    id: &'a str,
    what: String,
    flags: Vec<String>,
    runtime: String,
}

impl Run<'_> {
    /// A flag of `ctr run`.
    #[must_use]
    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    #[must_use]
    pub fn env(self, name: &str, value: &str) -> Self {
        self.flag(format!("--env={name}={value}"))
    }

    /// Which GPUs it asks for: `NVIDIA_VISIBLE_DEVICES`.
    #[must_use]
    pub fn gpus(self, value: &str) -> Self {
        self.env("NVIDIA_VISIBLE_DEVICES", value)
    }

    /// The node that the shim looks at.
    #[must_use]
    pub fn on(self, node: &Node) -> Self {
        if self.runtime == "io.containerd.runc.v2" {
            return self;
        }
        self.flag(format!("--runtime-config-path={}", node.config().display()))
    }

    /// Another runtime than the one under test.
    #[must_use]
    pub fn runtime(mut self, runtime: &str) -> Self {
        runtime.clone_into(&mut self.runtime);
        self
    }

    /// The stock shim, with this OCI runtime in place of runc.
    #[must_use]
    pub fn oci_runtime(self, program: &Path) -> Self {
        let flag = format!("--runc-binary={}", program.display());
        self.runtime("io.containerd.runc.v2").flag(flag)
    }

    /// The command line.
    pub fn command(&self, program: &[&str]) -> Command {
        let mut command = self.containerd.ctr_in(self.containerd.name());
        command.args(["run", "--runtime", &self.runtime]).args(&self.flags);
        command.args([&self.what, self.id]).args(program);
        command
    }

    /// Runs it to its end and removes it.
    pub fn run(self, program: &[&str]) -> Output {
        let run = self.flag("--rm");
        run.containerd.output(&mut run.command(program))
    }

    /// Runs it to its end with `input` on standard input, and removes it.
    #[track_caller]
    pub fn run_fed(self, program: &[&str], input: &str) -> Output {
        let run = self.flag("--rm");
        let mut command = run.command(program);
        let mut child = run.containerd.spawn(command.stdin(Stdio::piped()));
        let mut pipe = child.stdin.take().expect("a pipe");
        pipe.write_all(input.as_bytes()).expect("ctr reads its input");
        // ctr forgets to pass on an end of input that comes before the task is created.
        let runs = || run.containerd.state(run.id).as_deref() == Some("RUNNING");
        assert!(eventually(runs), "the container does not run");
        drop(pipe);
        Output::of(child)
    }

    /// Starts it and leaves it running.
    #[track_caller]
    pub fn detach(self, program: &[&str]) {
        let run = self.flag("--detach").flag("--null-io");
        run.containerd.output(&mut run.command(program)).ok();
    }

    /// What the probe sees in it; `numbers` are device numbers to try, such as `195:0`.
    #[track_caller]
    pub fn look(self, numbers: &[&str]) -> Sight {
        // Written by the shim itself: a `ctr` that deletes the task of a container which ended at
        // once stops copying, now and then before it has copied anything.
        let seen = self.containerd.path("seen");
        let log = format!("--log-uri=file://{}", seen.display());
        self.flag(log).run(&[&["probe"], numbers].concat()).ok();
        let output = fs::read_to_string(&seen).expect("what the probe has seen");
        fs::remove_file(&seen).expect("a file of this test");
        Sight::parse(&output)
    }
}
