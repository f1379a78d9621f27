//! GPUs, and the driver that every container with one of them gets.

use std::path::PathBuf;

use super::part::Part;
use super::{ALL, Described, Draft, NameStrategy, Recipe};
use crate::plan::Parts;
use crate::{Code, Config, CudaCompat, Error, Gpu, Host, Plan, Result};

/// The name of a device that is the driver without a GPU.
pub(super) const NONE: &str = "none";
const EMPTY_DEVICE: &str = "NVCT_EMPTY_DEVICE=";

/// Describes the GPUs that are asked for.
pub(super) fn describe(recipe: &Recipe, host: &Host, config: &Config) -> Result<Draft> {
    let parts = Parts::read(host, config)?;
    let driver = || -> Result<Draft> {
        let mut draft = common(parts.common()?);
        draft.common.mask_params = true;
        draft.common.profile = true;
        Ok(draft)
    };
    if recipe.devices.iter().any(|name| name == NONE) {
        let part = Part { env: vec![EMPTY_DEVICE.to_owned()], ..Part::default() };
        let device = Described { names: vec![NONE.to_owned()], part };
        return Ok(Draft { devices: vec![device], ..driver()? });
    }
    let gpus = parts.gpus(&recipe.devices)?;
    let mut draft = driver()?;
    let named = recipe.devices.iter().any(|name| name != ALL);
    for gpu in gpus {
        if !named && gpu.is_divided(host) {
            let what = format!("GPU {} is divided into MIG devices, and left out", gpu.index);
            draft.warnings.push(what);
            continue;
        }
        let names = names(gpu, &recipe.names);
        if gpu.uuid.is_none() && recipe.names.contains(&NameStrategy::Uuid) {
            let what = format!(
                "GPU {} has no name by UUID, as the driver does not know it yet",
                gpu.index
            );
            if names.is_empty() {
                return Err(Error::new(Code::UuidUnknown, what));
            }
            draft.warnings.push(what);
        }
        let mut plan = parts.gpu(gpu)?;
        draft.warnings.append(&mut plan.report.warnings);
        draft.devices.push(Described { names, part: Part::of(plan) });
    }
    if draft.devices.is_empty() {
        let what = "every GPU is divided into MIG devices, which are not described";
        return Err(Error::new(Code::MigName, what));
    }
    Ok(draft)
}

/// Describes all that there is for who manages GPUs, as one device.
pub(super) fn management(host: &Host, config: &Config) -> Result<Draft> {
    let (files, nodes) = Parts::read(host, config)?.management()?;
    let device = Described { names: vec![ALL.to_owned()], part: Part::of(nodes) };
    Ok(Draft { devices: vec![device], ..common(files) })
}

fn common(plan: Plan) -> Draft {
    let driver = plan.report.driver.as_ref().map(|driver| driver.version.clone());
    let warnings = plan.report.warnings.clone();
    let mut common = Part::of(plan);
    common.compat =
        Some(CudaCompat { driver, cuda: None, directory: PathBuf::from(CudaCompat::DIRECTORY) });
    Draft { common, warnings, ..Draft::default() }
}

fn names(gpu: &Gpu, strategies: &[NameStrategy]) -> Vec<String> {
    let name = |strategy: &NameStrategy| match strategy {
        NameStrategy::Index => Some(gpu.index.to_string()),
        NameStrategy::Uuid => gpu.uuid.clone(),
        NameStrategy::TypeIndex => Some(format!("gpu{}", gpu.index)),
    };
    let mut names: Vec<String> = strategies.iter().filter_map(name).collect();
    names.sort();
    names.dedup();
    names
}
