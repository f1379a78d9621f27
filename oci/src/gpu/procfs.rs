//! The text files of the kernel driver. Formats: NVIDIA's open kernel modules, `nv-procfs.c`.

use std::path::Path;

use crate::driver::is_version;
use crate::{Code, Error, Host, Result};

/// More than any of these files has.
const LIMIT: u64 = 1024 * 1024;

/// `/proc/driver/nvidia/gpus/*/information`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Information {
    pub model: String,
    /// Absent while the GPU was never opened since the driver was loaded.
    pub uuid: Option<String>,
    pub bus_location: Option<String>,
    pub minor: u32,
    pub excluded: bool,
}

/// Owner and mode that the driver wants its nodes to have (`/proc/driver/nvidia/params`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Params {
    /// `ModifyDeviceFiles`: whether anyone but the administrator may make nodes.
    pub modify: bool,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// `ImexChannelCount`: how many IMEX channels the driver has; not all need have a node.
    pub imex_channels: u32,
}

impl Default for Params {
    /// What `nv-reg.h` of the driver says where nothing was set.
    fn default() -> Self {
        Self { modify: true, mode: 0o666, uid: 0, gid: 0, imex_channels: 2048 }
    }
}

/// The majors of the driver's character devices; `None`: that module is not loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Majors {
    /// GPUs and `nvidiactl`: `nvidia-frontend` up to R535, `nvidia` later.
    pub gpu: Option<u32>,
    /// Listed by drivers since R545 only.
    pub modeset: Option<u32>,
    pub uvm: Option<u32>,
    pub imex_channels: Option<u32>,
}

/// Text of `path`; `None` where there is no such file.
pub(super) fn text(host: &Host, path: &Path) -> Result<Option<String>> {
    match host.read_text(path, LIMIT) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::caused(Code::ProcfsUnreadable, path.display().to_string(), error)),
    }
}

/// The `key: value` lines of a file.
struct Lines<'a> {
    path: &'a Path,
    text: &'a str,
}

impl<'a> Lines<'a> {
    /// The line number and value of `key`.
    fn find(&self, key: &str) -> Option<(usize, &'a str)> {
        self.text.lines().enumerate().find_map(|(at, line)| {
            let (found, value) = line.split_once(':')?;
            (found.trim() == key).then(|| (at + 1, value.trim()))
        })
    }

    fn number(&self, key: &str) -> Result<Option<u32>> {
        let Some((line, value)) = self.find(key) else {
            return Ok(None);
        };
        match value.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(malformed(self.path, line, &format!("{key} is \"{value}\", no number"))),
        }
    }
}

fn malformed(path: &Path, line: usize, what: &str) -> Error {
    Error::new(Code::ProcfsUnreadable, format!("line {line} of {}: {what}", path.display()))
}

impl Information {
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self> {
        let lines = Lines { path, text };
        let uuid = match lines.find("GPU UUID") {
            None => None,
            // Older drivers print this while they do not know it.
            Some((_, value)) if value.contains('?') => None,
            Some((_, value)) if is_uuid(value) => Some(value.to_owned()),
            Some((line, value)) => {
                return Err(malformed(path, line, &format!("\"{value}\" is no GPU UUID")));
            }
        };
        let minor = lines.number("Device Minor")?.ok_or_else(|| {
            let what = format!("{} has no line Device Minor", path.display());
            Error::new(Code::ProcfsUnreadable, what)
        })?;
        let value = |key| lines.find(key).map(|(_, value)| value);
        Ok(Self {
            model: value("Model").unwrap_or_default().to_owned(),
            uuid,
            bus_location: value("Bus Location").map(str::to_owned),
            minor,
            excluded: value("GPU Excluded").is_some_and(|value| value.eq_ignore_ascii_case("yes")),
        })
    }
}

fn is_uuid(text: &str) -> bool {
    text.strip_prefix("GPU-").is_some_and(|rest| {
        rest.len() == 36 && rest.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
    })
}

impl Params {
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self> {
        let lines = Lines { path, text };
        let default = Self::default();
        Ok(Self {
            modify: lines.number("ModifyDeviceFiles")?.is_none_or(|value| value != 0),
            mode: lines.number("DeviceFileMode")?.map_or(default.mode, |mode| mode & 0o777),
            uid: lines.number("DeviceFileUID")?.unwrap_or(default.uid),
            gid: lines.number("DeviceFileGID")?.unwrap_or(default.gid),
            imex_channels: lines.number("ImexChannelCount")?.unwrap_or(default.imex_channels),
        })
    }
}

impl Majors {
    /// Reads `/proc/devices`, of which only the character devices are looked at.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self> {
        let mut majors = Self::default();
        for (at, line) in text.lines().enumerate() {
            if line.starts_with("Block devices") {
                break;
            }
            let mut words = line.split_whitespace();
            let (Some(number), Some(name)) = (words.next(), words.next()) else {
                continue;
            };
            let major = match name {
                "nvidia" | "nvidia-frontend" | "nvidiactl" => &mut majors.gpu,
                "nvidia-modeset" => &mut majors.modeset,
                "nvidia-uvm" => &mut majors.uvm,
                "nvidia-caps-imex-channels" => &mut majors.imex_channels,
                _ => continue,
            };
            let number = number.parse().map_err(|_| {
                malformed(path, at + 1, &format!("\"{number}\" is no major of {name}"))
            })?;
            *major = Some(number);
        }
        Ok(majors)
    }
}

/// The version in `/proc/driver/nvidia/version`, in the words of the proprietary modules
/// (`… x86_64 Kernel Module  550.163.01  …`) and of the open ones
/// (`… Open Kernel Module for x86_64  595.45.04  …`).
pub(super) fn version(path: &Path, text: &str) -> Result<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("NVRM version:"));
    line.and_then(|line| line.split_whitespace().find(|word| is_version(word)))
        .map(str::to_owned)
        .ok_or_else(|| {
            let what = format!("no version in the line NVRM version of {}", path.display());
            Error::new(Code::ProcfsUnreadable, what)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/proc/x";

    fn path() -> &'static Path {
        Path::new(PATH)
    }

    #[test]
    fn information_of_a_gpu() {
        let text = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 408\n\
                    GPU UUID: \t GPU-a0000000-1111-2222-3333-000000000000\n\
                    Video BIOS: \t 92.00.45.00.03\nBus Location: \t 0000:07:00.0\n\
                    Device Minor: \t 3\nGPU Excluded:\t No\n";
        let information = Information::parse(path(), text).unwrap();
        assert_eq!(information.model, "NVIDIA H200");
        assert_eq!(information.uuid.as_deref(), Some("GPU-a0000000-1111-2222-3333-000000000000"));
        assert_eq!(information.bus_location.as_deref(), Some("0000:07:00.0"));
        assert_eq!(information.minor, 3);
        assert!(!information.excluded);
    }

    #[test]
    fn a_uuid_not_yet_known() {
        let text = "GPU UUID: \t GPU-????????-????-????-????-????????????\nDevice Minor: 0\n";
        assert_eq!(Information::parse(path(), text).unwrap().uuid, None);
        assert_eq!(Information::parse(path(), "Device Minor: 0\n").unwrap().uuid, None);
    }

    #[test]
    fn a_malformed_line_is_named_with_its_place() {
        let message = |text| Information::parse(path(), text).unwrap_err().to_string();
        assert!(message("Model: x\nDevice Minor: y\n").contains("line 2 of /proc/x"));
        assert!(message("GPU UUID: GPU-1\nDevice Minor: 1\n").contains("line 1 of /proc/x"));
        assert!(message("Model: x\n").contains("/proc/x has no line Device Minor"));
        let error = Params::parse(path(), "DeviceFileMode: -1\n").unwrap_err();
        assert!(error.to_string().contains("line 1 of /proc/x"));
        let error = Majors::parse(path(), "Character devices:\n? nvidia-uvm\n").unwrap_err();
        assert!(error.to_string().contains("line 2 of /proc/x"));
    }

    #[test]
    fn params_have_the_driver_s_defaults() {
        assert_eq!(Params::parse(path(), "").unwrap(), Params::default());
        let text = "ModifyDeviceFiles: 0\nDeviceFileUID: 1\nDeviceFileGID: 44\n\
                    DeviceFileMode: 432\nImexChannelCount: 3\n";
        assert_eq!(
            Params::parse(path(), text).unwrap(),
            Params { modify: false, mode: 0o660, uid: 1, gid: 44, imex_channels: 3 }
        );
    }

    #[test]
    fn majors_of_old_and_new_drivers() {
        let old = "Character devices:\n195 nvidia-frontend\n508 nvidia-uvm\n\nBlock devices:\n";
        let old = Majors::parse(path(), old).unwrap();
        assert_eq!(old, Majors { gpu: Some(195), uvm: Some(508), ..Majors::default() });
        let new = "Character devices:\n195 nvidia\n195 nvidia-modeset\n195 nvidiactl\n\n\
                   Block devices:\n  7 nvidia-uvm\n";
        let new = Majors::parse(path(), new).unwrap();
        assert_eq!(new, Majors { gpu: Some(195), modeset: Some(195), ..Majors::default() });
    }

    #[test]
    fn versions_of_both_kinds_of_module() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8\n\
                      GCC version:  gcc version 12.2.0\n";
        assert_eq!(version(path(), closed).unwrap(), "550.163.01");
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.45.04  \
                    Release Build  (root@host)\n";
        assert_eq!(version(path(), open).unwrap(), "595.45.04");
        assert!(version(path(), "GCC version: 12.2.0\n").is_err());
    }
}
