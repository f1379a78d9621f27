//! `containerd-shim-nvidia`: lets containerd and the stock shim speak, and slips the edit in.
//!
//! It carries and decides nothing: what a container gets is `nvidia-oci`'s to say, what changes
//! on disk `nvidia-hook`'s to do.
//!
//! One program, called by containerd as `start`, `delete` and `-info`, and by itself as `relay`
//! (lives as long as its pod) and `worker` (lives for one Create). Called as
//! `nvidia-container-runtime` it is an OCI runtime in front of runc, with the same worker.

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod args;
mod create;
mod delete;
mod dialect;
mod executable;
mod frame;
mod front;
mod info;
mod inherit;
mod inner;
mod log;
mod options;
mod placement;
mod prepare;
mod process;
mod program;
mod record;
mod relay;
mod socket;
mod start;
mod worker;

pub use program::main;
