//! NVIDIA's devices beside GPUs: storage, network, switches, channels between nodes. Each is a few
//! device nodes; which ones is NVIDIA's list of what its own CDI specs have.

use std::path::Path;

use super::decision::check_places;
use super::nodes::Nodes;
use crate::cdi::QualifiedName;
use crate::report::{Item, ItemKind};
use crate::{Code, Config, Error, Host, Mount, NodeNumbers, Result, gpu};

/// IMEX channels are numbered below (the kernel module's limit).
const CHANNELS: u32 = 1 << 20;
const DIRECTORY_OPTIONS: [&str; 5] = ["ro", "nosuid", "nodev", "rbind", "rprivate"];

/// A function of NVIDIA's hardware or drivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Function {
    /// GPU Direct Storage.
    Gds,
    /// Mellanox's network adapters.
    Mofed,
    Gdrcopy,
    NvSwitch,
    /// `None`: all.
    ImexChannel(Option<u32>),
}

/// Names of device nodes in a directory.
struct Pattern {
    directory: &'static str,
    is_one: fn(&str) -> bool,
}

impl Function {
    /// The function that a name of CDI means, if it means one.
    ///
    /// # Errors
    /// [`Code::UnknownDevice`]: it means one, and there is no such device.
    pub(super) fn named(name: &QualifiedName) -> Result<Option<Self>> {
        if !["nvidia.com", "runtime.nvidia.com"].contains(&name.vendor()) {
            return Ok(None);
        }
        let all = name.device == "all";
        let channel = || {
            let number = name.device.strip_prefix("channel").unwrap_or(&name.device);
            number.parse().ok().filter(|number| *number < CHANNELS)
        };
        let function = match name.class() {
            "gds" if all => Self::Gds,
            "mofed" if all => Self::Mofed,
            "gdrcopy" if all => Self::Gdrcopy,
            "nvswitch" if all => Self::NvSwitch,
            "imex-channel" | "imex" if all => Self::ImexChannel(None),
            "imex-channel" | "imex" if channel().is_some() => Self::ImexChannel(channel()),
            "gds" | "mofed" | "gdrcopy" | "nvswitch" => {
                let what = format!("{name} is asked for, and of that kind there is only all");
                return Err(Error::new(Code::UnknownDevice, what));
            }
            "imex-channel" | "imex" => {
                let what =
                    format!("{name} is asked for; channels are all, or 0 to {}", CHANNELS - 1);
                return Err(Error::new(Code::UnknownDevice, what));
            }
            _ => return Ok(None),
        };
        Ok(Some(function))
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Gds => "GPU Direct Storage",
            Self::Mofed => "network adapter",
            Self::Gdrcopy => "GDRCopy",
            Self::NvSwitch => "NVSwitch",
            Self::ImexChannel(_) => "IMEX channel",
        }
    }

    fn pattern(&self) -> Pattern {
        let (directory, is_one): (_, fn(&str) -> bool) = match self {
            Self::Gds => ("/dev", |name| name.starts_with("nvidia-fs")),
            Self::Mofed => {
                ("/dev/infiniband", |name| name.starts_with("uverbs") || name == "rdma_cm")
            }
            Self::Gdrcopy => ("/dev", |name| name == "gdrdrv"),
            Self::NvSwitch => ("/dev", |name| name.starts_with("nvidia-nvswitch")),
            Self::ImexChannel(_) => {
                ("/dev/nvidia-caps-imex-channels", |name| name.starts_with("channel"))
            }
        };
        Pattern { directory, is_one }
    }

    /// The refusal where the host has no node of it.
    fn missing(&self) -> Error {
        let Pattern { directory, .. } = self.pattern();
        let word = self.word();
        let modules = match self {
            Self::Gds => "nvidia-fs",
            Self::Mofed => "ib_uverbs and rdma_ucm",
            Self::Gdrcopy => "gdrdrv",
            Self::NvSwitch => "nvidia, on a system with switches",
            Self::ImexChannel(number) => {
                let which = number.map(|number| format!(" {number}")).unwrap_or_default();
                let what = format!("{word}{which} is asked for, and {directory} has none");
                return Error::new(Code::ImexChannel, what);
            }
        };
        let what = format!(
            "{word} is asked for, and {directory} has no node of it; its kernel module is {modules}"
        );
        Error::new(Code::FunctionMissing, what)
    }

    fn nodes(&self, host: &Host, config: &Config) -> Result<Vec<NodeNumbers>> {
        let Pattern { directory, is_one } = self.pattern();
        let mut nodes = gpu::nodes_in(host, config, Path::new(directory), is_one)?;
        if let Self::ImexChannel(Some(number)) = self {
            let name = format!("channel{number}");
            nodes.retain(|node| node.path.ends_with(&name));
        }
        Ok(nodes)
    }
}

/// Gives the nodes of a function, and what it needs beside them.
///
/// # Errors
/// [`Code::FunctionMissing`] or [`Code::ImexChannel`]: the host has none.
pub(super) fn give(function: &Function, config: &Config, nodes: &mut Nodes<'_>) -> Result<()> {
    let found = function.nodes(nodes.host, config)?;
    if found.is_empty() {
        return Err(function.missing());
    }
    check_places(nodes.host, found.iter())?;
    for node in &found {
        nodes.give_also(node, function.word())?;
    }
    if *function == Function::Gds {
        for path in ["/etc/cufile.json", "/run/udev"].map(Path::new) {
            mount(nodes, path);
        }
    }
    Ok(())
}

/// What `libcufile` reads, where it is there.
fn mount(nodes: &mut Nodes<'_>, path: &Path) {
    if !nodes.host.exists(path) {
        return;
    }
    let shown = path.display().to_string();
    nodes.report.given.push(Item::new(ItemKind::File, shown, Function::Gds.word()));
    nodes.edits.mounts.push(Mount {
        source: path.to_owned(),
        destination: path.to_owned(),
        kind: "bind".to_owned(),
        options: DIRECTORY_OPTIONS.map(str::to_owned).to_vec(),
    });
}

/// The nodes by which GPUs are managed, beside those that are given already: all of the driver,
/// whatever it is for, and capabilities of MIG and of IMEX.
pub(super) fn give_management(config: &Config, nodes: &mut Nodes<'_>) -> Result<()> {
    let of_driver = Pattern { directory: "/dev", is_one: is_of_driver };
    let of_mig =
        Pattern { directory: "/dev/nvidia-caps", is_one: |it| it.starts_with("nvidia-cap") };
    for Pattern { directory, is_one } in [of_driver, of_mig, Function::ImexChannel(None).pattern()]
    {
        for node in gpu::nodes_in(nodes.host, config, Path::new(directory), is_one)? {
            nodes.give_also(&node, "manages GPUs")?;
        }
    }
    Ok(())
}

/// Functions of their own are asked for by their own names.
fn is_of_driver(name: &str) -> bool {
    const OTHERS: [&str; 3] = ["nvidia-fs", "nvidia-nvswitch", "nvidia-nvlink"];
    name.starts_with("nvidia") && !OTHERS.iter().any(|other| name.starts_with(other))
}
