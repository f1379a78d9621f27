//! `nvidia-shim cdi diff`: what containers would get by one spec and not by the other, whatever the
//! order, the spelling and the format of the files.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use nvidia_oci::Host;
use nvidia_oci::cdi::{self, ContainerEdits, DeviceNode, Hook, Spec};

use super::output;

/// Compare two CDI specs by what they mean
///
/// Exit code: 0 they mean the same; 1 they do not; 2 one of them cannot be read.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[arg(value_name = "A")]
    one: PathBuf,
    #[arg(value_name = "B")]
    other: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (one, other) = match (read(&args.one), read(&args.other)) {
        (Ok(one), Ok(other)) => (one, other),
        (Err(error), _) | (_, Err(error)) => {
            crate::complain(&error);
            return Ok(ExitCode::from(2));
        }
    };
    let text = compare(&one, &other);
    output::print(&text)?;
    Ok(if text.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(path: &Path) -> anyhow::Result<Spec> {
    let spec = cdi::read(&Host::new("/"), &std::path::absolute(path)?);
    spec.with_context(|| path.display().to_string())
}

/// Lines that only one of them has: `-` the first, `+` the second.
fn compare(one: &Spec, other: &Spec) -> String {
    let (one, other) = (lines(one), lines(other));
    let mut text = String::new();
    for line in one.union(&other) {
        let sign = match (one.contains(line), other.contains(line)) {
            (true, true) => continue,
            (true, false) => '-',
            (false, _) => '+',
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{sign} {line}");
    }
    text
}

/// What a spec says, one thing a line, each with the device that it is of.
fn lines(spec: &Spec) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    lines.insert(format!("kind {}", spec.kind));
    lines.extend(spec.annotations.iter().map(|(key, value)| format!("annotation {key}={value}")));
    lines.extend(of_edits(&spec.edits).map(|line| format!("every device: {line}")));
    for device in &spec.devices {
        let name = &device.name;
        lines.insert(format!("device {name}"));
        let annotations = device.annotations.iter();
        lines.extend(annotations.map(|(key, value)| format!("device {name}: {key}={value}")));
        lines.extend(of_edits(&device.edits).map(|line| format!("device {name}: {line}")));
    }
    lines
}

fn of_edits(edits: &ContainerEdits) -> impl Iterator<Item = String> {
    let env = edits.env.iter().map(|entry| format!("env {entry}"));
    let nodes = edits.device_nodes.iter().map(node);
    let mounts = edits.mounts.iter().map(|mount| {
        let mut options = mount.options.clone();
        options.sort();
        let kind = if mount.kind.is_empty() { String::new() } else { format!(" {}", mount.kind) };
        let (from, to) = (&mount.host_path, &mount.container_path);
        format!("mount {to} of {from}{kind} {}", options.join(","))
    });
    let hooks = edits.hooks.iter().flat_map(hook);
    let gids = edits.additional_gids.iter().map(|gid| format!("group {gid}"));
    let interfaces = edits.net_devices.iter();
    let interfaces =
        interfaces.map(|it| format!("interface {} of {}", it.name, it.host_interface_name));
    let rdt = edits.intel_rdt.iter().map(|rdt| format!("{rdt:?}"));
    env.chain(nodes).chain(mounts).chain(hooks).chain(gids).chain(interfaces).chain(rdt)
}

fn node(node: &DeviceNode) -> String {
    let host = if node.host_path.is_empty() { &node.path } else { &node.host_path };
    let mode = node.file_mode.map(|mode| format!(" {mode:o}")).unwrap_or_default();
    let ids = [("uid", node.uid), ("gid", node.gid)];
    let ids: String = ids.iter().filter_map(|(id, n)| n.map(|n| format!(" {id} {n}"))).collect();
    let access = if node.permissions.is_empty() { "rwm" } else { &node.permissions };
    let (path, major, minor) = (&node.path, node.major, node.minor);
    format!("node {path} of {host} {major}:{minor}{mode}{ids} {access}")
}

/// The program with its words; each flag with its value is a thing of its own, as two hooks may do
/// what another does at once.
fn hook(hook: &Hook) -> Vec<String> {
    let stage = &hook.hook_name;
    let words: Vec<&str> = hook.args.iter().skip(1).map(String::as_str).collect();
    let command: Vec<&str> =
        words.iter().take_while(|word| !word.starts_with('-')).copied().collect();
    let name = format!("hook {stage} {} {}", hook.path, command.join(" ")).trim_end().to_owned();
    let mut lines = vec![name.clone()];
    lines.extend(hook.env.iter().map(|entry| format!("{name}: env {entry}")));
    let mut rest = words.iter().skip(command.len()).peekable();
    while let Some(word) = rest.next() {
        let value = rest.next_if(|next| !word.contains('=') && !next.starts_with('-'));
        let value = value.map(|value| format!("={value}")).unwrap_or_default();
        lines.push(format!("{name}: {word}{value}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Spec {
        cdi::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn order_and_the_cut_of_hooks_do_not_matter() {
        let one = spec(
            "cdiVersion: 0.5.0\nkind: a.b/c\ndevices:\n- name: x\n  containerEdits:\n    env: [A=1, B=2]\n    \
             hooks:\n    - {hookName: createContainer, path: /h, args: [h, l, --link, a, --link=b]}\n",
        );
        let other = spec(
            r#"{"cdiVersion": "0.3.0", "kind": "a.b/c", "devices": [{"name": "x", "containerEdits": {
            "env": ["B=2", "A=1"], "hooks": [
            {"hookName": "createContainer", "path": "/h", "args": ["h", "l", "--link=b"]},
            {"hookName": "createContainer", "path": "/h", "args": ["h", "l", "--link=a"]}]}}]}"#,
        );
        assert_eq!(compare(&one, &other), "");
        let third = spec(
            "cdiVersion: 0.5.0\nkind: a.b/c\ndevices:\n- name: x\n  containerEdits: {env: [A=1]}\n",
        );
        let told = compare(&one, &third);
        assert!(told.contains("- device x: env B=2\n"), "{told}");
        assert!(told.contains("- device x: hook createContainer /h l: --link=a\n"), "{told}");
        assert!(compare(&third, &one).contains("+ device x: env B=2\n"));
    }
}
