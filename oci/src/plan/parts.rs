//! The same decision taken apart, as a CDI spec has it: what every container with one of the
//! devices gets, and what each device adds to that.

use serde_json::json;

use super::decision::{Decision, check_roots};
use super::functions::{self, Function};
use super::{Plan, gpus};
use crate::capability::Granted;
use crate::cdi::QualifiedName;
use crate::report::DriverFound;
use crate::request::{AskedCapabilities, Selection, Source};
use crate::{
    Capabilities, Code, Config, ControlNode, Driver, Error, Gpu, Handler, Host, Image, Inventory,
    MissingNode, Need, NodeNumbers, Report, Request, Result, Spec,
};

/// Control nodes that a container can do without.
const OPTIONAL: [&str; 2] = ["nvidia-modeset", "nvidia-uvm-tools"];

/// What parts are made of: the host, and a container of which nothing is known.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    host: &'a Host,
    config: &'a Config,
    inventory: Inventory,
    granted: Granted,
    request: Request,
    spec: Spec,
}

impl<'a> Parts<'a> {
    /// # Errors
    /// As [`Inventory::read`].
    pub(crate) fn read(host: &'a Host, config: &'a Config) -> Result<Self> {
        Ok(Self { inventory: Inventory::read(host, config)?, ..Self::without_driver(host, config) })
    }

    /// Of a host whose kernel driver does not matter.
    pub(crate) fn without_driver(host: &'a Host, config: &'a Config) -> Self {
        let request = Request {
            gpus: Selection::All,
            source: Source::Variables(Vec::new()),
            capabilities: AskedCapabilities::All,
            requirements: Vec::new(),
            imex: None,
            trust: "",
        };
        let granted = Granted::whatever_there_is(Capabilities::ALL);
        let (inventory, spec) = (Inventory::default(), Spec::new(json!({})));
        Self { host, config, inventory, granted, request, spec }
    }

    /// The GPUs of these names, all if there are none, in index order.
    ///
    /// # Errors
    /// One of them does not exist, or there is none.
    pub(crate) fn gpus(&self, names: &[String]) -> Result<Vec<&Gpu>> {
        self.driver_version()?;
        let words: Vec<&str> = names.iter().map(String::as_str).collect();
        let gpus = Selection::of(&words).unwrap_or(Selection::All);
        let source = Source::Variables(vec![("--device-id".to_owned(), names.join(","))]);
        gpus::select(
            &Request { gpus, source, ..self.request.clone() },
            &self.inventory,
            Handler::Nvidia,
        )
    }

    /// What must be true of the host before all of it can be described, with the UUIDs of GPUs or
    /// without; nothing where no driver is loaded.
    pub(crate) fn needs(&self, uuids: bool) -> Vec<Need> {
        let mut needs = Vec::new();
        if self.inventory.driver_version.is_none() {
            return needs;
        }
        let is_uvm = |control: &ControlNode| control.name == "nvidia-uvm" && control.loaded;
        if !self.inventory.control.iter().any(is_uvm) {
            needs.push(Need::Module("nvidia-uvm".to_owned()));
        }
        let asleep = self.inventory.gpus.iter().filter(|gpu| uuids && gpu.uuid.is_none());
        needs.extend(asleep.map(|gpu| Need::Wake { minor: gpu.minor, major: gpu.node.major }));
        needs
    }

    /// Nodes that the driver has numbers for, and the host lacks.
    ///
    /// # Errors
    /// One is mandatory, and the driver lets none be made.
    pub(crate) fn missing_nodes(&self) -> Result<Vec<MissingNode>> {
        if self.inventory.driver_version.is_none() {
            return Ok(Vec::new());
        }
        let mut plan = plan();
        let gpus: Vec<&Gpu> = self.inventory.gpus.iter().collect();
        self.decision(&self.granted, false).give_nodes(&gpus, &mut plan)?;
        Ok(plan.missing_nodes)
    }

    /// The driver, and the nodes that control it.
    ///
    /// # Errors
    /// Something that is mandatory is not there.
    pub(crate) fn common(&self) -> Result<Plan> {
        let driver = self.driver()?;
        let mut plan = plan();
        self.decision(&self.granted, false).make(&[], &driver, &mut plan)?;
        finish(plan, &driver)
    }

    /// What a GPU adds.
    ///
    /// # Errors
    /// Its node is not there.
    pub(crate) fn gpu(&self, gpu: &Gpu) -> Result<Plan> {
        let mut plan = plan();
        plan.nodes(self.host, self.config, &self.spec, &self.granted, true).give_gpu(gpu)?;
        without_missing(plan)
    }

    /// What manages GPUs: the driver without what only a desktop has use for, and all nodes.
    ///
    /// # Errors
    /// Something that is mandatory is not there.
    pub(crate) fn management(&self) -> Result<(Plan, Plan)> {
        let driver = self.driver()?.without_desktop();
        let (mut common, mut device) = (plan(), plan());
        self.decision(&self.granted, true).give_driver(&driver, &mut common)?;
        // Those would be of what was left out.
        common.fixups.files.clear();
        let gpus: Vec<&Gpu> = self.inventory.gpus.iter().collect();
        self.decision(&Granted::of_management(), true).give_nodes(&gpus, &mut device)?;
        Ok((finish(common, &driver)?, without_missing(device)?))
    }

    /// The nodes of a function beside GPUs, as CDI names it.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn function(&self, name: &QualifiedName) -> Result<Plan> {
        let unknown = || {
            let what = format!("{name} is asked for, and is nothing that can be described");
            Error::new(Code::UnknownDevice, what)
        };
        let function = Function::named(name)?.ok_or_else(unknown)?;
        let mut plan = plan();
        let mut nodes = plan.nodes(self.host, self.config, &self.spec, &self.granted, false);
        functions::give(&function, self.config, &mut nodes)?;
        Ok(plan)
    }

    /// These nodes.
    ///
    /// # Errors
    /// One is none of a driver's.
    pub(crate) fn given(&self, found: &[NodeNumbers]) -> Result<Plan> {
        let mut plan = plan();
        let mut nodes = plan.nodes(self.host, self.config, &self.spec, &self.granted, false);
        found.iter().try_for_each(|node| nodes.give(node, "device node"))?;
        Ok(plan)
    }

    fn driver_version(&self) -> Result<&str> {
        let none = || {
            Error::new(
                Code::NoKernelDriver,
                "there is nothing to describe: no driver is loaded here",
            )
        };
        self.inventory.driver_version.as_deref().ok_or_else(none)
    }

    fn driver(&self) -> Result<Driver> {
        let driver = Driver::discover(self.host, self.config, Some(self.driver_version()?))?;
        let gpus: Vec<&Gpu> = self.inventory.gpus.iter().collect();
        check_roots(self.host, &driver, &self.inventory, &gpus)?;
        Ok(driver)
    }

    fn decision<'b>(&'b self, granted: &'b Granted, manages: bool) -> Decision<'b> {
        const IMAGE: Image =
            Image { machine: None, libc: None, library_dir: None, library_dir_32: None };
        Decision {
            host: self.host,
            config: self.config,
            handler: Handler::NvidiaCdi,
            image: &IMAGE,
            spec: &self.spec,
            request: &self.request,
            granted,
            inventory: &self.inventory,
            manages,
        }
    }
}

fn plan() -> Plan {
    Plan::of(Report::of(Handler::NvidiaCdi))
}

fn finish(mut plan: Plan, driver: &Driver) -> Result<Plan> {
    let (version, root) = (driver.version.clone(), driver.root.clone());
    plan.report.driver = Some(DriverFound { version, root });
    without_missing(plan)
}

/// A spec describes what is there: nobody makes nodes for those who use it.
fn without_missing(mut plan: Plan) -> Result<Plan> {
    for missing in std::mem::take(&mut plan.missing_nodes) {
        let is_optional = OPTIONAL.iter().any(|name| missing.path.ends_with(name));
        if !is_optional {
            let what = format!("device node {} is not there", missing.path.display());
            return Err(Error::new(Code::NodeMissing, what));
        }
        plan.edits.devices.retain(|device| device.host_path != missing.path);
        let what = format!("{} is not there, and left out", missing.path.display());
        plan.report.warnings.push(what);
    }
    Ok(plan)
}
