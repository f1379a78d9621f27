//! Entries of an OCI spec, as they are written.

use oci_spec::runtime::{
    HookBuilder, LinuxDeviceBuilder, LinuxDeviceCgroupBuilder, LinuxDeviceType, MountBuilder,
};
use serde::Serialize;
use serde_json::Value;

use super::{DeviceKind, DeviceNode, Mount};
use crate::cdi::Hook;
use crate::{Code, Error, Result};

impl DeviceNode {
    pub(super) fn entry(&self) -> Result<Value> {
        let mut device = LinuxDeviceBuilder::default()
            .path(&self.path)
            .typ(self.kind.typ())
            .major(i64::from(self.major))
            .minor(i64::from(self.minor));
        if let Some(mode) = self.mode {
            device = device.file_mode(mode);
        }
        // Root is what an absent owner means.
        if self.uid != 0 {
            device = device.uid(self.uid);
        }
        if self.gid != 0 {
            device = device.gid(self.gid);
        }
        built(device.build())
    }

    /// A device has one, a FIFO none.
    pub(super) fn rule(&self) -> Result<Option<Value>> {
        if !matches!(self.kind, DeviceKind::Character | DeviceKind::Block) {
            return Ok(None);
        }
        let rule = LinuxDeviceCgroupBuilder::default()
            .allow(true)
            .typ(self.kind.typ())
            .major(i64::from(self.major))
            .minor(i64::from(self.minor))
            .access(&self.access);
        built(rule.build()).map(Some)
    }

    /// No option that needs a second mount call: in a user namespace that one fails where the
    /// host's `/dev` has flags of its own.
    pub(super) fn mount(&self) -> Mount {
        Mount {
            source: self.host_path.clone(),
            destination: self.path.clone(),
            kind: "bind".to_owned(),
            options: ["bind", "rprivate"].map(str::to_owned).into(),
        }
    }
}

impl DeviceKind {
    fn typ(self) -> LinuxDeviceType {
        match self {
            Self::Character => LinuxDeviceType::C,
            Self::Unbuffered => LinuxDeviceType::U,
            Self::Block => LinuxDeviceType::B,
            Self::Fifo => LinuxDeviceType::P,
        }
    }
}

impl Mount {
    pub(super) fn entry(&self) -> Result<Value> {
        let mut mount = MountBuilder::default().destination(&self.destination).source(&self.source);
        if !self.kind.is_empty() {
            mount = mount.typ(&self.kind);
        }
        if !self.options.is_empty() {
            mount = mount.options(self.options.clone());
        }
        built(mount.build())
    }
}

pub(super) fn hook(hook: &Hook) -> Result<Value> {
    let mut entry = HookBuilder::default().path(&hook.path);
    if !hook.args.is_empty() {
        entry = entry.args(hook.args.clone());
    }
    if !hook.env.is_empty() {
        entry = entry.env(hook.env.clone());
    }
    if let Some(timeout) = hook.timeout {
        entry = entry.timeout(timeout);
    }
    built(entry.build())
}

fn built<T: Serialize>(entry: Result<T, oci_spec::OciSpecError>) -> Result<Value> {
    json(&entry.map_err(|error| Error::caused(Code::SpecUnreadable, UNWRITABLE, error))?)
}

pub(super) fn json<T: Serialize>(entry: &T) -> Result<Value> {
    serde_json::to_value(entry)
        .map_err(|error| Error::caused(Code::SpecUnreadable, UNWRITABLE, error))
}

const UNWRITABLE: &str = "an entry cannot be written into the OCI spec";
