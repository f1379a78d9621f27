//! What a container asks for beside what the kernel driver offers, read once, and what the host
//! must do before the one can be had from the other.

use super::gpus;
use crate::capability::Granted;
use crate::{Capabilities, Config, ControlNode, Handler, Host, Inventory, Request, Result};

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
    /// Reads the kernel driver for `request`, that which counts of what a container asks for.
    ///
    /// # Errors
    /// The kernel driver cannot be read.
    pub fn read(host: &Host, config: &Config, request: Request) -> Result<Self> {
        let mut inquiry = Self { request, inventory: Inventory::default() };
        inquiry.read_again(host, config)?;
        Ok(inquiry)
    }

    /// Reads the kernel driver again, after what [`Self::needs`] said was done.
    ///
    /// # Errors
    /// The kernel driver cannot be read.
    pub fn read_again(&mut self, host: &Host, config: &Config) -> Result<()> {
        self.inventory = Inventory::read(host, config)?;
        if let Some(asked) = &self.request.imex {
            self.inventory.read_imex(host, config, asked)?;
        }
        Ok(())
    }

    /// What the host must do first, in this order.
    ///
    /// # Errors
    /// The container asks for a driver capability that is not supported here.
    pub fn needs(&self, config: &Config, handler: Handler) -> Result<Vec<Need>> {
        let Self { request, inventory } = self;
        let mut needs = Vec::new();
        if inventory.driver_version.is_none() {
            return Ok(needs);
        }
        let capabilities = Granted::of(request, config, handler)?.capabilities;
        let compute = capabilities.meets(Capabilities::COMPUTE);
        let uvm = |control: &ControlNode| control.name == "nvidia-uvm" && control.loaded;
        if compute && config.load_kmods && !inventory.control.iter().any(uvm) {
            needs.push(Need::Module("nvidia-uvm".to_owned()));
        }
        if gpus::needs_uuids(request, inventory) {
            let asleep = inventory.gpus.iter().filter(|gpu| gpu.uuid.is_none());
            needs.extend(asleep.map(|gpu| Need::Wake { minor: gpu.minor, major: gpu.node.major }));
        }
        Ok(needs)
    }
}
