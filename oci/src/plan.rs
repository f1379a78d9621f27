//! The whole decision: what was asked, what is allowed, what exists → what is given.

mod disabled;
mod files;
mod gpus;
mod imex;
mod inquiry;
mod nodes;
mod standing;
mod vendor;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use self::files::{Files, Taken};
pub use self::inquiry::{Inquiry, Need};
use self::nodes::Nodes;
pub use self::standing::Standing;
use crate::capability::Granted;
use crate::elf::{Class, Machine};
use crate::report::{DriverFound, Item, ItemKind};
use crate::request::{Selection, Selector, VISIBLE_DEVICES};
use crate::requirement::Facts;
use crate::{
    Code, Config, Driver, Edits, Error, Gpu, Handler, Host, Image, Inventory, Mode, NoDriver,
    Report, Request, Result, Spec, policy, requirement, trust,
};

/// Where the driver's libraries are: NVIDIA's own programs in the container look there.
const LIBCUDA_DIR: &str = "NVIDIA_CTK_LIBCUDA_DIR";
/// Says that no GPU was meant to be there.
const EMPTY_DEVICE: &str = "NVCT_EMPTY_DEVICE";

/// What becomes of the container.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It asked for nothing: not a byte of its spec changes.
    Untouched(Box<Report>),
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
    /// Small files that the driver came without.
    pub files: Vec<GeneratedFile>,
}

/// A file that is written into the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GeneratedFile {
    /// Absolute, in the container.
    pub path: PathBuf,
    pub content: String,
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
) -> Result<Outcome> {
    let judgement = policy::judge(spec, config)?;
    let report = Report::of_judgement(handler, &judgement);
    let outcome = match judgement.request {
        Some(request) => {
            Inquiry::read(host, config, request)?.plan(host, config, handler, image, spec)?
        }
        None => return Ok(Outcome::Untouched(Box::new(report))),
    };
    Ok(outcome.after(report.warnings))
}

impl Inquiry {
    /// Decides, as [`plan`] does, on what was read.
    ///
    /// # Errors
    /// Those of [`plan`].
    pub fn plan(
        &self,
        host: &Host,
        config: &Config,
        handler: Handler,
        image: &Image,
        spec: &Spec,
    ) -> Result<Outcome> {
        let Self { request, inventory } = self;
        let mut report = Report::of(handler);
        report.request = Some(request.source.to_string());
        report.trust = Some(format!("yes: {}", request.trust));
        let Some(kernel_driver) = inventory.driver_version.as_deref() else {
            if config.no_driver == NoDriver::Start && !inventory.on_pci {
                let warning = "no driver and no GPU on this node: started without";
                report.warnings.push(warning.to_owned());
                return Ok(Outcome::Untouched(Box::new(report)));
            }
            let what = format!("{} asks for GPUs, and no driver is loaded here", request.source);
            return Err(Error::new(Code::NoKernelDriver, what));
        };
        check_names(request, spec, config)?;
        let gpus = gpus::select(request, inventory, handler)?;
        let granted = Granted::of(request, config, handler)?;
        let device_id = |gpu: &Gpu| gpu.device_id(host);
        let facts = || Facts::of(kernel_driver, &gpus, device_id);
        let findings =
            requirement::check(&request.requirements, config.requirements(handler), facts)?;
        report.requirements = findings.met;
        report.warnings.extend(findings.warnings);
        let driver = Driver::discover(host, config, Some(kernel_driver))?;
        check_roots(host, &driver, inventory, &gpus)?;
        report.driver =
            Some(DriverFound { version: driver.version.clone(), root: driver.root.clone() });
        report.capabilities = Some(granted.capabilities.to_string());
        report.warnings.extend(granted.warnings.iter().cloned());
        let granted = &granted;
        let decision = Decision { host, config, handler, image, spec, request, granted, inventory };
        Ok(Outcome::Edited(Box::new(decision.make(&gpus, &driver, report)?)))
    }
}

impl Outcome {
    /// With warnings of what was before it.
    fn after(mut self, warnings: Vec<String>) -> Self {
        let report = match &mut self {
            Self::Untouched(report) => report,
            Self::Edited(plan) => &mut plan.report,
        };
        report.warnings.splice(0..0, warnings);
        self
    }
}

/// Whether the container may have the kinds of devices that it names.
fn check_names(request: &Request, spec: &Spec, config: &Config) -> Result<()> {
    let Selection::Listed(selectors) = &request.gpus else { return Ok(()) };
    selectors.iter().try_for_each(|selector| match selector {
        Selector::Qualified(name) if policy::is_management(name) => {
            policy::check_management(name, spec, config)
        }
        _ => Ok(()),
    })
}

/// Everything that a plan is made of.
struct Decision<'a> {
    host: &'a Host,
    config: &'a Config,
    handler: Handler,
    image: &'a Image,
    spec: &'a Spec,
    request: &'a Request,
    granted: &'a Granted,
    inventory: &'a Inventory,
}

impl Decision<'_> {
    fn make(&self, gpus: &[&Gpu], driver: &Driver, report: Report) -> Result<Plan> {
        let mut plan = Plan {
            edits: Edits::default(),
            fixups: Fixups::default(),
            missing_nodes: Vec::new(),
            report,
        };
        self.give_nodes(gpus, &mut plan)?;
        let mut files = Files {
            host: self.host,
            config: self.config,
            handler: self.handler,
            image: self.image,
            driver,
            granted: self.granted,
            edits: &mut plan.edits,
            fixups: &mut plan.fixups,
            report: &mut plan.report,
            taken: Taken::default(),
        };
        files.give()?;
        let directories = files.driver_directories();
        self.give_env(directories, &mut plan);
        self.warn(driver, &mut plan.report);
        plan.leave_out_disabled(self.config);
        Ok(plan)
    }

    fn give_nodes(&self, gpus: &[&Gpu], plan: &mut Plan) -> Result<()> {
        let mut nodes = Nodes {
            host: self.host,
            spec: self.spec,
            granted: self.granted,
            may_make_nodes: self.inventory.may_make_nodes,
            may_join_groups: self.config.additional_gids,
            edits: &mut plan.edits,
            missing: &mut plan.missing_nodes,
            links: &mut plan.fixups.links,
            report: &mut plan.report,
        };
        for gpu in gpus {
            nodes.give_gpu(gpu)?;
        }
        nodes.give_control(self.inventory)?;
        match &self.inventory.imex {
            // CDI knows channels by its own names alone.
            Some(_) if self.handler == Handler::NvidiaCdi || self.config.mode == Mode::Cdi => {
                Ok(())
            }
            Some(channels) => nodes.give_imex(channels, self.config),
            None => Ok(()),
        }
    }

    fn give_env(&self, directories: String, plan: &mut Plan) {
        let mut set = |name: &str, value: String, reason: &str| {
            let shown = format!("{name}={value}");
            plan.report.given.push(Item::new(ItemKind::Environment, shown, reason));
            plan.edits.env.push((name.to_owned(), value));
        };
        if !directories.is_empty() {
            set(LIBCUDA_DIR, directories, "where the driver's libraries are");
        }
        if self.request.gpus == Selection::DriverOnly {
            set(EMPTY_DEVICE, String::new(), "no GPU is meant to be there");
        }
        if self.handler == Handler::NvidiaCdi {
            set(VISIBLE_DEVICES, "void".to_owned(), "a runtime below this one adds nothing");
        }
    }

    fn warn(&self, driver: &Driver, report: &mut Report) {
        let Some(image) = self.image.machine else { return };
        let fits = driver.libraries.iter().any(|library| library.machine == image);
        if !fits {
            let what = format!("the image is for {image:?}, and no library of the driver is");
            report.warnings.push(what);
        }
    }
}

/// Drivers and device nodes are only taken from where nobody but root can put them. The `/dev` of
/// the host itself is the kernel's.
fn check_roots(host: &Host, driver: &Driver, inventory: &Inventory, gpus: &[&Gpu]) -> Result<()> {
    trust::check(host, &driver.root, "driver root")?;
    let control = inventory.control.iter().map(|control| &control.node);
    let nodes = control.chain(gpus.iter().flat_map(|gpu| gpu.drm.iter().chain([&gpu.node])));
    let dirs: BTreeSet<&Path> = nodes.filter_map(|node| node.host_path.parent()).collect();
    let elsewhere = dirs.into_iter().filter(|dir| !dir.starts_with("/dev"));
    for dir in elsewhere.filter(|dir| host.exists(dir)) {
        trust::check(host, dir, "dev root")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod widening;
