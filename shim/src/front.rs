//! The OCI-runtime front: `nvidia-container-runtime` and the names beside it, which k3s, RKE2 and
//! the GPU operator look for. The stock shim calls it in place of runc.
//!
//! Before `create` and `run` it does what the shim does at a Create; then, and at every other
//! command at once, it becomes the runtime behind it, with unchanged arguments and environment.
//! Here the root filesystem is mounted already, so that fix-ups are written into it.

use std::convert::Infallible;
use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use nvidia_oci::{Bundle, Code, Config, ConfigSource, Error};

use crate::prepare::{DEADLINE, asks, prepare};
use crate::program::Program;
use crate::worker::{Answer, Job, Worker};

mod command_line;
mod log_file;
mod report;
mod runtime;

use command_line::CommandLine;
use report::Reporter;

/// Answers only if there is no runtime to become, or a container is refused.
pub(crate) fn run(program: &Program, words: &[OsString]) -> ExitCode {
    let command_line = CommandLine::parse(words);
    let reporter = Reporter::of(&command_line);
    let Err(error) = carry_out(program, &command_line, words, &reporter);
    reporter.fatal(&error.to_string());
    ExitCode::FAILURE
}

fn carry_out(
    program: &Program,
    command_line: &CommandLine<'_>,
    words: &[OsString],
    reporter: &Reporter,
) -> Result<Infallible> {
    let source = source(program);
    // Whoever asks for a GPU hears of a broken file from the worker; it stops nobody else.
    let config = Config::load(&source).map(|(config, _)| config).unwrap_or_default();
    let runtime = runtime::find(&config.runtimes, env::var_os("PATH").as_deref())?;
    if command_line.asks_for_version() {
        let (name, version) = (program.name(), env!("CARGO_PKG_VERSION"));
        // The runtime that follows fails at a closed stream in its own way.
        let _ = writeln!(std::io::stdout(), "{name} version {version} (containerd-shim-nvidia)");
    }
    if command_line.creates() {
        reporter.install(program.name(), command_line.debug(), &config);
        create(program, command_line, source)?;
    }
    Err(runtime::become_it(&runtime, words).into())
}

/// Prepares the bundle of a container that asks for anything.
fn create(program: &Program, command_line: &CommandLine<'_>, source: ConfigSource) -> Result<()> {
    let bundle = std::path::absolute(command_line.bundle()?).context("the bundle's directory")?;
    if let Some(file) = command_line.spec_elsewhere() {
        return check_elsewhere(file, &source);
    }
    // Without a spec there is nothing to ask; the runtime says what is wrong.
    let spec = Bundle::read(&bundle).unwrap_or_default();
    if !asks(&spec, &source)? {
        return Ok(());
    }
    let job = Job {
        before_runc: true,
        id: command_line.id(),
        handler: program.handler().name().to_owned(),
        bundle,
        rootfs: Vec::new(),
        config: source.path,
        default_config: source.default_path,
        table: None,
        table_file: None,
        set: source.set,
    };
    // It is a verb of the shims only: all words of ours are the runtime's.
    let worker = Worker::new(|| Program::shim().again("worker"));
    match prepare(&worker, &job, &spec, DEADLINE)? {
        Answer::Refused { message } => bail!(message),
        Answer::Untouched { .. } | Answer::Edited { .. } => Ok(()),
    }
}

/// Refuses a spec that is not the bundle's own, which crun alone reads, if it asks for anything.
fn check_elsewhere(file: &Path, source: &ConfigSource) -> Result<()> {
    let Some(spec) = Bundle::read_elsewhere(file)? else {
        log::warn!("{} is no regular file: nobody looked whether it asks for GPUs", file.display());
        return Ok(());
    };
    if asks(&spec, source)? {
        let what = format!("{} asks for GPUs, and only config.json is prepared", file.display());
        bail!(Error::new(Code::SpecUnreadable, what));
    }
    Ok(())
}

/// The settings. The file that the environment names is trusted as one that an option of the
/// runtime names: only root's service manager and containerd set our environment.
fn source(program: &Program) -> ConfigSource {
    // NVIDIA's program of that name is the same with another mode.
    let mode = ("nvidia-container-runtime.mode".to_owned(), "legacy".to_owned());
    let is_legacy = program.name().ends_with(".legacy");
    let named = env::var_os("NVIDIA_CTK_CONFIG_FILE_PATH").filter(|file| !file.is_empty());
    ConfigSource {
        path: named.map(PathBuf::from),
        default_path: Some(Config::default_file(|name| env::var(name).ok())),
        set: if is_legacy { vec![mode] } else { Vec::new() },
        ..ConfigSource::default()
    }
}
