//! A CDI spec as it is written, in the field order of the CDI specification.
//!
//! Strict, as in the engines: a field that is not here makes a file none. What an absent field
//! means is said at each; an empty text or list is as good as none.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

pub(super) type Annotations = BTreeMap<String, String>;

/// A spec file: devices of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The version of the CDI specification that the file is written in: `0.6.0`.
    #[serde(rename = "cdiVersion", default)]
    pub version: String,
    /// `vendor/class`
    #[serde(default)]
    pub kind: String,
    /// For whoever reads the file; they change no container. Since 0.6.0.
    #[serde(default, deserialize_with = "or_null", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "or_null")]
    pub devices: Vec<Device>,
    /// For every container that gets any of the devices.
    #[serde(
        rename = "containerEdits",
        default,
        deserialize_with = "or_null",
        skip_serializing_if = "ContainerEdits::is_empty"
    )]
    pub edits: ContainerEdits,
}

/// A device that can be asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Within its kind.
    #[serde(default)]
    pub name: String,
    /// Since 0.6.0.
    #[serde(default, deserialize_with = "or_null", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Never empty.
    #[serde(rename = "containerEdits", default, deserialize_with = "or_null")]
    pub edits: ContainerEdits,
}

/// What is changed in the OCI spec of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ContainerEdits {
    /// `NAME=value`
    #[serde(default, deserialize_with = "or_null", skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    #[serde(default, deserialize_with = "or_null", skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    /// Since 1.1.0.
    #[serde(default, deserialize_with = "or_null", skip_serializing_if = "Vec::is_empty")]
    pub net_devices: Vec<NetDevice>,
    #[serde(default, deserialize_with = "or_null", skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    #[serde(default, deserialize_with = "or_null", skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Since 0.7.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intel_rdt: Option<IntelRdt>,
    /// Groups that the process joins; 0 is none. Since 0.7.0. The example of the specification
    /// spells it in the other way.
    #[serde(
        alias = "additionalGIDs",
        default,
        deserialize_with = "or_null",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub additional_gids: Vec<u32>,
}

/// A device node. What is absent is filled from the node of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct DeviceNode {
    /// In the container.
    #[serde(default)]
    pub path: String,
    /// On the host; absent: as in the container. Since 0.5.0.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host_path: String,
    /// `c`, `b`, `u` or `p`
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// 0 is absent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub major: i64,
    /// Counts only beside a major.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub minor: i64,
    /// Permission bits, in JSON as a decimal number: 438 is `0o666`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_mode: Option<u32>,
    /// What the device cgroup allows, of `rwm`; absent: all three, `none`: nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub permissions: String,
    /// Absent: the user of the container's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Absent: the group of the container's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
}

/// A network interface of the host that moves into the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NetDevice {
    #[serde(default)]
    pub host_interface_name: String,
    /// In the container.
    #[serde(default)]
    pub name: String,
}

/// A program that the runtime runs at some stage of the container's life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Hook {
    /// The stage: `createContainer`.
    #[serde(default)]
    pub hook_name: String,
    #[serde(default)]
    pub path: String,
    /// With the program's own name in front.
    #[serde(default, deserialize_with = "or_null", skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    #[serde(default, deserialize_with = "or_null", skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
}

/// A mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Mount {
    /// The source.
    #[serde(default)]
    pub host_path: String,
    /// The destination.
    #[serde(default)]
    pub container_path: String,
    #[serde(default, deserialize_with = "or_null", skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Of the file system. Since 0.4.0.
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
}

/// Resource control of Intel's processors (`resctrl`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct IntelRdt {
    #[serde(rename = "closID", default, skip_serializing_if = "String::is_empty")]
    pub clos_id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub l3_cache_schema: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mem_bw_schema: String,
    /// Since 1.1.0.
    #[serde(default, deserialize_with = "or_null", skip_serializing_if = "Vec::is_empty")]
    pub schemata: Vec<String>,
    /// Since 1.1.0.
    #[serde(default, skip_serializing_if = "is_false")]
    pub enable_monitoring: bool,
    /// Before 1.1.0.
    #[serde(rename = "enableCMT", default, skip_serializing_if = "is_false")]
    pub enable_cmt: bool,
    /// Before 1.1.0.
    #[serde(rename = "enableMBM", default, skip_serializing_if = "is_false")]
    pub enable_mbm: bool,
}

impl ContainerEdits {
    /// Whether they change nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Spec {
    /// The device of that name.
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }
}

/// `null` is what Go's writers make of a list without elements.
fn or_null<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

// What serde asks of a condition is a function of a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !value
}
