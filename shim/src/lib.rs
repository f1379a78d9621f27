//! `containerd-shim-nvidia`: lets containerd and the stock shim speak, and slips the edit in.
//!
//! It carries and decides nothing: what a container gets is `nvidia-oci`'s to say, what changes
//! on disk `nvidia-hook`'s to do.

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]
