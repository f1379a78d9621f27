//! The whole decision: what was asked, what is allowed, what exists → what is given.

mod decision;
mod described;
mod disabled;
mod files;
mod functions;
mod gpus;
mod imex;
mod inquiry;
mod loader;
mod nodes;
mod parts;
mod stale;
mod standing;
mod vendor;
mod ways;

use std::path::{Path, PathBuf};

use serde::Serialize;

use self::decision::{Decision, check_roots};
use self::described::Described;
pub(crate) use self::files::FILE_OPTIONS;
pub use self::inquiry::{Inquiry, Need};
pub(crate) use self::parts::Parts;
pub use self::standing::Standing;
use crate::capability::Granted;
use crate::elf::{Class, Machine};
use crate::report::{DriverFound, Item, ItemKind};
use crate::request::VISIBLE_DEVICES;
use crate::requirement::Facts;
use crate::{
    Code, Config, Driver, Edits, Error, Gpu, Handler, Host, Image, Mode, NoDriver, Report, Request,
    Result, Spec, edit, policy, requirement,
};

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
    /// Whether CUDA's compatibility libraries of the image go before the driver's, and what they
    /// are compared with.
    pub cuda_compat: Option<CudaCompat>,
    /// Whether the driver's libraries are told to make no device nodes.
    pub mask_params: bool,
    /// Whether EGL and Vulkan are told to use only GPUs that are there.
    pub application_profile: bool,
}

/// The driver that CUDA's compatibility libraries of an image are compared with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CudaCompat {
    /// `550.163.01`
    pub driver: Option<String>,
    /// The newest CUDA that the driver knows: `12.4`.
    pub cuda: Option<String>,
    /// Where the image has them.
    pub directory: PathBuf,
}

impl CudaCompat {
    /// Where images have them, unless it is said otherwise.
    pub const DIRECTORY: &str = "/usr/local/cuda/compat";
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

impl Link {
    /// `target::link`, as flags of NVIDIA's hooks have it: the target as it is stored, the link
    /// below the container's root.
    pub fn parse(text: &str) -> Option<Self> {
        let (target, link) = text.split_once("::")?;
        if target.is_empty() || link.is_empty() || link.contains("::") {
            return None;
        }
        Some(Self { link: Path::new("/").join(link), target: target.into() })
    }
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
    let judgement = policy::judge(spec, config, handler)?;
    let report = Report::of_judgement(handler, &judgement);
    let outcome = match judgement.request {
        Some(request) => Inquiry::read(host, config, handler, spec, request)?
            .plan(host, config, handler, image, spec)?,
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
        let Self { request, inventory, registry, ways } = self;
        let mut report = Report::of(handler);
        report.request = Some(request.source.to_string());
        report.trust = Some(format!("yes: {}", request.trust));
        report.warnings.extend(ways.warnings.iter().cloned());
        let mut plan = Plan::of(report);
        if let Some(live) = &ways.live
            && self.has_driver(config, &mut plan.report)?
        {
            self.give_live(live, (host, config, handler), image, spec, &mut plan)?;
        }
        let nothing = Granted::default();
        let mut nodes = plan.nodes(host, config, spec, &nothing, inventory.may_make_nodes);
        for function in &ways.functions {
            functions::give(function, config, &mut nodes)?;
        }
        let devices: Vec<_> = ways.described.iter().filter_map(|it| registry.find(it)).collect();
        Described { host, config, spec, plan: &mut plan }.give(&devices)?;
        let is_empty = plan.edits == Edits::default() && plan.fixups == Fixups::default();
        // Who has its devices already must not get them once more by NVIDIA's own hook.
        if is_empty && (devices.is_empty() || !edit::has_legacy_hook(spec)) {
            return Ok(Outcome::Untouched(Box::new(plan.report)));
        }
        if handler == Handler::NvidiaCdi && ways.are_nvidias() {
            plan.keep_others_off();
        }
        Ok(Outcome::Edited(Box::new(plan)))
    }

    /// Whether there is a driver; without one a container may be let start as it is.
    fn has_driver(&self, config: &Config, report: &mut Report) -> Result<bool> {
        let Self { request, inventory, .. } = self;
        if config.mode == Mode::Csv {
            let what = format!("{} asks for GPUs by Tegra's lists (mode is csv)", request.source);
            return Err(Error::new(Code::PlatformUnsupported, what));
        }
        if inventory.driver_version.is_some() {
            return Ok(true);
        }
        if config.no_driver == NoDriver::Start && !inventory.on_pci {
            let warning = "no driver and no GPU on this node: started without";
            report.warnings.push(warning.to_owned());
            return Ok(false);
        }
        gpus::check_platform(request, inventory)?;
        let what = format!("{} asks for GPUs, and no driver is loaded here", request.source);
        Err(Error::new(Code::NoKernelDriver, what))
    }

    /// Gives GPUs that are there, and the driver.
    fn give_live(
        &self,
        request: &Request,
        (host, config, handler): (&Host, &Config, Handler),
        image: &Image,
        spec: &Spec,
        plan: &mut Plan,
    ) -> Result<()> {
        let Self { inventory, ways, .. } = self;
        let kernel_driver = inventory.driver_version.as_deref().unwrap_or_default();
        let gpus = gpus::select(request, inventory, handler)?;
        let granted = match ways.manages {
            true => Granted::of_management(),
            false => Granted::of(request, config, handler)?,
        };
        let device_id = |gpu: &Gpu| gpu.device_id(host);
        let facts = || Facts::of(kernel_driver, &gpus, device_id);
        let findings =
            requirement::check(&request.requirements, config.requirements(handler), facts)?;
        let report = &mut plan.report;
        report.requirements = findings.met;
        report.warnings.extend(findings.warnings);
        let driver = Driver::discover(host, config, Some(kernel_driver))?;
        check_roots(host, &driver, inventory, &gpus)?;
        report.driver =
            Some(DriverFound { version: driver.version.clone(), root: driver.root.clone() });
        report.capabilities = Some(granted.capabilities.to_string());
        report.warnings.extend(granted.warnings.iter().cloned());
        let (granted, manages) = (&granted, ways.manages);
        let decision =
            Decision { host, config, handler, image, spec, request, granted, inventory, manages };
        decision.make(&gpus, &driver, plan)
    }
}

impl Plan {
    fn of(report: Report) -> Self {
        let (edits, fixups) = (Edits::default(), Fixups::default());
        Self { edits, fixups, missing_nodes: Vec::new(), report }
    }

    /// Tells a runtime below this one to add nothing.
    fn keep_others_off(&mut self) {
        let (name, value) = (VISIBLE_DEVICES, "void");
        if !self.edits.env.iter().any(|(known, said)| known == name && said == value) {
            let reason = "a runtime below this one adds nothing";
            let shown = format!("{name}={value}");
            self.report.given.push(Item::new(ItemKind::Environment, shown, reason));
            self.edits.env.push((name.to_owned(), value.to_owned()));
        }
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

#[cfg(test)]
mod tests;
#[cfg(test)]
mod widening;
