//! Driver capabilities: which parts of the driver a container may use.
//!
//! The names are those of NVIDIA's documentation of `NVIDIA_DRIVER_CAPABILITIES`. Which file
//! belongs to which capability is in [`driver`](crate::driver), which were asked for in
//! [`request`](crate::request); here is what a container may use of what it asked for.

use std::fmt;

use crate::request::{AskedCapabilities, DRIVER_CAPABILITIES};
use crate::{Code, Config, DriverCapabilities, Error, Handler, Request, Result};

/// A set of driver capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u8);

const NAMES: [(&str, Capabilities); 7] = [
    ("compute", Capabilities::COMPUTE),
    ("utility", Capabilities::UTILITY),
    ("graphics", Capabilities::GRAPHICS),
    ("display", Capabilities::DISPLAY),
    ("video", Capabilities::VIDEO),
    ("ngx", Capabilities::NGX),
    ("compat32", Capabilities::COMPAT32),
];

impl Capabilities {
    pub const NONE: Self = Self(0);
    /// CUDA and `OpenCL`.
    pub const COMPUTE: Self = Self(1);
    /// nvidia-smi and NVML.
    pub const UTILITY: Self = Self(1 << 1);
    /// OpenGL, EGL and Vulkan.
    pub const GRAPHICS: Self = Self(1 << 2);
    /// An X server.
    pub const DISPLAY: Self = Self(1 << 3);
    /// The Video Codec SDK.
    pub const VIDEO: Self = Self(1 << 4);
    /// Deep learning for graphics.
    pub const NGX: Self = Self(1 << 5);
    /// 32-bit libraries of the others.
    pub const COMPAT32: Self = Self(1 << 6);
    pub const ALL: Self = Self((1 << 7) - 1);
    /// What a container may use that does not say.
    pub const DEFAULT: Self = Self::UTILITY.or(Self::COMPUTE);

    /// The capability of that name; names are lower case.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, set)| *set)
    }

    /// Those of a list with commas; `all` is all of them.
    ///
    /// # Errors
    /// Which name is none of theirs, in words.
    pub(crate) fn listed(list: &str) -> Result<Self, String> {
        let mut names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.try_fold(Self::NONE, |set, name| match Self::named(name) {
            _ if name == "all" => Ok(Self::ALL),
            Some(capability) => Ok(set.or(capability)),
            None => Err(format!("{name:?} is none of {}, all", Self::known_names())),
        })
    }

    /// The names that are known, for a person.
    pub fn known_names() -> String {
        Self::ALL.to_string()
    }

    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of `other` are here.
    pub const fn holds(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is here.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// With what they rest on: video runs on CUDA, and an X server draws (libnvidia-container's
    /// table of options: `video` and `display` include `compute` and `graphics`).
    #[must_use]
    pub const fn with_foundations(self) -> Self {
        let video = if self.holds(Self::VIDEO) { Self::COMPUTE } else { Self::NONE };
        let display = if self.holds(Self::DISPLAY) { Self::GRAPHICS } else { Self::NONE };
        self.or(video).or(display)
    }
}

impl fmt::Display for Capabilities {
    /// As the variable is written: `compute,utility`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = NAMES.iter().filter(|(_, set)| self.holds(*set)).map(|(name, _)| *name);
        f.write_str(names.next().unwrap_or("none"))?;
        names.try_for_each(|name| write!(f, ",{name}"))
    }
}

/// What a container may use of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) capabilities: Capabilities,
    /// Those without whose mandatory files the container is refused: who says `all` takes what
    /// there is, but nothing works without CUDA and NVML.
    pub(crate) mandatory: Capabilities,
    pub(crate) warnings: Vec<String>,
}

impl Granted {
    /// # Errors
    /// [`Code::CapabilityUnsupported`]: one of them is not among those that are supported here.
    pub(crate) fn of(request: &Request, config: &Config, handler: Handler) -> Result<Self> {
        if !config.honours_capabilities(handler) {
            return Ok(Self::whatever_there_is(Capabilities::ALL));
        }
        let supported = config.supported_capabilities;
        match &request.capabilities {
            AskedCapabilities::All => Ok(Self::whatever_there_is(supported)),
            AskedCapabilities::Default => Ok(Self::named(supported.and(Capabilities::DEFAULT))),
            AskedCapabilities::Listed { known, unknown } => {
                let excess = known.without(supported);
                if !excess.is_empty() {
                    let what = format!(
                        "{DRIVER_CAPABILITIES} asks for {excess}, and only {supported} can be \
                         asked for here"
                    );
                    return Err(Error::new(Code::CapabilityUnsupported, what));
                }
                let warnings = unknown.iter().map(|name| {
                    let known = Capabilities::known_names();
                    format!("{DRIVER_CAPABILITIES} has {name:?}, which is none of {known}, all")
                });
                Ok(Self { warnings: warnings.collect(), ..Self::named(*known) })
            }
        }
    }

    /// What manages GPUs takes all of the driver, and draws nothing.
    pub(crate) fn of_management() -> Self {
        Self {
            capabilities: Capabilities::ALL.without(Capabilities::GRAPHICS),
            ..Self::named(Capabilities::DEFAULT)
        }
    }

    pub(crate) fn whatever_there_is(capabilities: Capabilities) -> Self {
        let mandatory = capabilities.and(Capabilities::DEFAULT);
        let capabilities = capabilities.with_foundations();
        Self { capabilities, mandatory, warnings: Vec::new() }
    }

    fn named(capabilities: Capabilities) -> Self {
        let capabilities = capabilities.with_foundations();
        Self { capabilities, mandatory: capabilities, warnings: Vec::new() }
    }
}

impl Config {
    /// Whether a container gets the capabilities that it asks for, and no others.
    pub fn honours_capabilities(&self, handler: Handler) -> bool {
        match self.driver_capabilities {
            DriverCapabilities::Auto => !self.is_cdi(handler),
            DriverCapabilities::Honour => true,
            DriverCapabilities::All => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mode, Spec};

    fn granted(env: &[&str], config: &Config, handler: Handler) -> Result<Granted> {
        let env: Vec<&str> = ["NVIDIA_VISIBLE_DEVICES=all"].iter().chain(env).copied().collect();
        let spec = Spec::new(serde_json::json!({ "process": { "env": env } }));
        Granted::of(&Request::of(&spec).unwrap().unwrap(), config, handler)
    }

    fn names(env: &[&str]) -> String {
        let granted = granted(env, &Config::default(), Handler::Nvidia).unwrap();
        assert!(granted.capabilities.holds(granted.mandatory));
        granted.capabilities.to_string()
    }

    #[test]
    fn what_the_variable_says() {
        for (value, expected) in [
            ("", "compute,utility"),
            (" , ", "compute,utility"),
            ("utility", "utility"),
            (" graphics , utility", "utility,graphics"),
            ("video", "compute,video"),
            ("display", "graphics,display"),
            ("compat32", "compat32"),
            ("utility,all", "compute,utility,graphics,display,video,ngx,compat32"),
        ] {
            let entry = format!("NVIDIA_DRIVER_CAPABILITIES={value}");
            assert_eq!(names(&[&entry]), expected, "{value}");
        }
        assert_eq!(names(&[]), "compute,utility");
    }

    #[test]
    fn an_image_from_before_the_variable_gets_all_unless_it_says() {
        assert_eq!(names(&["CUDA_VERSION=8.0"]), Capabilities::ALL.to_string());
        let named = ["CUDA_VERSION=8.0", "NVIDIA_DRIVER_CAPABILITIES=utility"];
        assert_eq!(names(&named), "utility");
        assert_eq!(names(&["CUDA_VERSION=8.0", "NVIDIA_DRIVER_CAPABILITIES="]), "compute,utility");
        assert_eq!(names(&["CUDA_VERSION=12", "NVIDIA_REQUIRE_CUDA=cuda>=12"]), "compute,utility");
    }

    #[test]
    fn only_what_was_named_and_cuda_and_nvml_are_mandatory() {
        let mandatory = |value: &str| {
            let entry = format!("NVIDIA_DRIVER_CAPABILITIES={value}");
            granted(&[&entry], &Config::default(), Handler::Nvidia).unwrap().mandatory.to_string()
        };
        assert_eq!(mandatory("all"), "compute,utility");
        assert_eq!(mandatory("graphics"), "graphics");
        assert_eq!(mandatory("video,display"), "compute,graphics,display,video");
    }

    #[test]
    fn an_unknown_name_is_warned_of_with_those_that_are_known() {
        let env = ["NVIDIA_DRIVER_CAPABILITIES=utility,grafics"];
        let granted = granted(&env, &Config::default(), Handler::Nvidia).unwrap();
        assert_eq!(granted.capabilities, Capabilities::UTILITY);
        assert_eq!(
            granted.warnings,
            ["NVIDIA_DRIVER_CAPABILITIES has \"grafics\", which is none of \
              compute,utility,graphics,display,video,ngx,compat32, all"]
        );
    }

    #[test]
    fn what_is_not_supported_is_refused_when_named_and_left_out_of_all() {
        let supported_capabilities = Capabilities::UTILITY.or(Capabilities::VIDEO);
        let config = Config { supported_capabilities, ..Config::default() };
        let ask = |value: &str| {
            let entry = format!("NVIDIA_DRIVER_CAPABILITIES={value}");
            granted(&[&entry], &config, Handler::Nvidia)
        };
        let error = ask("utility,graphics").unwrap_err();
        assert_eq!(error.code(), Code::CapabilityUnsupported);
        assert!(error.to_string().contains("asks for graphics, and only utility,video"));
        assert_eq!(ask("all").unwrap().capabilities.to_string(), "compute,utility,video");
        assert_eq!(ask("").unwrap().capabilities, Capabilities::UTILITY);
    }

    #[test]
    fn who_honours_the_variable() {
        let all = |config: &Config, handler| {
            let env = ["NVIDIA_DRIVER_CAPABILITIES=utility"];
            granted(&env, config, handler).unwrap().capabilities == Capabilities::ALL
        };
        let mut config = Config::default();
        assert!(!all(&config, Handler::Nvidia));
        assert!(all(&config, Handler::NvidiaCdi));
        for (mode, expected) in [(Mode::JitCdi, true), (Mode::Cdi, true), (Mode::Legacy, false)] {
            config.mode = mode;
            assert_eq!(all(&config, Handler::Nvidia), expected, "{mode:?}");
        }
        config.driver_capabilities = DriverCapabilities::All;
        assert!(all(&config, Handler::Nvidia));
        config.driver_capabilities = DriverCapabilities::Honour;
        assert!(!all(&config, Handler::NvidiaCdi));
    }
}
