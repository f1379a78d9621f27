//! Refusals: one enum of codes, each with its way out, in one line a person understands.
//!
//! A message says what is wrong with which thing and where; the way out of the code is appended,
//! so that the line that `kubectl describe pod` shows is enough to act on.

use std::error::Error as StdError;
use std::fmt;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a container was refused. A code keeps its number and meaning for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    // 0xx: what was read
    SpecUnreadable,
    ConfigUnreadable,
    OptionsUnreadable,
    // 1xx: what was asked
    UnknownGpu,
    InvalidRequest,
    MigName,
    ExcludedGpu,
    UuidUnknown,
    CapabilityUnsupported,
    RequirementUnmet,
    RequirementInvalid,
    Denied,
    ImexChannel,
    UnknownDevice,
    // 2xx: what the host has
    NoKernelDriver,
    NoGpu,
    NoDriverFiles,
    DriverMismatch,
    LibraryMissing,
    NodeMissing,
    ProcfsUnreadable,
    UntrustedPath,
    ModuleNotLoaded,
    LibraryUnreadable,
    DriverChanged,
    StaleSpec,
    CdiDeviceUnusable,
    HookMissing,
    PlatformUnsupported,
    FunctionMissing,
    // 3xx: the root filesystem
    RootfsUnreadable,
    FixupFailed,
    KernelTooOld,
    CacheUnreadable,
    // 4xx: the shim
    InnerShim,
    WorkerTimeout,
    WorkerCrashed,
    LowLevelRuntime,
}

impl Code {
    /// The code as it is printed: `NVS-101`.
    pub fn id(self) -> &'static str {
        self.row().0
    }

    /// What a person can do about it.
    pub fn way_out(self) -> &'static str {
        self.row().1
    }

    fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::SpecUnreadable => ("NVS-001", "this is for whoever wrote the bundle to correct"),
            Self::ConfigUnreadable => {
                ("NVS-002", "correct the file, or remove it to run with the defaults")
            }
            Self::OptionsUnreadable => {
                ("NVS-003", "correct the options table of this runtime in containerd's config.toml")
            }
            Self::UnknownGpu => ("NVS-101", "ask for a GPU that exists on this node"),
            Self::InvalidRequest => {
                ("NVS-102", "use an index, a GPU UUID, a PCI bus id, a CDI name, all, none or void")
            }
            Self::MigName => ("NVS-103", "ask for a whole GPU"),
            Self::ExcludedGpu => {
                ("NVS-104", "ask for another GPU, or remove it from NVreg_ExcludedGpus")
            }
            Self::UuidUnknown => {
                ("NVS-105", "run nvidia-smi once or enable persistence mode, or ask by index")
            }
            Self::CapabilityUnsupported => {
                ("NVS-106", "ask for fewer, or add them to supported-driver-capabilities")
            }
            Self::RequirementUnmet => (
                "NVS-107",
                "install a newer driver or use an older image; NVIDIA_DISABLE_REQUIRE=true starts \
                 it as it is",
            ),
            Self::RequirementInvalid => {
                ("NVS-108", "correct the variable, or set NVIDIA_DISABLE_REQUIRE=true")
            }
            Self::Denied => {
                ("NVS-109", "ask the scheduler for GPUs, or whoever runs this node to allow it")
            }
            Self::ImexChannel => {
                ("NVS-110", "ask for one that exists; NVreg_CreateImexChannel0=1 makes channel 0")
            }
            Self::UnknownDevice => (
                "NVS-111",
                "ask for a device that a CDI spec describes; nvidia-shim cdi list has all",
            ),
            Self::NoKernelDriver => (
                "NVS-201",
                "install the NVIDIA driver and load its kernel module (modprobe nvidia)",
            ),
            Self::NoGpu => ("NVS-202", "see dmesg for why the driver took no GPU"),
            Self::NoDriverFiles => {
                ("NVS-203", "install the driver's libraries, or set driver-root to where they are")
            }
            Self::DriverMismatch => {
                ("NVS-204", "reload the kernel module or reboot, so that both are of one version")
            }
            Self::LibraryMissing => ("NVS-205", "install the driver's missing package"),
            Self::NodeMissing => {
                ("NVS-206", "run nvidia-modprobe -c 0 -u, or set dev-root to where the nodes are")
            }
            Self::ProcfsUnreadable => ("NVS-207", "reload the NVIDIA kernel module"),
            Self::UntrustedPath => {
                ("NVS-208", "give it to root and take write permission from all others")
            }
            Self::ModuleNotLoaded => ("NVS-209", "load it with modprobe"),
            Self::LibraryUnreadable => ("NVS-210", "reinstall the driver's package"),
            Self::DriverChanged => ("NVS-211", "start the container again"),
            Self::StaleSpec => {
                ("NVS-212", "generate the CDI spec again, or set stale-spec to heal")
            }
            Self::CdiDeviceUnusable => ("NVS-213", "correct the CDI spec of the device"),
            Self::HookMissing => {
                ("NVS-214", "install the program that the CDI spec names, or correct the spec")
            }
            Self::PlatformUnsupported => {
                ("NVS-215", "use NVIDIA's own nvidia-container-runtime on this node")
            }
            Self::FunctionMissing => {
                ("NVS-216", "load the kernel module, or ask on a node that has the device")
            }
            Self::RootfsUnreadable => ("NVS-301", "see the log for the mount that failed"),
            Self::FixupFailed => {
                ("NVS-302", "correct the image at that path, or make room on its disk")
            }
            Self::KernelTooOld => ("NVS-303", "use Linux 5.6 or later"),
            Self::CacheUnreadable => ("NVS-304", "run ldconfig when building the image"),
            Self::InnerShim => {
                ("NVS-401", "install containerd-shim-runc-v2, or set inner-shim to its path")
            }
            Self::WorkerTimeout => ("NVS-402", "look for a hanging file system under the image"),
            Self::WorkerCrashed => ("NVS-403", "please report this with the log of containerd"),
            Self::LowLevelRuntime => {
                ("NVS-404", "install runc, or name a runtime in runtimes of config.toml")
            }
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// A refusal: the code, what is wrong where, and what the system said of it.
#[derive(Debug, thiserror::Error)]
pub struct Error {
    code: Code,
    what: String,
    cause: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    pub fn new(code: Code, what: impl Into<String>) -> Self {
        Self { code, what: what.into(), cause: None }
    }

    /// With the error that caused it.
    pub fn caused(
        code: Code,
        what: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self { code, what: what.into(), cause: Some(source.into()) }
    }

    pub fn code(&self) -> Code {
        self.code
    }

    /// What is wrong, without code, cause and way out.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// The same, said with where in which CDI spec.
    #[must_use]
    pub(crate) fn in_spec(mut self, place: &str) -> Self {
        self.what = format!("{place}: {}", self.what);
        self
    }

    /// The same, said with what asked for devices, unless it says so already: whoever reads it may not
    /// know that the image did.
    #[must_use]
    pub fn asked_by(mut self, source: &str) -> Self {
        if !self.what.starts_with(source) {
            self.what = format!("{source} asks for devices: {}", self.what);
        }
        self
    }
}

impl fmt::Display for Error {
    /// One line: `NVS-101: what is wrong: what the system said; what to do`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = format!("{}: {}", self.code, self.what);
        let mut source = self.cause.as_deref().map(|source| source as &dyn StdError);
        while let Some(error) = source {
            line.push_str(": ");
            line.push_str(&error.to_string());
            source = error.source();
        }
        line.push_str("; ");
        line.push_str(self.code.way_out());
        // Words of others (image, TOML reader) must not break the line.
        line.chars().map(visible).try_for_each(|shown| fmt::Write::write_char(f, shown))
    }
}

/// The character, or a space for one that would move the cursor of whoever reads it, or turn the
/// direction of what follows, or is not seen at all: words of an image may hold any.
pub(crate) fn visible(character: char) -> char {
    let formats = matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
    );
    if character.is_control() || formats { ' ' } else { character }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_asked_is_said_once() {
        let error = Error::new(Code::NoGpu, "none").asked_by("A=0").asked_by("A=0");
        assert!(error.to_string().starts_with("NVS-202: A=0 asks for devices: none; "), "{error}");
    }

    #[test]
    fn words_of_an_image_neither_colour_nor_turn_nor_hide() {
        let error =
            Error::new(Code::UnknownGpu, "a\u{1b}[31m\u{9b}2Jb\u{202e}c\u{2028}\u{200b}\u{feff}é");
        assert!(error.to_string().starts_with("NVS-101: a [31m 2Jb c   é;"), "{error}");
    }

    #[test]
    fn a_message_is_one_line_with_cause_and_way_out() {
        let cause = std::io::Error::other("line one\nline two");
        let error = Error::caused(Code::SpecUnreadable, "config.json of /b", cause);
        assert_eq!(
            error.to_string(),
            "NVS-001: config.json of /b: line one line two; \
             this is for whoever wrote the bundle to correct"
        );
    }
}
