//! `nvidia-shim`: what a person runs.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    nvidia_shim::run(nvidia_shim::Cli::parse())
}
