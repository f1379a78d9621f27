//! The child that plans and applies one Create.

use std::process::ExitCode;

use crate::program::Program;

/// The log and the panic hook are installed, the working directory is the caller's; everything
/// else comes on descriptors.
pub(crate) fn run(_program: &Program) -> ExitCode {
    todo!()
}
