//! `--watch`: a spec that is written again when what it describes changes.
//!
//! Nothing is written that is there already. While there is nothing to describe the file stays as
//! it is, and the next change is waited for.

mod changes;

use std::path::Path;

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nvidia_oci::Host;
use nvidia_oci::cdi::Generated;

use self::changes::{Directories, Look};
use super::generate::Args;
use super::{output, warn};

/// Writes the spec whenever it changes, until SIGTERM or SIGINT ends it.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let path = args.output().context("--watch needs --output")?;
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_block()?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?;
    let mut told = None;
    loop {
        // Watched before it is read: what changes meanwhile is an event.
        let directories = Directories::of(written(path).as_ref());
        let host = args.host()?;
        let before = Look::at(&host, &directories);
        let changes = directories.watch(&host)?;
        let failed = match write(args, path) {
            // It may be of other directories than the one before.
            Ok(true) => continue,
            Ok(false) => None,
            Err(error) => Some(error.context(format!("{} stays as it is", path.display()))),
        };
        let text = failed.as_ref().map(|error| format!("{error:#}"));
        if let Some(error) = failed.filter(|_| told != text) {
            crate::complain(&error);
        }
        told = text;
        // What was missing may come to a directory that was missing.
        let is_other = || told.is_some() || Look::at(&host, &directories) != before;
        if !changes.wait(&signals, is_other)? {
            return Ok(());
        }
    }
}

/// Says whether the file is another now.
fn write(args: &Args, path: &Path) -> anyhow::Result<bool> {
    let Generated { spec, warnings } = args.generate()?;
    let changed = output::replace(path, &args.text(&spec)?)?;
    if changed {
        warn(warnings);
        warn([format!("{} is written", path.display())]);
    }
    Ok(changed)
}

/// The spec as it was written last.
fn written(path: &Path) -> Option<nvidia_oci::cdi::Spec> {
    nvidia_oci::cdi::read(&Host::new("/"), &std::path::absolute(path).ok()?).ok()
}
