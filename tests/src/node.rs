//! A simulated GPU node for tests, and what is true of its GPUs.

use std::fs;
use std::path::{Path, PathBuf};

use nvidia_shim::simulate::{self, Layout};
use tempfile::TempDir;

/// A directory that looks to the shim like a host with GPUs, and the `config.toml` that names it.
pub struct Node {
    dir: TempDir,
}

/// One of its GPUs, as the node's own procfs tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    pub minor: u32,
    pub uuid: String,
    /// As procfs writes it: `0000:07:00.0`.
    pub bus_id: String,
}

impl Node {
    /// A Debian node with so many GPUs.
    pub fn new(gpus: u32) -> Self {
        Self::with(Layout::Debian, gpus)
    }

    pub fn with(layout: Layout, gpus: u32) -> Self {
        let dir = tempfile::Builder::new().prefix("nvs-node-").tempdir().expect("a directory");
        let node = Self { dir };
        simulate::Node::new(layout, gpus).write(&node.root()).expect("a simulated node");
        node.configure("", "");
        node
    }

    /// The root of the host that it stands for.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("host")
    }

    /// The file that handlers name by their `ConfigPath` option.
    pub fn config(&self) -> PathBuf {
        self.dir.path().join("config.toml")
    }

    /// The file for shims to which the node is the host itself: its driver and device nodes are
    /// not at their usual places.
    pub(crate) fn host_config(&self) -> PathBuf {
        let file = self.dir.path().join("host-config.toml");
        let root = self.root();
        let root = root.display();
        let text = format!("[nvidia-shim]\ndriver-root = '{root}'\ndev-root = '{root}'\n");
        fs::write(&file, text).expect("host-config.toml");
        file
    }

    /// Sets the OCI runtimes behind our own, for whom the node is the host itself.
    pub fn set_runtimes(&self, runtimes: &[&Path]) {
        let file = self.host_config();
        let mut text = fs::read_to_string(&file).expect("host-config.toml");
        text.push_str(&format!("[nvidia-container-runtime]\nruntimes = {runtimes:?}\n"));
        fs::write(file, text).expect("host-config.toml");
    }

    /// Replaces the file by options of runc and keys of the table `[nvidia-shim]`, one a line.
    pub fn configure(&self, runc: &str, keys: &str) {
        let root = self.root();
        let text = format!("{runc}\n[nvidia-shim]\nhost-root = '{}'\n{keys}\n", root.display());
        fs::write(self.config(), text).expect("config.toml");
    }

    /// As after `rmmod`: the driver's files stay.
    pub fn unload(&self) {
        for dir in ["proc/driver/nvidia", "sys/module/nvidia"] {
            fs::remove_dir_all(self.root().join(dir)).expect(dir);
        }
        let devices = self.root().join("proc/devices");
        let text = fs::read_to_string(&devices).expect("proc/devices");
        let rest: Vec<_> = text.lines().filter(|line| !line.contains("nvidia")).collect();
        fs::write(devices, rest.join("\n")).expect("proc/devices");
    }

    /// In index order, which is that of bus ids.
    pub fn gpus(&self) -> Vec<Gpu> {
        let dir = self.root().join("proc/driver/nvidia/gpus");
        let entries = fs::read_dir(dir).expect("the node's GPUs").flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths.iter().map(|path| Gpu::read(path)).collect()
    }

    pub fn gpu(&self, index: usize) -> Gpu {
        self.gpus().swap_remove(index)
    }
}

impl Gpu {
    fn read(dir: &Path) -> Self {
        let text = fs::read_to_string(dir.join("information")).expect("information");
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'));
            line.unwrap_or_else(|| panic!("no {name} in {text}")).1.trim().to_owned()
        };
        Self {
            minor: field("Device Minor").parse().expect("a minor"),
            uuid: field("GPU UUID"),
            bus_id: field("Bus Location"),
        }
    }

    /// Its name below `/dev`.
    pub fn node(&self) -> String {
        format!("nvidia{}", self.minor)
    }

    /// Its device number, as the probe wants it.
    pub fn number(&self) -> String {
        format!("195:{}", self.minor)
    }
}
