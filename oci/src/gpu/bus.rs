//! PCI addresses.

use std::fmt;

/// A PCI function, ordered as `nvidia-smi` counts its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BusId {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl BusId {
    /// Reads `0000:07:00.0`, in either case and with a domain of any width (NVML writes eight
    /// digits), or without domain.
    pub fn parse(text: &str) -> Option<Self> {
        let (rest, function) = text.rsplit_once('.')?;
        let mut parts = rest.rsplit(':');
        let device = hex(parts.next()?, 2)?;
        let bus = hex(parts.next()?, 2)?;
        let domain = parts.next().map_or(Some(0), |domain| hex(domain, 8))?;
        if parts.next().is_some() || device > 0x1f {
            return None;
        }
        let function = hex(function, 1).filter(|function| *function < 8)?;
        Some(Self {
            domain,
            bus: u8::try_from(bus).ok()?,
            device: u8::try_from(device).ok()?,
            function: u8::try_from(function).ok()?,
        })
    }
}

fn hex(text: &str, digits: usize) -> Option<u32> {
    let proper =
        (1..=digits).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if proper { u32::from_str_radix(text, 16).ok() } else { None }
}

impl fmt::Display for BusId {
    /// As sysfs names it: a domain of at least four digits, lower case.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_an_address() {
        for text in ["0000:0f:00.0", "00000000:0F:00.0", "0:f:0.0", "0f:00.0"] {
            assert_eq!(BusId::parse(text).unwrap().to_string(), "0000:0f:00.0", "{text}");
        }
        assert_eq!(BusId::parse("10000:01:00.1").unwrap().to_string(), "10000:01:00.1");
        for text in ["", "0", "GPU-1", "0000:07:00", "0:0:0:0.0", "07:20.0", "07:00.8", "+7:00.0"] {
            assert_eq!(BusId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn ordered_by_number() {
        let id = |text| BusId::parse(text).unwrap();
        assert!(id("0000:ff:00.0") < id("0001:01:00.0"));
        assert!(id("ffff:01:00.0") < id("10000:01:00.0"));
    }
}
