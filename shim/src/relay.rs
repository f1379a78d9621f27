//! The daemon between containerd and the inner shim.

use std::process::ExitCode;

use crate::args::Args;
use crate::inherit::Inheritance;
use crate::program::Program;

/// Serves the listener until the inner shim has ended, then removes the sockets. The process is set
/// up already: log and panic hook installed, working directory the bundle of the group's leader,
/// standard streams `/dev/null`, single thread. `Err(inner)` is the answer to every Create; then
/// ends when the last connection that carried a frame has closed (`start` connects and closes to
/// see whether somebody lives).
pub(crate) fn run(_program: &Program, _args: &Args, _inheritance: Inheritance) -> ExitCode {
    todo!()
}
