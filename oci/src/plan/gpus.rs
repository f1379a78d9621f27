//! Which GPUs of the node a request means.

use std::fmt::Write;

use crate::request::{Selection, Selector, Source};
use crate::{BusId, Code, Error, Gpu, Handler, Inventory, Request, Result};

/// The GPUs that `request` asks for, each once, in index order.
///
/// # Errors
/// One of them does not exist or cannot be given; the line says what was asked, by what, and
/// which GPUs there are.
pub(super) fn select<'a>(
    request: &Request,
    inventory: &'a Inventory,
    handler: Handler,
) -> Result<Vec<&'a Gpu>> {
    let mut gpus: Vec<&Gpu> = match &request.gpus {
        Selection::DriverOnly => return Ok(Vec::new()),
        Selection::All => inventory.gpus.iter().collect(),
        Selection::Listed(selectors) => selectors
            .iter()
            .map(|selector| resolve(selector, request, inventory, handler))
            .collect::<Result<_>>()?,
    };
    if gpus.is_empty() {
        check_platform(request, inventory)?;
        let what =
            format!("{} asks for GPUs, and the driver has none on this node", request.source);
        return Err(Error::new(Code::NoGpu, what));
    }
    gpus.sort_by_key(|gpu| gpu.index);
    gpus.dedup_by_key(|gpu| gpu.index);
    Ok(gpus)
}

/// Sees to it that GPUs are where they are looked for.
///
/// # Errors
/// [`Code::PlatformUnsupported`]
pub(super) fn check_platform(request: &Request, inventory: &Inventory) -> Result<()> {
    let Some(platform) = inventory.platform else { return Ok(()) };
    let what = format!(
        "{} asks for GPUs, and this is a {platform} machine, whose GPUs are not served",
        request.source
    );
    Err(Error::new(Code::PlatformUnsupported, what))
}

/// Whether the UUID of a GPU must be learned before [`select`] can answer.
pub(super) fn needs_uuids(request: &Request, inventory: &Inventory) -> bool {
    let Selection::Listed(selectors) = &request.gpus else { return false };
    let is_unknown = |selector: &Selector| !knows(inventory, selector);
    selectors.iter().any(|selector| matches!(selector, Selector::Uuid(_)) && is_unknown(selector))
}

/// Whether a name means a GPU that is there, be it one that is left alone.
pub(super) fn knows(inventory: &Inventory, selector: &Selector) -> bool {
    let mut gpus = inventory.gpus.iter().chain(&inventory.excluded);
    gpus.any(|gpu| means(selector, gpu, Handler::Nvidia))
}

fn resolve<'a>(
    selector: &Selector,
    request: &Request,
    inventory: &'a Inventory,
    handler: Handler,
) -> Result<&'a Gpu> {
    if let Some(gpu) = inventory.gpus.iter().find(|gpu| means(selector, gpu, handler)) {
        return Ok(gpu);
    }
    let asked = format!("{} asks for", request.source);
    let there_are = listing(&inventory.gpus);
    let (code, what) = match selector {
        Selector::Mig(name) => {
            (Code::MigName, format!("{asked} the MIG device {name}, and MIG devices are not given"))
        }
        Selector::Qualified(name) => {
            (Code::InvalidRequest, format!("{asked} {name}, and CDI names are not resolved"))
        }
        Selector::Unknown(_) | Selector::Word(_) => {
            let no = match request.source {
                Source::Annotations(_) => "neither vendor/class=device nor a",
                _ => "no",
            };
            let what = format!(
                "{asked} {selector}, which is {no} name of a GPU; this node has {there_are}"
            );
            (Code::InvalidRequest, what)
        }
        _ if inventory.excluded.iter().any(|gpu| means(selector, gpu, handler)) => (
            Code::ExcludedGpu,
            format!("{asked} GPU {selector}, which the driver was told to leave alone"),
        ),
        Selector::Uuid(_) if inventory.gpus.iter().any(|gpu| gpu.uuid.is_none()) => (
            Code::UuidUnknown,
            format!(
                "{asked} GPU {selector}, and the driver does not tell the UUID of every GPU; \
                 this node has {there_are}"
            ),
        ),
        Selector::Index(_) | Selector::Uuid(_) | Selector::BusId(_) => (
            Code::UnknownGpu,
            format!("{asked} GPU {selector}, which does not exist; this node has {there_are}"),
        ),
    };
    Err(Error::new(code, what))
}

fn means(selector: &Selector, gpu: &Gpu, handler: Handler) -> bool {
    match selector {
        // A CDI name is a name: `00` is another than `0`. NVIDIA's other modes read a number.
        Selector::Index(text) if handler == Handler::NvidiaCdi => *text == gpu.index.to_string(),
        Selector::Index(text) => text.parse() == Ok(gpu.index),
        Selector::Uuid(text) => {
            gpu.uuid.as_ref().is_some_and(|uuid| uuid.eq_ignore_ascii_case(text))
        }
        Selector::BusId(id) => BusId::parse(&gpu.bus_id) == Some(*id),
        Selector::Mig(_) | Selector::Qualified(_) | Selector::Word(_) | Selector::Unknown(_) => {
            false
        }
    }
}

/// `0 (GPU-…, 0000:07:00.0), 1 (…)`
fn listing(gpus: &[Gpu]) -> String {
    let mut list = String::new();
    for gpu in gpus {
        let separator = if list.is_empty() { "" } else { ", " };
        let uuid = gpu.uuid.as_deref().unwrap_or("UUID not known yet");
        // Writing to a String cannot fail.
        let _ = write!(list, "{separator}{} ({uuid}, {})", gpu.index, gpu.bus_id);
    }
    if list.is_empty() { "no GPU".to_owned() } else { list }
}
