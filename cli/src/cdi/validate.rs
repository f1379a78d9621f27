//! `nvidia-shim cdi validate`: all that is wrong with CDI spec files.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nvidia_oci::cdi;

use super::{host, output};

/// Tell all that is wrong with CDI spec files
///
/// Exit code: 0 nothing is; 1 something is.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Directory that is looked at as the root of the host; files are those of the host then
    #[arg(long, value_name = "DIR")]
    host_root: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let host = host(args.host_root.as_deref())?;
    let mut text = String::new();
    let mut faults = 0;
    for file in &args.files {
        let path = match args.host_root {
            Some(_) => Path::new("/").join(file),
            None => std::path::absolute(file)?,
        };
        let (spec, problems) = cdi::validate(&host, &path);
        for problem in &problems {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}: {problem}", file.display());
        }
        faults += problems.len();
        if let Some(spec) = spec.filter(|_| problems.is_empty()) {
            let (count, kind, version) = (spec.devices.len(), &spec.kind, &spec.version);
            let _ = writeln!(
                text,
                "{}: good, {count} devices of {kind}, CDI {version}",
                file.display()
            );
        }
    }
    output::print(&text)?;
    Ok(if faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
