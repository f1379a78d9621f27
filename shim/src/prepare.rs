//! A bundle before its container is created: does it ask for anything, and if so, the worker's
//! edit of it, whole or not at all. Shim and OCI-runtime front alike.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use nvidia_oci::{ConfigSource, Result};

use crate::worker::{Answer, Job, Worker};

/// The variable and the directory whose bare names make an unreadable spec one that asks.
const MARKS: [&[u8]; 2] = [b"NVIDIA_VISIBLE_DEVICES", b"/nvidia-container-devices/"];
const CONFIG: &str = "config.json";
/// How the names of files begin that become [`CONFIG`] when they are whole.
const HALF_WRITTEN: &[u8] = b".config.json.";
/// How long a worker may take where the caller has more time.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
/// How long it may load modules and wake GPUs: less, so that what went wrong is told by who knows.
pub(crate) const HOST_DEADLINE: Duration = Duration::from_secs(7);
const _: () = assert!(HOST_DEADLINE.as_secs() < DEADLINE.as_secs());

/// Whether the container of this spec may ask for anything.
///
/// # Errors
/// The spec cannot be read, and it looks as if it asked.
pub(crate) fn asks(spec: &[u8], settings: &ConfigSource) -> Result<bool> {
    let has = |mark: &[u8]| spec.windows(mark.len()).any(|window| window == mark);
    match nvidia_oci::request::asks(spec, settings) {
        Ok(asks) => Ok(asks),
        Err(error) if MARKS.into_iter().any(has) => Err(error),
        Err(_) => Ok(false),
    }
}

/// Has `job` done, whose bundle has this `spec`; the decision is logged.
///
/// # Errors
/// The worker did not come to an answer; the bundle is as it was.
pub(crate) fn prepare(
    worker: &Worker,
    job: &Job,
    spec: &[u8],
    deadline: Duration,
) -> Result<Answer> {
    let answer = worker.run(job, deadline).inspect_err(|_| restore(&job.bundle, spec))?;
    if let Answer::Untouched { warnings } | Answer::Edited { warnings, .. } = &answer {
        for warning in warnings {
            log::warn!("{}: {warning}", job.id);
        }
    }
    if let Answer::Edited { summary, .. } = &answer {
        log::info!("{}: {summary}; shim {}", job.id, env!("CARGO_PKG_VERSION"));
    }
    Ok(answer)
}

/// A worker that was killed may have been about to write the bundle, or to answer that it did: the
/// bundle is as it was before its container is refused.
fn restore(bundle: &Path, spec: &[u8]) {
    let config = bundle.join(CONFIG);
    if fs::read(&config).is_ok_and(|now| now != spec) && fs::write(&config, spec).is_err() {
        log::error!("{} could not be restored", config.display());
    }
    let half_written = |name: &OsStr| name.as_bytes().starts_with(HALF_WRITTEN);
    for entry in fs::read_dir(bundle).into_iter().flatten().flatten() {
        if half_written(&entry.file_name()) && fs::remove_file(entry.path()).is_err() {
            log::warn!("{} stays", entry.path().display());
        }
    }
}
