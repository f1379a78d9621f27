//! What a container asks for: typed text (environment, mounts, annotations) → meant.
//!
//! By which means it asks is told apart here; which of them count is for the
//! [policy](crate::policy) to say, whether what is asked exists for the plan. Whether anything is
//! asked at all is a cheap question of its own ([`asks`]), put to every container of the node.

mod annotations;
mod capabilities;
mod environment;
mod imex;
mod mounts;
mod probe;
mod selection;

use std::borrow::Cow;
use std::fmt;

pub(crate) use annotations::Annotations;
pub use capabilities::AskedCapabilities;
pub(crate) use environment::Environment;
pub use environment::{DISABLE_REQUIRE, DRIVER_CAPABILITIES, VISIBLE_DEVICES};
pub use imex::{ImexChannels, ImexRequest};
pub(crate) use mounts::MountList;
pub use probe::asks;
pub use selection::{Selection, Selector};

/// Annotations by which containerd and CRI-O mark the pause container of a pod.
const CONTAINER_TYPE: [&str; 2] =
    ["io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"];

/// What was asked, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub gpus: Selection,
    pub source: Source,
    pub capabilities: AskedCapabilities,
    /// All of them must be met.
    pub requirements: Vec<Requirement>,
    pub imex: Option<ImexRequest>,
    /// Why it counts, in words; the [policy](crate::policy) says so.
    pub trust: &'static str,
}

/// What an image needs of the driver and the GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// Which says so: `NVIDIA_REQUIRE_CUDA`.
    pub variable: String,
    /// `cuda>=12.2 brand=tesla,driver>=470`
    pub expression: String,
}

/// By what a container asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Environment variables and their values.
    Variables(Vec<(String, String)>),
    /// An image from before `NVIDIA_VISIBLE_DEVICES`, known by its `CUDA_VERSION`, means all.
    LegacyImage(String),
    /// Names of places below `/var/run/nvidia-container-devices`.
    VolumeMounts(Vec<String>),
    /// Annotations with CDI names, and their values.
    Annotations(Vec<(String, String)>),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variables(variables) => f.write_str(&assignments(variables)),
            Self::Annotations(annotations) => write!(f, "annotation {}", assignments(annotations)),
            Self::LegacyImage(version) => {
                let name = environment::CUDA_VERSION;
                write!(f, "{name}={} without {VISIBLE_DEVICES}", shortened(version))
            }
            Self::VolumeMounts(names) => {
                write!(
                    f,
                    "volume mounts of {} below {}",
                    shortened(&beginning(names).join(",")),
                    mounts::DIRECTORY
                )
            }
        }
    }
}

fn assignments(list: &[(String, String)]) -> String {
    const MOST: usize = 4;
    let shown =
        |(name, value): &(String, String)| format!("{}={}", shortened(name), shortened(value));
    let mut text = list.iter().take(MOST).map(shown).collect::<Vec<_>>().join(" and ");
    if let Some(more) = list.len().checked_sub(MOST).filter(|more| *more > 0) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

impl Annotations<'_> {
    /// A request for the devices named, with all else that the environment says; `None` if they
    /// name none.
    pub(crate) fn request(&self, environment: &Environment<'_>) -> Option<Request> {
        let gpus = Selection::of_names(&self.names)?;
        let entries =
            self.entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Some(environment.asking(gpus, Source::Annotations(entries.collect())))
    }
}

impl MountList {
    /// A request for its GPUs, with all else that the environment says; `None` if it has none.
    pub(crate) fn request(&self, environment: &Environment<'_>) -> Option<Request> {
        let names: Vec<&str> = self.devices.iter().map(String::as_str).collect();
        let gpus = Selection::of(&names)?;
        Some(environment.asking(gpus, Source::VolumeMounts(self.devices.clone())))
    }

    /// A request for its IMEX channels.
    ///
    /// # Errors
    /// [`Code::ImexChannel`](crate::Code::ImexChannel): a place names no channel.
    pub(crate) fn imex(&self) -> crate::Result<Option<ImexRequest>> {
        let names = self.imex_channels.iter().map(String::as_str);
        let places = self.imex_channels.iter().map(|channel| format!("imex/{channel}"));
        let source = Source::VolumeMounts(places.collect()).to_string();
        ImexRequest::of(names, source)
    }
}

#[cfg(test)]
impl Request {
    /// What counts by the default settings.
    pub(crate) fn of(spec: &crate::Spec) -> crate::Result<Option<Self>> {
        let config = crate::Config::default();
        Ok(crate::policy::judge(spec, &config, crate::Handler::Nvidia)?.request)
    }
}

/// Whether these annotations are those of a pod's pause container, which never asks.
pub(crate) fn is_sandbox<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> bool {
    CONTAINER_TYPE.iter().any(|key| annotation(key) == Some("sandbox"))
}

/// More names than a message has room for are not even joined.
fn beginning(names: &[String]) -> &[String] {
    names.get(..LONGEST).unwrap_or(names)
}

/// Characters of a value that a message has.
const LONGEST: usize = 120;

/// A value of the image's may be as long as it likes; a message is one line.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default())),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_shortened_in_messages() {
        let long = "é".repeat(500);
        let variables = Source::Variables(vec![("A".to_owned(), long.clone())]);
        for source in [variables, Source::VolumeMounts(vec![long])] {
            assert!(source.to_string().chars().count() < 200, "{source}");
        }
        let many = (0..5000).map(|number| (format!("k/{number}"), "a/b=c".to_owned()));
        let many = Source::Annotations(many.collect()).to_string();
        assert!(many.ends_with("k/3=a/b=c and 4996 more"), "{many}");
    }
}
