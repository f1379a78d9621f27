//! The whole decision: what was asked, what is allowed, what exists → what is given.

use std::path::PathBuf;

use serde::Serialize;

use crate::elf::{Class, Machine};
use crate::{Config, Edits, Error, Handler, Host, Image, Report, Result, Spec};

/// What must be true of the host before [`plan`] can answer; `nvidia-hook` sees to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// A kernel module that is not loaded (`load-kmods`), such as `nvidia-uvm` after boot.
    Module(String),
    /// A GPU that was never opened since the driver was loaded, so that its UUID is not known
    /// yet: its node is opened once.
    Wake { minor: u32, major: u32 },
}

/// What becomes of the container.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It asked for nothing: not a byte of its spec changes.
    Untouched(Report),
    Edited(Box<Plan>),
}

/// What a container gets.
#[derive(Clone, Debug)]
pub struct Plan {
    pub edits: Edits,
    pub fixups: Fixups,
    /// Device nodes to make on the host before the container starts.
    pub missing_nodes: Vec<MissingNode>,
    pub report: Report,
}

/// What must change inside the root filesystem.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Fixups {
    pub links: Vec<Link>,
    /// Directories in the container that hold injected libraries.
    pub library_dirs: Vec<PathBuf>,
    /// What the loader's cache must know.
    pub libraries: Vec<LibraryEntry>,
}

/// A symbolic link in the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Absolute, in the container.
    pub link: PathBuf,
    /// As stored in the link: relative to the link's directory, or absolute.
    pub target: PathBuf,
}

/// An entry of the loader's cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LibraryEntry {
    /// What programs ask the loader for, such as `libcuda.so.1`.
    pub soname: String,
    /// Where the loader finds it, in the container.
    pub path: PathBuf,
    pub class: Class,
    pub machine: Machine,
}

/// A device node that the host lacks although its driver is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingNode {
    /// As the host names it.
    pub path: PathBuf,
    pub major: u32,
    pub minor: u32,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// What the host must do first, in this order.
pub fn needs(host: &Host, config: &Config, handler: Handler, spec: &Spec) -> Result<Vec<Need>> {
    todo!()
}

/// Decides. Reads the host, changes nothing.
///
/// # Errors
/// A refusal: the container asked for a GPU and cannot have it.
pub fn plan(
    host: &Host,
    config: &Config,
    handler: Handler,
    image: &Image,
    spec: &Spec,
) -> Result<Outcome, Error> {
    todo!()
}
