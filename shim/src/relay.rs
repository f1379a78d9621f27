//! The daemon between containerd and the inner shim.

use std::os::unix::net::UnixListener;
use std::process::ExitCode;

use nvidia_oci::Result;

use crate::args::Args;
use crate::inner::Inner;
use crate::program::Program;
use crate::socket::Served;

/// Serves `listener` until the inner shim has ended, then removes the sockets. The process is set
/// up already: log and panic hook installed, working directory the bundle of the group's leader,
/// standard streams `/dev/null`, single thread. `Err(inner)` is the answer to every Create; then
/// ends when the last connection that carried a frame has closed.
pub(crate) fn run(
    _program: &Program,
    _args: &Args,
    _listener: UnixListener,
    _sockets: Served,
    _inner: Result<Inner>,
) -> ExitCode {
    todo!()
}
