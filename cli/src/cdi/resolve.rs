//! `nvidia-shim cdi resolve`: what a container would get that asks for these names.

use std::process::ExitCode;

use nvidia_oci::{Handler, Image, Outcome, Plan, Report, Spec, plan};
use serde_json::json;

use super::tree::Tree;
use super::{Place, output, warn};

/// Tell exactly what containers get that ask for these devices
///
/// Names are those of CDI, such as nvidia.com/gpu=0, or short ones of the default kind. Exit code:
/// 0 they would start; 3 they would be refused.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    place: Place,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = args.place.config()?;
    let names = args.names.join(",");
    // Of who may have any device.
    let spec = Spec::new(json!({
        "process": {
            "env": [format!("NVIDIA_VISIBLE_DEVICES={names}")],
            "capabilities": {"bounding": ["CAP_SYS_ADMIN"]},
        },
        "linux": {},
    }));
    let image = Image::default();
    match plan(&args.place.host()?, &config, Handler::NvidiaCdi, &image, &spec) {
        Ok(Outcome::Edited(plan)) => {
            warn(plan.report.warnings.clone());
            let text = if args.json { as_json(&plan)? } else { as_tree(&names, &plan) };
            output::print(&text)?;
            Ok(ExitCode::SUCCESS)
        }
        Ok(Outcome::Untouched(report)) => {
            warn(report.warnings.clone());
            output::print(&format!("{names}: nothing\n"))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            crate::complain(&error.into());
            Ok(ExitCode::from(3))
        }
    }
}

fn as_json(plan: &Plan) -> anyhow::Result<String> {
    let Plan { edits, fixups, report, .. } = plan;
    let all = json!({"edits": edits, "fixups": fixups, "report": report});
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}

fn as_tree(names: &str, plan: &Plan) -> String {
    let Plan { edits, fixups, missing_nodes, report } = plan;
    let mut tree = Tree::new(names);
    let devices = edits.devices.iter().map(|node| {
        let path = node.path.display().to_string();
        let of = if node.path == node.host_path {
            String::new()
        } else {
            format!(" of {}", node.host_path.display())
        };
        let mode = node.mode.map(|mode| format!(" {mode:04o}")).unwrap_or_default();
        let numbers = format!("{}:{}{mode} {}:{}", node.major, node.minor, node.uid, node.gid);
        line(&format!("{path}{of}  {numbers} {}", node.access), reason(report, &path))
    });
    tree.branch("devices", devices);
    let made = missing_nodes.iter().map(|node| node.path.display().to_string());
    tree.branch("device nodes made first", made);
    tree.branch("environment", edits.env.iter().map(|(name, value)| format!("{name}={value}")));
    let mounts = edits.mounts.iter().map(|mount| {
        let path = mount.destination.display().to_string();
        let of = if mount.source == mount.destination {
            String::new()
        } else {
            format!(" of {}", mount.source.display())
        };
        let write = if mount.options.iter().any(|it| it == "ro") { "" } else { "  writable" };
        line(&format!("{path}{of}{write}"), reason(report, &path))
    });
    tree.branch("mounts", mounts);
    let links = fixups.links.iter();
    let links = links.map(|it| format!("{} -> {}", it.link.display(), it.target.display()));
    tree.branch("links", links);
    let files = fixups.files.iter().map(|file| file.path.display().to_string());
    tree.branch("files written", files);
    let dirs = fixups.library_dirs.iter().map(|dir| dir.display().to_string());
    tree.branch("loader directories", dirs);
    tree.branch("groups", edits.additional_gids.iter().map(u32::to_string));
    let interfaces = edits.net_devices.iter();
    let interfaces = interfaces.map(|it| format!("{} as {}", it.host_interface_name, it.name));
    tree.branch("network interfaces", interfaces);
    let hooks = edits.hooks.iter();
    let hooks =
        hooks.map(|hook| format!("{} {} {}", hook.hook_name, hook.path, hook.args.join(" ")));
    tree.branch("hooks", hooks);
    let withheld = report.withheld.iter();
    tree.branch("withheld", withheld.map(|item| line(&item.name, Some(&item.reason))));
    tree.text()
}

fn line(what: &str, reason: Option<&str>) -> String {
    reason.map_or_else(|| what.to_owned(), |reason| format!("{what}  ({reason})"))
}

/// Why the container has what is at `path`.
fn reason<'a>(report: &'a Report, path: &str) -> Option<&'a str> {
    report.given.iter().find(|item| item.name == path).map(|item| item.reason.as_str())
}
