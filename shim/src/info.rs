//! `-info` and `-v`: what the stock shim says, of which we are the front.

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Output, Stdio};

use anyhow::{Context, Result};
use containerd_shim_protos::protobuf::Message;
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use nvidia_oci::ConfigSource;

use crate::program::Program;
use crate::{inner, options};

/// As much as the stock shim reads.
const INPUT_MAX: u64 = 10 << 20;

/// Has the stock shim answer `-info`, with the options on standard input in its own form.
///
/// # Errors
/// No stock shim, or options that cannot be read.
pub(crate) fn info() -> Result<ExitCode> {
    let mut input = Vec::new();
    io::stdin().take(INPUT_MAX).read_to_end(&mut input).context("standard input")?;
    let any = Any::parse_from_bytes(&input).context("options on standard input")?;
    let options = options::translate(Some(&any), None);
    if let Some(broken) = options.broken {
        return Err(broken.into());
    }
    if let Some(translated) = options.inner {
        input = translated.write_to_bytes()?;
    }
    let mut child = Command::new(stock(options.source)?)
        .arg("-info")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting the stock shim")?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(&input) {
            // One that does not know -info reads nothing.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
            _ => {}
        }
    }
    pass_on(&child.wait_with_output()?)
}

/// Our version in the stock shim's form, then the stock shim's.
///
/// # Errors
/// No stock shim.
pub(crate) fn version(program: &Program) -> Result<ExitCode> {
    let own = format!(
        "{}:\n  Version:  {}\n  Handler:  {}\n\n",
        program.name(),
        env!("CARGO_PKG_VERSION"),
        program.handler()
    );
    io::stdout().write_all(own.as_bytes())?;
    let stock = stock(ConfigSource::default())?;
    pass_on(&Command::new(stock).arg("-v").output().context("starting the stock shim")?)
}

/// The stock shim. containerd is our parent here, and does not name itself.
fn stock(source: ConfigSource) -> Result<PathBuf> {
    let parent = rustix::process::getppid().map_or(1, |pid| pid.as_raw_nonzero().get());
    let parent = fs::read_link(format!("/proc/{parent}/exe")).unwrap_or_default();
    // A person's shell has its own neighbours.
    let is_containerd = parent.file_name().is_some_and(|name| name == "containerd");
    let containerd = if is_containerd { parent } else { PathBuf::new() };
    let (configured, path) = (inner::configured(source), env::var_os("PATH"));
    Ok(inner::find(configured.as_deref(), &containerd, path.as_deref())?)
}

fn pass_on(output: &Output) -> Result<ExitCode> {
    io::stdout().write_all(&output.stdout)?;
    io::stderr().write_all(&output.stderr)?;
    let status = output.status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(status.unwrap_or(1)))
}
