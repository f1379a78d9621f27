//! `nvidia-shim cdi list`: which devices CDI specs describe, in which files, and what is wrong with
//! files.

use std::fmt::Write;
use std::process::ExitCode;

use nvidia_oci::cdi::{FileProblem, Registry};
use serde_json::json;

use super::{Place, output};

/// List devices of CDI specs, their files, and what is wrong with files
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let directories = args.place.config()?.cdi_spec_dirs;
    let registry = Registry::read(&args.place.host()?, &directories);
    let text = if args.json { as_json(&registry)? } else { as_text(&registry) };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Each device with its file; below them the problems.
fn as_text(registry: &Registry) -> String {
    let devices: Vec<_> = registry.devices().map(|found| (found.name(), found.file)).collect();
    let width = devices.iter().map(|(name, _)| name.to_string().len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, file) in devices {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:width$}  {}", name.to_string(), file.path.display());
    }
    for FileProblem { path, problem } in registry.problems() {
        let _ = writeln!(text, "problem: {} {problem}", path.display());
    }
    if text.is_empty() { "no CDI specs\n".to_owned() } else { text }
}

fn as_json(registry: &Registry) -> anyhow::Result<String> {
    let devices = registry.devices().map(|found| {
        json!({
            "name": found.name().to_string(),
            "kind": found.file.spec.kind,
            "file": found.file.path,
            "version": found.file.spec.version,
        })
    });
    let problems = registry
        .problems()
        .iter()
        .map(|FileProblem { path, problem }| json!({"file": path, "problem": problem.to_string()}));
    let all = json!({
        "devices": devices.collect::<Vec<_>>(),
        "problems": problems.collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}
