//! What is given of the driver and the GPUs that are there.

use std::collections::BTreeSet;
use std::path::Path;

use super::files::{Files, Taken};
use super::nodes::Nodes;
use super::{Plan, functions};
use crate::capability::Granted;
use crate::report::{Item, ItemKind, Report};
use crate::request::Selection;
use crate::{
    Config, Driver, Gpu, Handler, Host, Image, Inventory, MaskParams, Mode, NodeNumbers, Request,
    Result, Spec, trust,
};

/// Where the driver's libraries are: NVIDIA's own programs in the container look there.
const LIBCUDA_DIR: &str = "NVIDIA_CTK_LIBCUDA_DIR";
/// Says that no GPU was meant to be there.
const EMPTY_DEVICE: &str = "NVCT_EMPTY_DEVICE";

/// Everything that it is made of.
pub(super) struct Decision<'a> {
    pub(super) host: &'a Host,
    pub(super) config: &'a Config,
    pub(super) handler: Handler,
    pub(super) image: &'a Image,
    pub(super) spec: &'a Spec,
    pub(super) request: &'a Request,
    pub(super) granted: &'a Granted,
    pub(super) inventory: &'a Inventory,
    /// Whether the container manages GPUs.
    pub(super) manages: bool,
}

impl Decision<'_> {
    /// Gives the GPUs and the driver.
    ///
    /// # Errors
    /// Something that the container is nothing without cannot be given.
    pub(super) fn make(&self, gpus: &[&Gpu], driver: &Driver, plan: &mut Plan) -> Result<()> {
        self.give_nodes(gpus, plan)?;
        plan.fixups.mask_params |= self.masks_params(gpus);
        self.give_driver(driver, plan)
    }

    /// Gives the files of the driver.
    pub(super) fn give_driver(&self, driver: &Driver, plan: &mut Plan) -> Result<()> {
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
        self.give_env(directories, plan);
        self.warn(driver, &mut plan.report);
        plan.leave_out_disabled(self.config);
        Ok(())
    }

    /// Gives the nodes of GPUs and those that control the driver.
    pub(super) fn give_nodes(&self, gpus: &[&Gpu], plan: &mut Plan) -> Result<()> {
        let may_make_nodes = self.inventory.may_make_nodes;
        let mut nodes = plan.nodes(self.host, self.config, self.spec, self.granted, may_make_nodes);
        for gpu in gpus {
            nodes.give_gpu(gpu)?;
        }
        nodes.give_control(self.inventory)?;
        // CDI knows channels by its own names alone.
        let knows_cdi = self.handler == Handler::NvidiaCdi || self.config.mode == Mode::Cdi;
        if let Some(channels) = self.inventory.imex.as_ref().filter(|_| !knows_cdi) {
            nodes.give_imex(channels, self.config)?;
        }
        if self.manages { functions::give_management(self.config, &mut nodes) } else { Ok(()) }
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
    }

    /// Whether the driver's libraries in the container must be kept from making nodes: those of GPUs
    /// that it was not given would be there, though of no use.
    fn masks_params(&self, gpus: &[&Gpu]) -> bool {
        let could_make_nodes = self.spec.may_have("CAP_MKNOD") && !self.spec.in_user_namespace();
        self.inventory.may_make_nodes
            && match self.config.mask_params {
                MaskParams::Auto => could_make_nodes && gpus.len() < self.inventory.gpus.len(),
                MaskParams::Always => true,
                MaskParams::Never => false,
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

impl Plan {
    /// For device nodes to be given.
    pub(super) fn nodes<'a>(
        &'a mut self,
        host: &'a Host,
        config: &Config,
        spec: &'a Spec,
        granted: &'a Granted,
        may_make_nodes: bool,
    ) -> Nodes<'a> {
        Nodes {
            host,
            spec,
            granted,
            may_make_nodes,
            may_join_groups: config.additional_gids,
            edits: &mut self.edits,
            missing: &mut self.missing_nodes,
            links: &mut self.fixups.links,
            report: &mut self.report,
        }
    }
}

/// Drivers and device nodes are only taken from where nobody but root can put them. The `/dev` of
/// the host itself is the kernel's.
pub(super) fn check_roots(
    host: &Host,
    driver: &Driver,
    inventory: &Inventory,
    gpus: &[&Gpu],
) -> Result<()> {
    trust::check(host, &driver.root, "driver root")?;
    let control = inventory.control.iter().map(|control| &control.node);
    let nodes = control.chain(gpus.iter().flat_map(|gpu| gpu.drm.iter().chain([&gpu.node])));
    check_places(host, nodes)
}

/// Checks where nodes are.
///
/// # Errors
/// [`Code::UntrustedPath`](crate::Code::UntrustedPath)
pub(super) fn check_places<'a>(
    host: &Host,
    nodes: impl Iterator<Item = &'a NodeNumbers>,
) -> Result<()> {
    let dirs: BTreeSet<&Path> = nodes.filter_map(|node| node.host_path.parent()).collect();
    let elsewhere = dirs.into_iter().filter(|dir| !dir.starts_with("/dev"));
    for dir in elsewhere.filter(|dir| host.exists(dir)) {
        trust::check(host, dir, "dev root")?;
    }
    Ok(())
}
