//! A private containerd: own directories, socket and mount namespace, gone with the value.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::namespace::MountNamespace;
use crate::release::installed;
use crate::{Image, Node, Release, product, residue};

/// How long anything may take before a test gives up on it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is true; false if it does not become so.
pub fn eventually(mut is_true: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while !is_true() {
        if begin.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(Duration::from_millis(50));
    }
    true
}

/// What a daemon is to be like.
#[derive(Clone, Copy, Default)]
pub struct Setup<'a> {
    /// With the CRI plugin, and the handlers `runc`, `nvidia` and `nvidia-cdi`; and `front`, the
    /// stock shim with our OCI runtime.
    pub cri: bool,
    /// The node that the handlers of the CRI plugin see.
    pub node: Option<&'a Node>,
    /// A node that is the host itself, as far as shims can see, without any option.
    pub host: Option<&'a Node>,
    /// With images and snapshots on a disk of its own, see [`Containerd::written`].
    pub disk: bool,
}

/// A running containerd.
pub struct Containerd {
    release: Release,
    // Dropped in this order: processes, namespace, directory.
    daemon: Option<Child>,
    namespace: MountNamespace,
    dir: TempDir,
    name: String,
    cri: bool,
    host_config: Option<PathBuf>,
}

impl Containerd {
    /// A daemon for `ctr`.
    pub fn start(release: Release) -> Self {
        Self::start_as(release, Setup::default())
    }

    pub fn start_as(release: Release, setup: Setup<'_>) -> Self {
        // Short: it holds sockets.
        let dir = tempfile::Builder::new().prefix("nvs-").tempdir().expect("a directory in /tmp");
        let suffix = dir.path().file_name().expect("a name").to_string_lossy().replace('.', "");
        let mut containerd = Self {
            release,
            daemon: None,
            namespace: MountNamespace::new(setup.host.map(Node::root).as_deref()),
            name: suffix.to_lowercase(),
            dir,
            cri: setup.cri,
            host_config: setup.host.map(Node::host_config),
        };
        if setup.disk {
            containerd.mount_disk();
        }
        fs::write(containerd.path("config.toml"), containerd.config(setup)).expect("config.toml");
        containerd.launch();
        containerd
    }

    pub fn release(&self) -> Release {
        self.release
    }

    /// The containerd namespace that tests use, and the cgroup of their containers.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A path in the daemon's own directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("c.sock")
    }

    /// The bundle of a container's task.
    pub fn bundle(&self, namespace: &str, id: &str) -> PathBuf {
        self.path("state/io.containerd.runtime.v2.task").join(namespace).join(id)
    }

    /// Sectors of the daemon's own disk that were written so far.
    pub fn written(&self) -> u64 {
        let device = self.inside(|| fs::metadata(self.path("root"))).expect("root").dev();
        let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
        let stat =
            fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).expect("stat");
        let field = stat.split_whitespace().nth(6);
        field.and_then(|sectors| sectors.parse().ok()).expect("sectors written")
    }

    /// What the daemon and the shims have logged.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.path("log")).unwrap_or_default()).into_owned()
    }

    /// Ends the daemon as a service manager does, and leaves containers alone.
    pub fn stop(&mut self) {
        self.end(Signal::SIGTERM);
    }

    /// Ends the daemon as the kernel does when memory is out.
    pub fn kill(&mut self) {
        self.end(Signal::SIGKILL);
    }

    /// Starts the daemon again after [`Self::stop`] or [`Self::kill`].
    pub fn launch(&mut self) {
        assert!(self.daemon.is_none(), "containerd runs already");
        let log = File::options().create(true).append(true).open(self.path("log")).expect("log");
        let mut command = Command::new(self.release.containerd());
        command
            .arg("--config")
            .arg(self.path("config.toml"))
            .env("PATH", self.search_path())
            .env("TMPDIR", self.dir.path())
            .envs(self.host_config.iter().map(|file| ("NVIDIA_CTK_CONFIG_FILE_PATH", file)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("dup"))
            .stderr(log);
        self.daemon = Some(self.namespace.enter(|| command.spawn()).expect("containerd"));
        self.wait_until_ready();
    }

    /// Brings an image to where this daemon's containers come from.
    pub fn import(&self, image: &Image) {
        let namespace = if self.cri { "k8s.io" } else { &self.name };
        let mut command = self.ctr_in(namespace);
        command.args(["images", "import", "--no-unpack"]).arg(image.archive());
        self.output(&mut command).ok();
        let known = || {
            let mut command = self.ctr_in(namespace);
            let list = self.output(command.args(["images", "ls"])).ok();
            list.contains("io.cri-containerd.image=managed")
        };
        assert!(!self.cri || eventually(known), "the CRI plugin does not take up the image");
    }

    /// What is left of containers: processes, shim sockets, mounts, cgroups, bundles. Empty when
    /// all were deleted.
    pub fn residue(&self) -> Vec<String> {
        residue::of(self)
    }

    /// Waits until nothing is left of containers.
    #[track_caller]
    pub fn assert_clean(&self) {
        let clean = eventually(|| self.residue().is_empty());
        assert!(clean, "left behind:\n{}", self.residue().join("\n"));
    }

    /// Processes of this daemon's shims whose program has this name.
    pub fn processes(&self, program: &str) -> Vec<i32> {
        residue::programs(self, program)
    }

    /// The daemon.
    pub fn pid(&self) -> i32 {
        self.daemon_pid().expect("a daemon")
    }

    /// Mounts that `work` makes belong to the node and are not left behind.
    pub fn settled(&self, work: impl FnOnce() + Send) {
        self.namespace.enter(work);
        self.namespace.settle();
    }

    /// Runs `work` where the daemon and its shims see files: with their mounts and sockets.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.enter(work)
    }

    pub(crate) fn namespace(&self) -> &MountNamespace {
        &self.namespace
    }

    pub(crate) fn daemon_pid(&self) -> Option<i32> {
        self.daemon.as_ref().and_then(|daemon| i32::try_from(daemon.id()).ok())
    }

    /// `PATH` of the daemon and of `ctr`.
    pub(crate) fn search_path(&self) -> String {
        let runc = installed("runc");
        let dirs = [product(), &self.release.programs(), runc.parent().expect("a file")];
        let dirs: Vec<_> = dirs.iter().map(|dir| dir.to_string_lossy().into_owned()).collect();
        format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", dirs.join(":"))
    }

    /// A file with a file system, which goes with the namespace.
    fn mount_disk(&self) {
        const SIZE: u64 = 4 << 30;
        let (file, root) = (self.path("disk"), self.path("root"));
        File::create(&file).and_then(|file| file.set_len(SIZE)).expect("disk");
        fs::create_dir(&root).expect("root");
        self.output(Command::new("mkfs.ext4").arg("-q").arg(&file)).ok();
        self.output(Command::new("mount").args(["-o", "loop"]).args([&file, &root])).ok();
        self.namespace.settle();
    }

    fn config(&self, setup: Setup<'_>) -> String {
        let dir = self.dir.path().display();
        let modern = self.release.version().0 >= 2;
        let version = if modern { 3 } else { 2 };
        let mut text = format!(
            "version = {version}\n\
             root = '{dir}/root'\n\
             state = '{dir}/state'\n\
             disabled_plugins = [{}]\n\
             [grpc]\n\
             address = '{}'\n\
             [plugins.'io.containerd.internal.v1.opt']\n\
             path = '{dir}/opt'\n\
             [plugins.'io.containerd.nri.v1.nri']\n\
             disable = true\n",
            if setup.cri { "" } else { CRI_PLUGINS },
            self.socket().display(),
        );
        if setup.cri {
            text.push_str(&cri_config(modern, self.dir.path(), setup.node));
        }
        text
    }

    fn wait_until_ready(&mut self) {
        let begin = Instant::now();
        loop {
            if UnixStream::connect(self.socket()).is_ok() {
                let mut command = self.ctr_in(&self.name);
                if self.output(command.arg("version")).success() {
                    return;
                }
            }
            let daemon = self.daemon.as_mut().expect("a daemon");
            let ended = daemon.try_wait().expect("wait");
            assert!(ended.is_none(), "containerd ended: {ended:?}\n{}", self.log());
            assert!(begin.elapsed() < PATIENCE, "containerd does not answer\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn end(&mut self, signal: Signal) {
        let Some(mut daemon) = self.daemon.take() else { return };
        let pid = Pid::from_raw(i32::try_from(daemon.id()).expect("a pid"));
        kill(pid, signal).expect("kill");
        daemon.wait().expect("wait");
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().filter(|line| !line.contains(" plugin ")).collect();
            let tail = lines[lines.len().saturating_sub(40)..].join("\n");
            #[allow(clippy::print_stderr)]
            {
                eprintln!("{} of {:?}:\n{tail}", self.path("log").display(), self.release);
            }
        }
        self.kill();
        residue::remove(self);
    }
}

const CRI_PLUGINS: &str = "'io.containerd.grpc.v1.cri', 'io.containerd.cri.v1.runtime', \
                           'io.containerd.cri.v1.images', 'io.containerd.podsandbox.controller.v1.podsandbox', \
                           'io.containerd.sandbox.controller.v1.podsandbox'";

/// The CRI plugin's part of `config.toml`.
fn cri_config(modern: bool, dir: &Path, node: Option<&Node>) -> String {
    let (runtime, images) = if modern {
        let images = "[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox";
        ("io.containerd.cri.v1.runtime", images)
    } else {
        ("io.containerd.grpc.v1.cri", "sandbox_image")
    };
    let dir = dir.display();
    let pause = crate::BUSYBOX.reference();
    // Without CAP_SYS_RESOURCE a process may not lower its own OOM score.
    let mut text = format!(
        "[plugins.'{runtime}']\n\
         restrict_oom_score_adj = true\n\
         enable_cdi = true\n\
         cdi_spec_dirs = ['{dir}/cdi']\n\
         {images} = '{pause}'\n\
         [plugins.'{runtime}'.cni]\n\
         conf_dir = '{dir}/cni'\n\
         bin_dir = '{dir}/cni'\n\
         [plugins.'{runtime}'.containerd]\n\
         default_runtime_name = 'runc'\n"
    );
    for (name, kind) in [
        ("runc", "io.containerd.runc.v2"),
        ("front", "io.containerd.runc.v2"),
        ("nvidia", "io.containerd.nvidia.v2"),
        ("nvidia-cdi", "io.containerd.nvidia-cdi.v2"),
    ] {
        let table = format!("plugins.'{runtime}'.containerd.runtimes.{name}");
        text.push_str(&format!("[{table}]\nruntime_type = '{kind}'\n"));
        if name == "nvidia-cdi" {
            text.push_str("container_annotations = ['cdi.k8s.io/*']\n");
        }
        if name == "front" {
            // As k3s and RKE2 write it for a runtime that they have found.
            let program = product().join("nvidia-container-runtime");
            let program = program.display();
            text.push_str(&format!(
                "[{table}.options]\nBinaryName = '{program}'\nSystemdCgroup = false\n"
            ));
        } else if let (Some(node), true) = (node, name != "runc") {
            let file = node.config();
            text.push_str(&format!("[{table}.options]\nConfigPath = '{}'\n", file.display()));
        }
    }
    text
}
