//! IMEX channels, by which GPUs of several nodes share memory: device nodes of the kernel driver,
//! one a channel, which the administrator or the driver itself makes.

use std::path::{Path, PathBuf};

use super::nodes::Nodes;
use super::procfs::{Majors, Params};
use super::{NodeNumbers, dev_root, kernel_files};
use crate::request::{ImexChannels, ImexRequest};
use crate::{Code, Config, Error, Host, Inventory, Result};

const DIRECTORY: &str = "/dev/nvidia-caps-imex-channels";

/// The channels that were asked for, and what the node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImexInventory {
    pub(crate) asked: ImexRequest,
    /// Those asked for that the driver can have; not all of them exist.
    pub(crate) channels: Vec<(u32, NodeNumbers)>,
    /// Those that exist.
    pub(crate) existing: Vec<u32>,
}

impl Inventory {
    /// Reads the channels that were asked for.
    ///
    /// # Errors
    /// As [`Inventory::read`].
    pub(crate) fn read_imex(
        &mut self,
        host: &Host,
        config: &Config,
        asked: &ImexRequest,
    ) -> Result<()> {
        let Some(version) = &self.driver_version else { return Ok(()) };
        let (params, majors) = kernel_files(host)?;
        let nodes = Nodes::new(host, dev_root(host, config, version), params);
        self.imex = Some(ImexInventory::read(&nodes, params, majors, asked)?);
        Ok(())
    }
}

impl ImexInventory {
    fn read(nodes: &Nodes, params: Params, majors: Majors, asked: &ImexRequest) -> Result<Self> {
        let existing = existing(nodes)?;
        let ids: Vec<u32> = match &asked.channels {
            ImexChannels::All => existing.clone(),
            ImexChannels::Listed(ids) => ids.iter().copied().collect(),
        };
        // The module that drives them is not loaded, or older than they are.
        let major = majors.imex_channels;
        let known = ids.into_iter().filter(|id| *id < params.imex_channels);
        let node = |(id, major)| Ok((id, nodes.expected(&path(id), major, id)?));
        let channels = known.filter_map(|id| Some((id, major?))).map(node);
        Ok(Self { asked: asked.clone(), channels: channels.collect::<Result<_>>()?, existing })
    }
}

/// The channels that have a node, in their order.
fn existing(nodes: &Nodes) -> Result<Vec<u32>> {
    let names = match nodes.list(Path::new(DIRECTORY)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        names => names.map_err(|error| Error::caused(Code::NodeMissing, DIRECTORY, error))?,
    };
    let id = |name: &std::ffi::OsString| name.to_str()?.strip_prefix("channel")?.parse().ok();
    let mut ids: Vec<u32> = names.iter().filter_map(id).collect();
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

fn path(id: u32) -> PathBuf {
    Path::new(DIRECTORY).join(format!("channel{id}"))
}
