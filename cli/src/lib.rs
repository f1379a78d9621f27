//! `nvidia-shim`: what a person runs, one module a command.
//!
//! Nothing here is needed by the shim itself: a command asks `nvidia-oci` what a container would
//! get, or prepares files for a person. It is the only room that prints.

#![forbid(unsafe_code)]

pub mod cdi;
mod config;
pub mod explain;
pub mod simulate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Looks at, and prepares, what containerd-shim-nvidia works with.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Cdi(cdi::Args),
    Config(config::Args),
    Explain(explain::Args),
    Simulate(simulate::Args),
}

/// Runs the command; what went wrong goes to standard error.
///
/// Exit code: 0 done, 1 failed, 2 wrong arguments; `explain` also has 3, a refusal.
pub fn run(cli: Cli) -> ExitCode {
    let result = match cli.command {
        Command::Cdi(args) => cdi::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Simulate(args) => simulate::run(&args),
    };
    result.unwrap_or_else(|error| {
        complain(&error);
        ExitCode::FAILURE
    })
}

#[expect(clippy::print_stderr, reason = "this room talks to a person")]
fn complain(error: &anyhow::Error) {
    eprintln!("nvidia-shim: {error:#}");
}

/// `KEY=VALUE` of `--set`.
fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a setting is KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}
