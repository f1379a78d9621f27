//! `nvidia-oci`: what should the container get?
//!
//! Reads the host, the request and the OCI spec, decides, and edits the spec. It opens no socket,
//! starts no process and writes nothing but the bundle's `config.json`; changing anything else is
//! the work of `nvidia-hook`, carrying requests that of `containerd-shim-nvidia`.
//!
//! The data flows one way: [`Request`] (what was asked) → [`policy`] (what counts of it) →
//! [`Inventory`] (what exists) → [`Plan`] (what is given, and why) → [`Edits::apply`] (the edited [`Spec`]).

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod bundle;
mod capability;
pub mod cdi;
mod config;
mod driver;
mod edit;
pub mod elf;
mod error;
mod gpu;
mod handler;
mod host;
mod image;
pub mod ldcache;
mod plan;
pub mod policy;
pub mod report;
pub mod request;
mod requirement;
mod spec;
mod trust;

pub use bundle::Bundle;
pub use capability::Capabilities;
pub use config::{
    Config, ConfigSource, DisabledHooks, DriverCapabilities, KEYS as CONFIG_KEYS, Key, LibraryPath,
    LogLevel, MaskParams, Mode, NoDriver, NvcdiHook, OnDenied, Origin, Policy, Requirements,
    Setting, Settings, StaleSpec, Value as SettingValue,
};
pub use driver::{Driver, DriverFile, FileKind, Library};
pub use edit::{DeviceKind, DeviceNode, Edits, Mount};
pub use error::{Code, Error, Result};
pub use gpu::{BusId, ControlNode, Gpu, Inventory, NodeNumbers};
pub use handler::Handler;
pub use host::Host;
pub use image::{Image, Libc};
pub use plan::{
    CudaCompat, Fixups, GeneratedFile, Inquiry, LibraryEntry, Link, MissingNode, Need, Outcome,
    Plan, Standing, plan,
};
pub use report::Report;
pub use request::Request;
pub use spec::{IdMapping, Spec, SpecDevice, SpecMount, User};
