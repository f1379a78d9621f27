//! What a container asks for beside what the kernel driver offers, read once, and what the host
//! must do before the one can be had from the other.

use super::gpus;
use super::ways::{self, Ways};
use crate::capability::Granted;
use crate::cdi::Registry;
use crate::{Capabilities, Config, ControlNode, Handler, Host, Inventory, Request, Result, Spec};

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
    /// The CDI specs of the kinds asked for.
    pub(super) registry: Registry,
    pub(super) ways: Ways,
}

impl Inquiry {
    /// Reads the kernel driver and CDI specs for `request`, that which counts of what the container
    /// of `spec` asks for.
    ///
    /// # Errors
    /// The kernel driver cannot be read; a CDI name leads nowhere.
    pub fn read(
        host: &Host,
        config: &Config,
        handler: Handler,
        spec: &Spec,
        request: Request,
    ) -> Result<Self> {
        let mut inventory = match ways::is_foreign(&request) {
            true => Inventory::default(),
            false => Inventory::read(host, config)?,
        };
        if let Some(asked) = &request.imex {
            inventory.read_imex(host, config, asked)?;
        }
        let registry = ways::specs(host, config, handler, &request, &inventory);
        let ways = ways::find(host, config, handler, spec, &request, &inventory, &registry)?;
        Ok(Self { request, inventory, registry, ways })
    }

    /// Reads all of it again, after what [`Self::needs`] said was done.
    ///
    /// # Errors
    /// Those of [`Self::read`].
    pub fn read_again(
        &mut self,
        host: &Host,
        config: &Config,
        handler: Handler,
        spec: &Spec,
    ) -> Result<()> {
        *self = Self::read(host, config, handler, spec, self.request.clone())?;
        Ok(())
    }

    /// What the host must do first, in this order.
    ///
    /// # Errors
    /// The container asks for a driver capability that is not supported here.
    pub fn needs(&self, config: &Config, handler: Handler) -> Result<Vec<Need>> {
        let Self { inventory, ways, .. } = self;
        let mut needs = Vec::new();
        let Some(request) = &ways.live else { return Ok(needs) };
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
