//! `nvidia-shim simulate`: a directory that looks to the shim like a node with NVIDIA GPUs.
//!
//! Tests, the demo and anyone's own CI use it as `host-root`. The parts: `gpu` (which GPUs),
//! `kernel` (procfs, sysfs), `devices` (dev), `driver` (the user-space driver in a
//! distribution's layout); `tree` writes them, `elf` makes the binaries.
//! Where a fact about real nodes comes from is said where it is used.

mod devices;
mod driver;
pub mod elf;
mod gpu;
mod kernel;
pub(crate) mod tree;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::geteuid;
use nvidia_oci::elf::Machine;

pub use self::driver::Layout;
use self::gpu::Gpu;
use self::tree::Tree;

/// Names a directory as ours: what is in it may be replaced.
const MARKER: &str = ".nvidia-shim-node";
/// `/dev/nvidia0` to `/dev/nvidia31`: minors that NVIDIA's user-space driver looks at.
const MAX_GPUS: u32 = 32;

/// Makes a directory that looks to the shim like a node with NVIDIA GPUs.
///
/// Give it to the shim as host-root. The GPUs have device nodes but nothing behind them; libcuda
/// counts those that it is allowed to open.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to make it: absent, empty, or an earlier simulated node, which is replaced
    dir: PathBuf,
    /// How many GPUs, at most 32
    #[arg(long, value_name = "N", default_value_t = 2)]
    gpus: u32,
    /// Where the driver's files lie
    #[arg(long, value_enum, default_value_t = Layout::Debian)]
    layout: Layout,
    /// The version of the driver
    #[arg(long, value_name = "VERSION", default_value = Node::DEFAULT_DRIVER)]
    driver_version: String,
}

/// A node to simulate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub gpus: u32,
    pub layout: Layout,
    /// Such as `550.163.01`.
    pub driver_version: String,
}

impl Node {
    /// Debian trixie's driver.
    pub const DEFAULT_DRIVER: &'static str = "550.163.01";

    /// A node with [`Self::DEFAULT_DRIVER`].
    pub fn new(layout: Layout, gpus: u32) -> Self {
        Self { gpus, layout, driver_version: Self::DEFAULT_DRIVER.to_owned() }
    }

    /// Makes the node in `dir`: absent, empty, or an earlier one, which is replaced. Without
    /// root's rights device nodes are left out, which the answer says.
    ///
    /// # Errors
    /// The directory is another user's, holds something else, has a mount below it or cannot be written; more than
    /// 32 GPUs; a version that is not digits and dots; a machine without code to simulate with.
    pub fn write(&self, dir: &Path) -> Result<DeviceNodes> {
        ensure!(self.gpus <= MAX_GPUS, "a node has at most {MAX_GPUS} GPUs, not {}", self.gpus);
        let version = &self.driver_version;
        ensure!(
            version.contains('.')
                && version.split('.').all(|part| {
                    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
                }),
            "a driver version is like {}, not {version:?}",
            Self::DEFAULT_DRIVER
        );
        let machine = this_machine()?;
        clear(dir)?;
        let tree = Tree::new(dir)?;
        tree.file(MARKER, 0o644, format!("{self:?}\n"))?;

        let gpus = Gpu::all(self.gpus);
        kernel::write(&tree, &gpus, version, machine)?;
        driver::write(&tree, self, &gpus, machine)?;
        if let Some(directory) = self.layout.firmware_path() {
            tree.file(kernel::FIRMWARE_PATH, 0o644, format!("{directory}\n"))?;
        }
        if self.layout == Layout::DriverContainer {
            // gpuop-550 of the corpus: the driver container has nodes of its own as well.
            devices::write(&tree.below(driver::DRIVER_CONTAINER), &gpus)?;
        }
        devices::write(&tree, &gpus)
    }
}

/// Whether the device nodes could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceNodes {
    Made,
    LeftOut,
}

/// The command.
#[expect(clippy::print_stderr, reason = "a warning to a person")]
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let node =
        Node { gpus: args.gpus, layout: args.layout, driver_version: args.driver_version.clone() };
    let made = node
        .write(&args.dir)
        .with_context(|| format!("cannot simulate a node in {}", args.dir.display()))?;
    if made == DeviceNodes::LeftOut {
        eprintln!(
            "nvidia-shim: {}: no device nodes below dev, they need root (CAP_MKNOD)",
            args.dir.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Empties `dir` if it is a simulated node.
fn clear(dir: &Path) -> Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?.collect::<io::Result<Vec<_>>>()?,
    };
    // Another's directory can change under our hands, and root would write wherever its links lead.
    ensure!(fs::metadata(dir)?.uid() == geteuid().as_raw(), "it belongs to another user");
    if entries.is_empty() {
        return Ok(());
    }
    ensure!(
        dir.join(MARKER).is_file(),
        "it is neither empty nor a simulated node ({MARKER} is missing)"
    );
    let dir = dir.canonicalize()?;
    if let Some(mount) = mount_below(&dir)? {
        bail!("{} is mounted in it; unmount it first", mount.display());
    }
    for entry in entries {
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// A mount point below `dir`: removing through it would remove what is not ours.
fn mount_below(dir: &Path) -> Result<Option<PathBuf>> {
    // proc(5): the fifth field is the mount point.
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    Ok(points.into_iter().find(|point| point.starts_with(dir)))
}

fn this_machine() -> Result<Machine> {
    match std::env::consts::ARCH {
        "x86_64" => Ok(Machine::X86_64),
        "aarch64" => Ok(Machine::Aarch64),
        other => bail!("there is no simulated driver for {other}, only for x86_64 and aarch64"),
    }
}

#[cfg(test)]
mod tests;
