//! Versions of the CDI specification, and what a spec must have in order to need one.

use std::fmt;

use super::{ContainerEdits, Spec};

/// A released version that a spec may be written in. Those before 0.3.0 were never tagged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    V0_3_0,
    V0_4_0,
    V0_5_0,
    V0_6_0,
    V0_7_0,
    V0_8_0,
    V1_0_0,
    V1_1_0,
}

impl Version {
    /// From the oldest to the newest.
    pub const ALL: [Self; 8] = [
        Self::V0_3_0,
        Self::V0_4_0,
        Self::V0_5_0,
        Self::V0_6_0,
        Self::V0_7_0,
        Self::V0_8_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];
    pub const LATEST: Self = Self::V1_1_0;

    /// As a spec names it: `0.6.0`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_3_0 => "0.3.0",
            Self::V0_4_0 => "0.4.0",
            Self::V0_5_0 => "0.5.0",
            Self::V0_6_0 => "0.6.0",
            Self::V0_7_0 => "0.7.0",
            Self::V0_8_0 => "0.8.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// The version that `cdiVersion` names, with or without a leading `v`; `None` if it is none of
    /// [`Self::ALL`].
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Spec {
    /// The lowest version that knows everything that the spec has.
    pub fn lowest_version(&self) -> Version {
        self.needed().0
    }

    /// [`Self::lowest_version`], and what it is needed for.
    pub(super) fn needed(&self) -> (Version, &'static str) {
        let edits =
            || self.devices.iter().map(|device| &device.edits).chain(std::iter::once(&self.edits));
        let any = |has: fn(&ContainerEdits) -> bool| edits().any(has);
        let annotated = |annotations: &super::model::Annotations| !annotations.is_empty();
        let class_has_dot = self.kind.split_once('/').is_some_and(|(_, class)| class.contains('.'));
        let features = [
            (Version::V1_1_0, "netDevices", any(|edits| !edits.net_devices.is_empty())),
            (
                Version::V1_1_0,
                "schemata or enableMonitoring of intelRdt",
                any(|edits| {
                    let rdt = edits.intel_rdt.as_ref();
                    rdt.is_some_and(|rdt| !rdt.schemata.is_empty() || rdt.enable_monitoring)
                }),
            ),
            (Version::V0_7_0, "intelRdt", any(|edits| edits.intel_rdt.is_some())),
            (Version::V0_7_0, "additionalGids", any(|edits| !edits.additional_gids.is_empty())),
            (
                Version::V0_6_0,
                "annotations",
                annotated(&self.annotations)
                    || self.devices.iter().any(|device| annotated(&device.annotations)),
            ),
            (Version::V0_6_0, "a dot in the class of its kind", class_has_dot),
            (
                Version::V0_5_0,
                "a device name that begins with a digit",
                self.devices
                    .iter()
                    .any(|device| device.name.starts_with(|c: char| c.is_ascii_digit())),
            ),
            (
                Version::V0_5_0,
                "hostPath of a device node",
                any(|edits| edits.device_nodes.iter().any(|node| !node.host_path.is_empty())),
            ),
            (
                Version::V0_4_0,
                "type of a mount",
                any(|edits| edits.mounts.iter().any(|mount| !mount.kind.is_empty())),
            ),
        ];
        let used = features.into_iter().find(|(.., is_used)| *is_used);
        used.map_or((Version::V0_3_0, ""), |(version, feature, _)| (version, feature))
    }

    /// A field that a later version than the last one that has it dropped.
    pub(super) fn dropped(&self) -> Option<(Version, &'static str)> {
        let edits = self.devices.iter().map(|device| &device.edits).chain([&self.edits]);
        let mut rdt = edits.filter_map(|edits| edits.intel_rdt.as_ref());
        rdt.any(|rdt| rdt.enable_cmt || rdt.enable_mbm)
            .then_some((Version::V1_1_0, "enableCMT or enableMBM of intelRdt"))
    }
}
