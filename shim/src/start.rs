//! `start`: the address of the relay that serves a container, an existing one or a new one.

use std::io;
use std::os::unix::net::UnixListener;

use crate::args::Args;
use crate::inner::Inner;
use crate::socket::Served;

/// What a relay got from the `start` that made it: its listener, the files of its sockets and the
/// inner shim, started.
pub(crate) fn inherit(
    _args: &Args,
) -> io::Result<(UnixListener, Served, nvidia_oci::Result<Inner>)> {
    todo!()
}
