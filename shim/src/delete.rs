//! `delete`: removes whatever is left of a container, from what its bundle says.
//!
//! containerd waits for it after every task, so nothing is started and nothing searched unless
//! something is left. Twice is as good as once, and bundles of older and newer shims are served.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use containerd_shim_protos::api::DeleteResponse;
use containerd_shim_protos::protobuf::Message;
use containerd_shim_protos::protobuf::well_known_types::timestamp::Timestamp;
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use serde::Deserialize;

use crate::args::Args;
use crate::record::Record;

/// Where the stock shim keeps runc's state when the options do not say.
const RUNC_ROOT: &str = "/run/containerd/runc";

/// Killed: 128 and the number of the signal.
const KILLED: u32 = 137;

/// How long a relay that does not listen any more may take to end.
const RELAY_END: Duration = Duration::from_secs(1);

/// More than any file of the bundle that is read here is long.
const FILE_MAX: u64 = 1 << 20;

/// As many mounts as are taken off one root filesystem.
const MOUNTS_MAX: usize = 128;

/// Cleans up and answers containerd.
///
/// # Errors
/// No bundle, or nobody to answer. What could not be cleaned is logged: containerd has forgotten
/// the task already and would only miss the answer.
pub(crate) fn run(args: &Args, bundle: &Path) -> Result<()> {
    args.require_names()?;
    for (what, done) in [
        ("ending what was left of the group", end_orphans(bundle)),
        ("deleting the container", delete_container(args, bundle)),
        ("unmounting the root filesystem", unmount(&bundle.join("rootfs"))),
    ] {
        if let Err(error) = done {
            log::warn!("{what}: {error:#}");
        }
    }
    let mut stdout = io::stdout();
    let answer = answer(bundle).write_to_bytes()?;
    stdout.write_all(&answer).and_then(|()| stdout.flush()).context("answering")
}

/// If the relay of the bundle's group was killed, its inner shim has nobody to talk to any more:
/// it is killed too, and the sockets go.
fn end_orphans(bundle: &Path) -> Result<()> {
    let Some(record) = Record::read(bundle).context("record of the group")? else {
        return Ok(());
    };
    let sockets = record.sockets();
    let inner_ended = record.inner.map_or(Ok(true), |inner| inner.has_ended(Duration::ZERO))?;
    if inner_ended && !sockets.outer.exists() {
        return Ok(());
    }
    // A relay that was killed a moment ago may still be closing its sockets, one by one. One that
    // lives and does not listen is about to end by itself.
    let killed = record.relay.is_ending()?;
    let patience = if killed || !sockets.is_live()? { RELAY_END } else { Duration::ZERO };
    if !record.relay.has_ended(patience)? && !killed {
        return Ok(());
    }
    if let Some(inner) = record.inner {
        inner.kill()?;
    }
    let _lock = sockets.lock()?;
    // Another relay may serve the group by now.
    if !sockets.is_live()? {
        sockets.unlink()?;
    }
    Ok(())
}

/// What the inner shim wrote into the bundle at Create (`options.json`), as far as it matters.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Options {
    #[serde(alias = "Root")]
    root: String,
    #[serde(alias = "systemdCgroup", alias = "SystemdCgroup")]
    systemd_cgroup: bool,
}

/// Has runc delete the container, if runc still knows it.
fn delete_container(args: &Args, bundle: &Path) -> Result<()> {
    let options = match read(&bundle.join("options.json"))? {
        Some(text) => serde_json::from_str(&text).context("options.json")?,
        None => Options::default(),
    };
    let root = if options.root.is_empty() { RUNC_ROOT } else { &options.root };
    let root = Path::new(root).join(&args.namespace);
    if !root.join(&args.id).exists() {
        return Ok(());
    }
    let runtime = read(&bundle.join("runtime"))?.unwrap_or_default();
    let runtime = if runtime.is_empty() { "runc" } else { runtime.as_str() };
    let done = Command::new(runtime)
        .arg("--root")
        .arg(root)
        .args(options.systemd_cgroup.then_some("--systemd-cgroup"))
        .args(["delete", "--force", &args.id])
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .output()
        .with_context(|| runtime.to_owned())?;
    if !done.status.success() {
        bail!("{runtime}: {}: {}", done.status, String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(())
}

/// Takes every mount off `rootfs` itself, which may be a link and is not followed then.
fn unmount(rootfs: &Path) -> Result<()> {
    for _ in 0..MOUNTS_MAX {
        let unmounted = match umount2(rootfs, MntFlags::UMOUNT_NOFOLLOW) {
            Err(Errno::EBUSY) => umount2(rootfs, MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH),
            unmounted => unmounted,
        };
        match unmounted {
            Ok(()) => {}
            // No mount point (any more), or nothing there at all.
            Err(Errno::EINVAL | Errno::ENOENT | Errno::ENOTDIR) => return Ok(()),
            Err(errno) => return Err(errno).with_context(|| rootfs.display().to_string()),
        }
    }
    bail!("{}: more than {MOUNTS_MAX} mounts", rootfs.display());
}

fn answer(bundle: &Path) -> DeleteResponse {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let pid = read(&bundle.join("init.pid")).ok().flatten().and_then(|pid| pid.parse().ok());
    let exited_at = Timestamp {
        seconds: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(now.subsec_nanos()).unwrap_or_default(),
        ..Default::default()
    };
    DeleteResponse {
        pid: pid.unwrap_or_default(),
        exit_status: KILLED,
        exited_at: Some(exited_at).into(),
        ..Default::default()
    }
}

/// The text of a file without white space around it; none if there is no file.
fn read(path: &Path) -> Result<Option<String>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.with_context(|| path.display().to_string())?,
    };
    let mut text = String::new();
    file.take(FILE_MAX).read_to_string(&mut text).with_context(|| path.display().to_string())?;
    Ok(Some(text.trim().to_owned()))
}
