//! What a container asks for beside what the kernel driver offers, read once, and what the host
//! must do before the one can be had from the other.

use super::gpus;
use crate::{Config, ControlNode, Host, Inventory, Request, Result, Spec};

/// What must be true of the host before a container can have what it asks for; `nvidia-hook` sees
/// to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// A kernel module that is not loaded (`load-kmods`), such as `nvidia-uvm` after boot.
    Module(String),
    /// A GPU that was never opened since the driver was loaded, so that its UUID is not known
    /// yet: its node is opened once.
    Wake { minor: u32, major: u32 },
}

/// A request, and what the kernel driver of the host offered when it was read.
#[derive(Clone, Debug)]
pub struct Inquiry {
    pub(super) request: Request,
    pub(super) inventory: Inventory,
}

impl Inquiry {
    /// Reads both. `None` for a container that asks for nothing: its host is not looked at.
    ///
    /// # Errors
    /// The request or the kernel driver cannot be read.
    pub fn read(host: &Host, config: &Config, spec: &Spec) -> Result<Option<Self>> {
        let Some(request) = Request::of(spec)? else { return Ok(None) };
        Ok(Some(Self { request, inventory: Inventory::read(host, config)? }))
    }

    /// Reads the kernel driver again, after what [`Self::needs`] said was done.
    ///
    /// # Errors
    /// The kernel driver cannot be read.
    pub fn read_again(&mut self, host: &Host, config: &Config) -> Result<()> {
        self.inventory = Inventory::read(host, config)?;
        Ok(())
    }

    /// What the host must do first, in this order.
    pub fn needs(&self, config: &Config) -> Vec<Need> {
        let Self { request, inventory } = self;
        let mut needs = Vec::new();
        if inventory.driver_version.is_none() {
            return needs;
        }
        let uvm = |control: &ControlNode| control.name == "nvidia-uvm" && control.loaded;
        if config.load_kmods && !inventory.control.iter().any(uvm) {
            needs.push(Need::Module("nvidia-uvm".to_owned()));
        }
        if gpus::needs_uuids(request, inventory) {
            let asleep = inventory.gpus.iter().filter(|gpu| gpu.uuid.is_none());
            needs.extend(asleep.map(|gpu| Need::Wake { minor: gpu.minor, major: gpu.node.major }));
        }
        needs
    }
}
