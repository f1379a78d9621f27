//! NVIDIA's devices beside GPUs, one device `all` each; IMEX channels are one device each.

use super::part::Part;
use super::{ALL, Described, Draft};
use crate::cdi::QualifiedName;
use crate::plan::Parts;
use crate::{Config, Host, Result};

const CHANNELS: &str = "imex-channel";
const CHANNEL: &str = "channel";

/// Describes the devices of a class.
pub(super) fn describe(
    class: &str,
    devices: &[String],
    host: &Host,
    config: &Config,
) -> Result<Draft> {
    let parts = Parts::without_driver(host, config);
    let part = |device: &str| {
        let name = QualifiedName { kind: format!("nvidia.com/{class}"), device: device.to_owned() };
        parts.function(&name).map(Part::of)
    };
    let asked: Vec<&str> = match devices {
        [] => vec![ALL],
        devices => devices.iter().map(String::as_str).collect(),
    };
    let mut found = Vec::new();
    for device in asked {
        let part = part(device)?;
        if class == CHANNELS {
            found.extend(channels(part));
        } else {
            found.push(Described { names: vec![device.to_owned()], part });
        }
    }
    Ok(Draft { devices: found, ..Draft::default() })
}

/// Each node of `part` as a device, by its number.
fn channels(part: Part) -> impl Iterator<Item = Described> {
    part.nodes.into_iter().filter_map(|node| {
        let name = node.path.rsplit('/').next()?.strip_prefix(CHANNEL)?.to_owned();
        let part = Part { nodes: vec![node], ..Part::default() };
        Some(Described { names: vec![name], part })
    })
}
