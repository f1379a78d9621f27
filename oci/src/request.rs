//! What a container asks for: typed text (environment, annotations) → meant.
//!
//! The forms are those of NVIDIA's documentation of `NVIDIA_VISIBLE_DEVICES`. Names of environment
//! variables live here only. Whether what is asked exists is for the plan to say; whether anything
//! is asked at all is a cheap question of its own ([`asks`]), put to every container of the node.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use crate::{BusId, Capabilities, Code, Error, Result, Spec};

/// Which GPUs a container sees.
pub const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
/// Which parts of the driver a container may use.
pub const DRIVER_CAPABILITIES: &str = "NVIDIA_DRIVER_CAPABILITIES";
const CUDA_VERSION: &str = "CUDA_VERSION";
const REQUIRE_CUDA: &str = "NVIDIA_REQUIRE_CUDA";

/// The kernel gives no program a longer string of its environment (`MAX_ARG_STRLEN`).
const LONGEST_VALUE: usize = 128 << 10;

/// Annotations by which containerd and CRI-O mark the pause container of a pod.
const CONTAINER_TYPE: [&str; 2] =
    ["io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"];

/// What was asked, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub gpus: Selection,
    pub source: Source,
    pub capabilities: AskedCapabilities,
}

/// Which GPUs were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// `none`: the driver, and no GPU.
    DriverOnly,
    All,
    /// In the order of the list, as it was written; never empty.
    Listed(Vec<Selector>),
}

/// Which driver capabilities were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskedCapabilities {
    /// The variable is not there, or names nothing.
    Default,
    /// `all`; also an image from before the variable that does not have it.
    All,
    Listed {
        known: Capabilities,
        /// As they were written.
        unknown: Vec<String>,
    },
}

/// One item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Digits, as they were written: they count in PCI order.
    Index(String),
    /// `GPU-…`
    Uuid(String),
    /// `0000:07:00.0`
    BusId(BusId),
    /// `0:1` or `MIG-…`
    Mig(String),
    /// `vendor/class=name`
    Qualified(String),
    /// None of these.
    Unknown(String),
}

/// By what a container asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An environment variable and its value.
    Variable(&'static str, String),
    /// An image from before `NVIDIA_VISIBLE_DEVICES`, known by its `CUDA_VERSION`, means all.
    LegacyImage(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name, value) => write!(f, "{name}={}", shortened(value)),
            Self::LegacyImage(version) => {
                write!(f, "{CUDA_VERSION}={} without {VISIBLE_DEVICES}", shortened(version))
            }
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(text)
            | Self::Uuid(text)
            | Self::Mig(text)
            | Self::Qualified(text)
            | Self::Unknown(text) => f.write_str(&shortened(text)),
            Self::BusId(id) => id.fmt(f),
        }
    }
}

impl Selector {
    /// Reads one trimmed, non-empty item; whatever it is, it is something.
    fn parse(text: &str) -> Self {
        let owned = || text.to_owned();
        if is_number(text) {
            return Self::Index(owned());
        }
        if let Some(id) = BusId::parse(text) {
            return Self::BusId(id);
        }
        if text.split_once(':').is_some_and(|(gpu, mig)| is_number(gpu) && is_number(mig)) {
            return Self::Mig(owned());
        }
        match text.get(..4).map(str::to_ascii_uppercase).as_deref() {
            Some("GPU-") => return Self::Uuid(owned()),
            Some("MIG-") => return Self::Mig(owned()),
            _ => {}
        }
        match text.split_once('/') {
            Some((vendor, rest)) if !vendor.is_empty() && rest.contains('=') => {
                Self::Qualified(owned())
            }
            _ => Self::Unknown(owned()),
        }
    }
}

impl Request {
    /// What the container of `spec` asks for; `None` if nothing.
    ///
    /// # Errors
    /// [`Code::InvalidRequest`] if the variable is there without a value, or with one so long that
    /// no program could be started with it.
    pub fn of(spec: &Spec) -> Result<Option<Self>> {
        if CONTAINER_TYPE.iter().any(|key| spec.annotation(key) == Some("sandbox")) {
            return Ok(None);
        }
        Self::of_environment(&Environment::of(spec.env()))
    }

    fn of_environment(environment: &Environment) -> Result<Option<Self>> {
        let value = match environment.visible_devices {
            Entry::Set(value) if value.len() <= LONGEST_VALUE => value,
            Entry::Set(value) => {
                let what = format!("{VISIBLE_DEVICES} is {} bytes long", value.len());
                return Err(Error::new(Code::InvalidRequest, what));
            }
            Entry::WithoutValue => {
                let what = format!("the environment has {VISIBLE_DEVICES} without a value");
                return Err(Error::new(Code::InvalidRequest, what));
            }
            Entry::Absent => {
                return Ok(environment.legacy_image().map(|version| Self {
                    gpus: Selection::All,
                    source: Source::LegacyImage(version.to_owned()),
                    capabilities: AskedCapabilities::of(environment),
                }));
            }
        };
        let source = Source::Variable(VISIBLE_DEVICES, value.to_owned());
        let capabilities = AskedCapabilities::of(environment);
        Ok(Selection::parse(value).map(|gpus| Self { gpus, source, capabilities }))
    }
}

impl AskedCapabilities {
    fn of(environment: &Environment) -> Self {
        match environment.driver_capabilities {
            Entry::Set(value) => Self::parse(value),
            Entry::Absent if environment.legacy_image().is_some() => Self::All,
            Entry::Absent | Entry::WithoutValue => Self::Default,
        }
    }

    fn parse(list: &str) -> Self {
        let (mut known, mut unknown) = (Capabilities::NONE, Vec::new());
        for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match Capabilities::named(name) {
                _ if name == "all" => return Self::All,
                Some(capability) => known = known.or(capability),
                None => unknown.push(shortened(name).into_owned()),
            }
        }
        if known.is_empty() && unknown.is_empty() {
            return Self::Default;
        }
        Self::Listed { known, unknown }
    }
}

impl Selection {
    /// `None`: nothing is asked for.
    fn parse(list: &str) -> Option<Self> {
        let items = || list.split(',').map(str::trim).filter(|item| !item.is_empty());
        if items().any(|item| item == "void") {
            return None;
        }
        match items().find(|item| matches!(*item, "all" | "none")) {
            Some("all") => return Some(Self::All),
            Some(_) => return Some(Self::DriverOnly),
            None => {}
        }
        let selectors: Vec<_> = items().map(Selector::parse).collect();
        (!selectors.is_empty()).then_some(Self::Listed(selectors))
    }
}

/// Whether the container of this `config.json` asks for anything. Reads only what tells it.
///
/// # Errors
/// [`Code::SpecUnreadable`], with line and column, if it is no spec.
pub fn asks(config_json: &[u8]) -> Result<bool> {
    let probe: Probe<'_> = serde_json::from_slice(config_json)
        .map_err(|error| Error::caused(Code::SpecUnreadable, "config.json", error))?;
    let annotations = probe.annotations.unwrap_or_default();
    let kind = |key: &&str| annotations.get(*key).and_then(Option::as_deref);
    if CONTAINER_TYPE.iter().any(|key| kind(key) == Some("sandbox")) {
        return Ok(false);
    }
    let env = probe.process.and_then(|process| process.env).unwrap_or_default();
    let environment = Environment::of(env.iter().map(AsRef::as_ref));
    // A malformed request asks too: it is for the plan to refuse it.
    Ok(Request::of_environment(&environment).map_or(true, |request| request.is_some()))
}

/// The part of a spec that tells whether anything is asked for.
#[derive(Deserialize)]
struct Probe<'a> {
    #[serde(borrow)]
    process: Option<ProbeProcess<'a>>,
    #[serde(borrow)]
    annotations: Option<BTreeMap<Cow<'a, str>, Option<Cow<'a, str>>>>,
}

#[derive(Deserialize)]
struct ProbeProcess<'a> {
    #[serde(borrow)]
    env: Option<Vec<Text<'a>>>,
}

/// A string, borrowed from the JSON where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl AsRef<str> for Text<'_> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// The variables that matter. The last entry of a name counts, as it does for the container.
#[derive(Default)]
struct Environment<'a> {
    visible_devices: Entry<'a>,
    driver_capabilities: Entry<'a>,
    cuda_version: Entry<'a>,
    require_cuda: Entry<'a>,
}

#[derive(Clone, Copy, Default)]
enum Entry<'a> {
    #[default]
    Absent,
    /// No `=`: not an assignment, and runc will not start such a container.
    WithoutValue,
    Set(&'a str),
}

impl<'a> Environment<'a> {
    fn of(entries: impl Iterator<Item = &'a str>) -> Self {
        let mut environment = Self::default();
        for entry in entries {
            let (name, value) = match entry.split_once('=') {
                Some((name, value)) => (name, Entry::Set(value)),
                None => (entry, Entry::WithoutValue),
            };
            match name {
                VISIBLE_DEVICES => environment.visible_devices = value,
                DRIVER_CAPABILITIES => environment.driver_capabilities = value,
                CUDA_VERSION => environment.cuda_version = value,
                REQUIRE_CUDA => environment.require_cuda = value,
                _ => {}
            }
        }
        environment
    }

    /// The CUDA version of an image from before `NVIDIA_REQUIRE_CUDA`.
    fn legacy_image(&self) -> Option<&'a str> {
        let filled = |entry| match entry {
            Entry::Set(value) if !value.is_empty() => Some(value),
            _ => None,
        };
        match filled(self.require_cuda) {
            Some(_) => None,
            None => filled(self.cuda_version),
        }
    }
}

impl Request {
    /// As [`Self::of`], for a place where only the environment is at hand.
    #[cfg(test)]
    fn of_env(entries: &[&str]) -> Result<Option<Self>> {
        Self::of_environment(&Environment::of(entries.iter().copied()))
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A value of the image's may be as long as it likes; a message is one line.
fn shortened(text: &str) -> Cow<'_, str> {
    const LONGEST: usize = 120;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default())),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn listed(value: &str) -> Vec<Selector> {
        match Selection::parse(value) {
            Some(Selection::Listed(selectors)) => selectors,
            other => panic!("{value}: {other:?}"),
        }
    }

    #[test]
    fn words() {
        for nothing in ["", ",", " , ", "void", "0,void", "all, void "] {
            assert_eq!(Selection::parse(nothing), None, "{nothing:?}");
        }
        for all in ["all", "0,all", "all,none", " all ,"] {
            assert_eq!(Selection::parse(all), Some(Selection::All), "{all:?}");
        }
        for driver in ["none", "0,none", "none,all"] {
            assert_eq!(Selection::parse(driver), Some(Selection::DriverOnly), "{driver:?}");
        }
    }

    #[test]
    fn items() {
        let text = |text: &str| text.to_owned();
        assert_eq!(listed(" 0 ,\t1\n,"), [Selector::Index(text("0")), Selector::Index(text("1"))]);
        assert_eq!(listed("gpu-A0"), [Selector::Uuid(text("gpu-A0"))]);
        let bus = BusId::parse("0000:0a:00.0").unwrap();
        assert_eq!(listed("00000000:0A:00.0"), [Selector::BusId(bus)]);
        assert_eq!(listed("0:1"), [Selector::Mig(text("0:1"))]);
        assert_eq!(listed("MIG-GPU-a/1/0"), [Selector::Mig(text("MIG-GPU-a/1/0"))]);
        assert_eq!(listed("nvidia.com/gpu=0"), [Selector::Qualified(text("nvidia.com/gpu=0"))]);
        for unknown in ["-1", "+1", "foo", "ALL", "VOID", "0=1", "/dev/nvidia0", "/=", "é0-x"] {
            assert_eq!(listed(unknown), [Selector::Unknown(text(unknown))]);
        }
    }

    #[test]
    fn the_last_entry_counts() {
        let request = Request::of_env(&["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=void"]);
        assert_eq!(request.unwrap(), None);
        let error = Request::of_env(&["NVIDIA_VISIBLE_DEVICES"]).unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest);
    }

    #[test]
    fn an_image_from_before_the_variable_asks_for_all() {
        let asks = |env: &[&str]| Request::of_env(env).unwrap().map(|request| request.gpus);
        assert_eq!(asks(&["CUDA_VERSION=8"]), Some(Selection::All));
        assert_eq!(asks(&["CUDA_VERSION=8", "NVIDIA_REQUIRE_CUDA="]), Some(Selection::All));
        assert_eq!(asks(&["CUDA_VERSION=8", "NVIDIA_REQUIRE_CUDA=cuda>=8"]), None);
        assert_eq!(asks(&["CUDA_VERSION=8", "NVIDIA_VISIBLE_DEVICES="]), None);
        assert_eq!(asks(&["CUDA_VERSION="]), None);
    }

    #[test]
    fn the_cheap_question_is_answered_from_bytes() {
        let all = r#"{"process":{"env":["A=\"","NVIDIA_VISIBLE_DEVICES=all"]},"x":[1]}"#;
        assert!(asks(all.as_bytes()).unwrap());
        assert!(asks(br#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES"]}}"#).unwrap());
        for nothing in ["{}", r#"{"process":null}"#, r#"{"process":{"env":null}}"#] {
            assert!(!asks(nothing.as_bytes()).unwrap(), "{nothing}");
        }
        assert!(asks(b"{\n]").unwrap_err().to_string().contains("line 2 column 1"));
    }

    #[test]
    fn the_pause_container_never_asks() {
        for key in CONTAINER_TYPE {
            let json = format!(
                r#"{{"annotations":{{"{key}":"sandbox","n":null}},
                    "process":{{"env":["NVIDIA_VISIBLE_DEVICES=all"]}}}}"#
            );
            assert!(!asks(json.as_bytes()).unwrap());
            let spec = Spec::parse(json.as_bytes(), Path::new("config.json")).unwrap();
            assert_eq!(Request::of(&spec).unwrap(), None);
        }
    }

    #[test]
    fn a_value_that_no_program_could_be_given_is_refused() {
        let list = |bytes: usize| format!("NVIDIA_VISIBLE_DEVICES={}", "0,".repeat(bytes / 2));
        let request = Request::of_env(&[&list(LONGEST_VALUE)]).unwrap().unwrap();
        assert!(matches!(request.gpus, Selection::Listed(list) if list.len() == LONGEST_VALUE / 2));
        let error = Request::of_env(&[&list(10 << 20)]).unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest);
        assert!(error.to_string().contains("10485760 bytes long"), "{error}");
    }

    #[test]
    fn a_long_value_is_shortened_in_messages() {
        let request = Request::of_env(&[&format!("NVIDIA_VISIBLE_DEVICES={}", "é".repeat(500))]);
        assert!(request.unwrap().unwrap().source.to_string().chars().count() < 160);
    }

    proptest! {
        #[test]
        fn no_value_makes_parsing_panic(value in "\\PC{0,40}", list in "[0-9a-fGPUMI:.,/= -]{0,40}") {
            let _ = Selection::parse(&value);
            let _ = Selection::parse(&list);
        }

        #[test]
        fn both_questions_have_one_answer(value in "\\PC{0,20}|(all|none|void|0|,| ){0,5}") {
            let entry = format!("NVIDIA_VISIBLE_DEVICES={value}");
            let json = serde_json::json!({ "process": { "env": [entry] } }).to_string();
            let spec = Spec::parse(json.as_bytes(), Path::new("config.json")).unwrap();
            prop_assert_eq!(asks(json.as_bytes()).unwrap(), Request::of(&spec).unwrap().is_some());
        }
    }
}
