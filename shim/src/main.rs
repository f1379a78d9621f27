//! The shim's program; see the library for everything it does.

use std::process::ExitCode;

fn main() -> ExitCode {
    containerd_shim_nvidia::main()
}
