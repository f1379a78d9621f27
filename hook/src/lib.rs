//! `nvidia-hook`: what must change outside the bundle?
//!
//! Everything that changes something inside a root filesystem or on the host. It never decides
//! which devices a container gets: a [`nvidia_oci::Plan`] says that. The folder's name is that of
//! its second half, the OCI hook for CDI specs of others; most of the work here happens before
//! the container exists, without any hook.

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod by_hook;
mod command;
mod compat;
mod covers;
mod detached;
mod directory;
mod files;
mod folders;
pub mod host;
mod image;
mod layer;
mod ldcache;
mod libraries;
mod links;
mod modes;
mod modprobe;
mod mountpoints;
mod musl;
mod overlay;
mod params;
mod profile;
mod rootfs;
mod state;
mod target;
mod unlocked;
mod upper;
mod wake;
mod way;
mod work;

pub use by_hook::{ByHook, PROGRAM};
pub use command::{Command, Invocation, UsageError};
pub use image::facts;
pub use layer::{Look, Prepared};
pub use rootfs::Rootfs;
pub use state::container_root;
pub use way::RootfsMount;
pub use work::Work;
