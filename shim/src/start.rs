//! `start`: the address of the relay that serves a container, an existing one or a new one.
//!
//! containerd reads standard output and standard error as one: nothing but the answer is written
//! when all is well.

use std::collections::HashMap;
use std::env;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::args::Args;
use crate::dialect::StartRequest;
use crate::program::Program;
use crate::record::replace;
use crate::socket::{Bound, Group, Sockets};
use crate::{inner, options, placement};

/// As much as the stock shim reads.
const INPUT_MAX: u64 = 10 << 20;

/// More than containerd can send of a spec.
const SPEC_MAX: u64 = 16 << 20;

/// Annotations that say which containers share a shim, the first one found counts.
const GROUPED_BY: [&str; 2] = ["io.containerd.runc.v2.group", "io.kubernetes.cri.sandbox-id"];

/// Finds or starts the relay, and answers containerd.
///
/// # Errors
/// Whatever keeps the relay from being started; nothing is left behind then.
pub(crate) fn run(program: &Program, args: &Args) -> Result<()> {
    args.require_names()?;
    let request = StartRequest::read(&standard_input()?, args)?;
    let bundle = env::current_dir().context("working directory")?;
    let group = group(&bundle.join("config.json"), &args.id)?;
    let group = Group {
        handler: program.handler().name(),
        address: &request.address,
        namespace: &args.namespace,
        name: &group,
    };
    let sockets = Sockets::of(group, &request.socket_dir);
    let address = sockets.address()?;
    let answer = request.answer(&address)?;
    // containerd 1.x reads it again after its own restart.
    replace(&bundle.join("address"), address.as_bytes()).context("writing address")?;

    let lock = sockets.lock()?;
    if !sockets.is_live()? {
        let bound = sockets.bind(&lock)?;
        launch(program, args, &request, &sockets, bound)?;
    }
    drop(lock);

    let mut stdout = io::stdout();
    stdout.write_all(&answer).and_then(|()| stdout.flush()).context("answering")
}

fn standard_input() -> Result<Vec<u8>> {
    let mut input = Vec::new();
    io::stdin().take(INPUT_MAX + 1).read_to_end(&mut input).context("standard input")?;
    ensure!(input.len() as u64 <= INPUT_MAX, "standard input is longer than {INPUT_MAX} bytes");
    Ok(input)
}

/// The group of the container `id` by the annotations of its spec; its own if there are none.
fn group(spec: &Path, id: &str) -> Result<String> {
    #[derive(Deserialize)]
    struct Spec {
        annotations: Option<HashMap<String, String>>,
    }
    let read = || -> Result<Spec> {
        let mut text = Vec::new();
        File::open(spec)?.take(SPEC_MAX + 1).read_to_end(&mut text)?;
        if text.len() as u64 > SPEC_MAX {
            bail!("longer than {SPEC_MAX} bytes");
        }
        Ok(serde_json::from_slice(&text)?)
    };
    let annotations =
        read().with_context(|| spec.display().to_string())?.annotations.unwrap_or_default();
    let named = GROUPED_BY.iter().find_map(|key| annotations.get(*key));
    Ok(named.map_or(id, String::as_str).to_owned())
}

/// Starts the relay on both sockets. What must hold for the inner shim too is set here, for us,
/// before it is born.
fn launch(
    program: &Program,
    args: &Args,
    request: &StartRequest,
    sockets: &Sockets,
    bound: Bound<'_>,
) -> Result<()> {
    // What is wrong with the options is for Create to say.
    let options = options::translate(request.options.as_ref(), None);
    let configured = inner::configured(options.source);
    let path = env::var_os("PATH");
    let shim = inner::find(configured.as_deref(), &request.containerd, path.as_deref())?;
    if !options.runc.shim_cgroup.is_empty() {
        let cgroup = &options.runc.shim_cgroup;
        placement::join_cgroup(cgroup).with_context(|| format!("ShimCgroup {cgroup}"))?;
    }
    if env::var_os("SCHED_CORE").is_some_and(|value| !value.is_empty()) {
        placement::isolate_cores().context("core scheduling")?;
    }
    placement::adjust_oom_score().context("adjusting the OOM score")?;

    let mut relay = program.again("relay");
    relay
        .args(["-namespace", &args.namespace, "-id", &args.id, "-address", &request.address])
        .arg("-outer")
        .arg(&sockets.outer)
        .arg("-inner")
        .arg(&sockets.inner)
        .arg("-shim")
        .arg(shim)
        .args(request.debug.then_some("-debug"))
        // runc would make a socket of it inside of the container.
        .env_remove("NOTIFY_SOCKET")
        .env(inner::ARENAS, "1")
        .process_group(0)
        .stderr(Stdio::null());
    if let Some(address) = &request.ttrpc_address {
        relay.env("TTRPC_ADDRESS", address);
    }
    bound
        .hand_to(|outer, inner| {
            relay.stdin(OwnedFd::from(outer)).stdout(OwnedFd::from(inner)).spawn()
        })
        .context("starting the relay")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group_of(spec: &str) -> Result<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        std::fs::write(&path, spec).unwrap();
        group(&path, "own")
    }

    #[test]
    fn a_container_is_grouped_by_its_annotations() {
        for (spec, name) in [
            (r#"{"annotations":{"io.kubernetes.cri.sandbox-id":"pod"}}"#, "pod"),
            (
                r#"{"annotations":{"io.kubernetes.cri.sandbox-id":"pod",
                    "io.containerd.runc.v2.group":"named"}}"#,
                "named",
            ),
            (r#"{"annotations":{"other":"x"}}"#, "own"),
            (r#"{"annotations":null}"#, "own"),
            (r#"{"process":{"args":["sh"]}}"#, "own"),
        ] {
            assert_eq!(group_of(spec).unwrap(), name, "{spec}");
        }
    }

    #[test]
    fn a_broken_spec_is_named() {
        let error = format!("{:#}", group_of("{").unwrap_err());
        assert!(error.contains("config.json: EOF while parsing"), "{error}");
        let missing = group(Path::new("/nonexistent/config.json"), "own").unwrap_err();
        assert!(format!("{missing:#}").starts_with("/nonexistent/config.json: No such file"));
    }
}
