//! Edits of an OCI spec, and how they are applied: twice is once.

use std::path::PathBuf;

use serde::Serialize;

/// Everything that is written into a spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Edits {
    /// `(name, value)`: one entry of each name after the edit.
    pub env: Vec<(String, String)>,
    pub devices: Vec<DeviceNode>,
    pub mounts: Vec<Mount>,
    /// Groups that a process needs in order to open a device node.
    pub additional_gids: Vec<u32>,
}

/// A character device node, and the one device-cgroup rule that goes with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceNode {
    /// In the container.
    pub path: PathBuf,
    /// On the host, as the host names it.
    pub host_path: PathBuf,
    pub major: u32,
    pub minor: u32,
    /// Permission bits, such as `0o666`.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// A bind mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// On the host, as the host names it.
    pub source: PathBuf,
    /// In the container.
    pub destination: PathBuf,
    pub options: Vec<String>,
}
