//! The record of a decision: what was asked, what was given, and the reason beside each item.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::policy::Judgement;
use crate::{Handler, error};

/// The decision record. As text it is for a person, as JSON for a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// `nvidia` or `nvidia-cdi`.
    pub handler: String,
    /// What was asked, and by what; `None` if nothing.
    pub request: Option<String>,
    /// Whose word that is, and why it counts or does not.
    pub trust: Option<String>,
    /// What the image needs, and there is: `NVIDIA_REQUIRE_CUDA=cuda>=12.2`.
    pub requirements: Vec<String>,
    pub driver: Option<DriverFound>,
    /// The driver capabilities that it may use: `compute,utility`.
    pub capabilities: Option<String>,
    pub given: Vec<Item>,
    /// What exists and was not given, or is optional and missing.
    pub withheld: Vec<Item>,
    pub warnings: Vec<String>,
}

/// The driver that the container gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DriverFound {
    pub version: String,
    /// As the host names it.
    pub root: PathBuf,
}

/// A thing, and why the container has it or has it not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Item {
    pub kind: ItemKind,
    /// In the container; on the host for what was withheld.
    pub name: String,
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ItemKind {
    Device,
    Library,
    File,
    Link,
    Environment,
    Group,
    Interface,
    Hook,
    ResourceControl,
}

impl Item {
    pub(crate) fn new(kind: ItemKind, name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { kind, name: name.into(), reason: reason.into() }
    }
}

impl ItemKind {
    /// In the order in which a person wants to know.
    const ALL: [Self; 9] = [
        Self::Device,
        Self::Interface,
        Self::Group,
        Self::ResourceControl,
        Self::Environment,
        Self::Library,
        Self::File,
        Self::Link,
        Self::Hook,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Library => "library",
            Self::File => "file",
            Self::Link => "link",
            Self::Environment => "variable",
            Self::Group => "group",
            Self::Interface => "net",
            Self::Hook => "hook",
            Self::ResourceControl => "resctrl",
        }
    }
}

impl Report {
    /// A report that says nothing yet.
    pub fn of(handler: Handler) -> Self {
        Self { handler: handler.name().to_owned(), ..Self::default() }
    }

    /// A report of what was asked for and whether that counts.
    pub fn of_judgement(handler: Handler, judgement: &Judgement) -> Self {
        let mut report = Self { warnings: judgement.warnings.clone(), ..Self::of(handler) };
        match (&judgement.request, &judgement.denied) {
            (Some(request), _) => {
                report.request = Some(request.source.to_string());
                report.trust = Some(format!("yes: {}", request.trust));
            }
            (None, Some(denied)) => {
                report.request = Some(denied.source.clone());
                report.trust = Some(format!("no: {}", denied.rule));
            }
            (None, None) => {}
        }
        report
    }

    /// The decision in one line, for a log.
    pub fn line(&self) -> String {
        let named = |kind| {
            let items = self.given.iter().filter(move |item| item.kind == kind);
            items.map(|item| visible(&item.name)).collect::<Vec<_>>()
        };
        let request = visible(self.request.as_deref().unwrap_or("nothing"));
        let mut line = format!(
            "{request} is given {}, {} libraries, {} files",
            named(ItemKind::Device).join(" "),
            named(ItemKind::Library).len(),
            named(ItemKind::File).len(),
        );
        if let Some(driver) = &self.driver {
            line.push_str(&format!("; driver {} in {}", driver.version, driver.root.display()));
        }
        line
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = self.request.as_deref().unwrap_or("nothing");
        writeln!(f, "asked     {}", visible(request))?;
        if let Some(trust) = &self.trust {
            writeln!(f, "trust     {trust}")?;
        }
        writeln!(f, "handler   {}", self.handler)?;
        if let Some(driver) = &self.driver {
            writeln!(f, "driver    {} in {}", driver.version, driver.root.display())?;
        }
        if let Some(capabilities) = &self.capabilities {
            writeln!(f, "may use   {capabilities}")?;
        }
        for requirement in &self.requirements {
            writeln!(f, "met       {}", visible(requirement))?;
        }
        section(f, "given", &self.given)?;
        section(f, "withheld", &self.withheld)?;
        for warning in &self.warnings {
            writeln!(f, "warning   {}", visible(warning))?;
        }
        Ok(())
    }
}

/// One kind after the other, as wide as its longest name.
fn section(f: &mut fmt::Formatter<'_>, title: &str, items: &[Item]) -> fmt::Result {
    let mut title = title;
    for kind in ItemKind::ALL {
        let of_kind = || items.iter().filter(|item| item.kind == kind);
        let width = of_kind().map(|item| item.name.chars().count()).max().unwrap_or_default();
        for item in of_kind() {
            let (word, name, reason) = (kind.word(), visible(&item.name), visible(&item.reason));
            writeln!(f, "{title:<9} {word:<8}  {name:<width$}  {reason}")?;
            title = "";
        }
    }
    Ok(())
}

fn visible(text: &str) -> String {
    text.chars().map(error::visible).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_request_devices_and_driver() {
        let report = Report {
            request: Some("NVIDIA_VISIBLE_DEVICES=0".to_owned()),
            driver: Some(DriverFound { version: "550.1".to_owned(), root: "/".into() }),
            given: vec![
                Item::new(ItemKind::Device, "/dev/nvidia0", "asked for"),
                Item::new(ItemKind::Device, "/dev/nvidiactl", "control"),
                Item::new(ItemKind::Library, "/usr/lib/libcuda.so.1", "compute"),
            ],
            ..Report::default()
        };
        assert_eq!(
            report.line(),
            "NVIDIA_VISIBLE_DEVICES=0 is given /dev/nvidia0 /dev/nvidiactl, 1 libraries, 0 files; \
             driver 550.1 in /"
        );
    }

    #[test]
    fn the_text_is_a_table() {
        let report = Report {
            handler: "nvidia".to_owned(),
            request: Some("NVIDIA_VISIBLE_DEVICES=0\n".to_owned()),
            trust: Some("yes: policy is open".to_owned()),
            requirements: vec!["NVIDIA_REQUIRE_CUDA=cuda>=12".to_owned()],
            driver: Some(DriverFound { version: "550.1".to_owned(), root: "/".into() }),
            given: vec![
                Item::new(ItemKind::Link, "/a", "b"),
                Item::new(ItemKind::Device, "/dev/nvidia0", "GPU 0"),
                Item::new(ItemKind::Device, "/dev/x", "GPU 1"),
            ],
            capabilities: Some("compute".to_owned()),
            withheld: Vec::new(),
            warnings: vec!["look".to_owned()],
        };
        assert_eq!(
            report.to_string(),
            "asked     NVIDIA_VISIBLE_DEVICES=0 \n\
             trust     yes: policy is open\n\
             handler   nvidia\n\
             driver    550.1 in /\n\
             may use   compute\n\
             met       NVIDIA_REQUIRE_CUDA=cuda>=12\n\
             given     device    /dev/nvidia0  GPU 0\n\
             \x20         device    /dev/x        GPU 1\n\
             \x20         link      /a  b\n\
             warning   look\n"
        );
    }
}
