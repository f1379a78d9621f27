//! Where the relay and the inner shim live: OOM score, cgroup, core scheduling. All of it is set
//! for `start` itself, so that both are born with it.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use rustix::process::{Pid, getpid};
use rustix::thread::{CoreSchedulingScope, create_core_scheduling_cookie};

const CGROUPS: &str = "/sys/fs/cgroup";

/// The highest score there is.
const OOM_MAX: i32 = 1000;

/// Makes this process one step likelier to be killed than its parent containerd, as the stock
/// shim does.
pub(crate) fn adjust_oom_score() -> io::Result<()> {
    let parent = rustix::process::getppid().map_or(1, |pid| pid.as_raw_nonzero().get());
    let score = fs::read_to_string(format!("/proc/{parent}/oom_score_adj"))?;
    let score: i32 = score.trim().parse().map_err(io::Error::other)?;
    fs::write("/proc/self/oom_score_adj", score.saturating_add(1).min(OOM_MAX).to_string())
}

/// Gives this process group a core scheduling cookie of its own (`SCHED_CORE` in containerd's
/// environment): its hyper-threads are shared with nobody else.
pub(crate) fn isolate_cores() -> io::Result<()> {
    let own: Pid = getpid();
    Ok(create_core_scheduling_cookie(own, CoreSchedulingScope::ProcessGroup)?)
}

/// Joins the cgroup `path` (option `ShimCgroup`) in the unified hierarchy, or in each one of v1
/// that has it.
///
/// # Errors
/// `NotFound` if no hierarchy has it, else those of the system.
pub(crate) fn join_cgroup(path: &str) -> io::Result<()> {
    let unified = statfs(CGROUPS)?.filesystem_type() == CGROUP2_SUPER_MAGIC;
    join_below(Path::new(CGROUPS), unified, path)
}

fn join_below(root: &Path, unified: bool, path: &str) -> io::Result<()> {
    let Some(path) = relative(path) else {
        let message = format!("{path} is not the path of a cgroup");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    };
    let hierarchies = if unified {
        vec![root.to_owned()]
    } else {
        let entries = fs::read_dir(root)?.collect::<io::Result<Vec<_>>>()?;
        entries.into_iter().map(|entry| entry.path()).collect()
    };
    let mut joined = false;
    for hierarchy in hierarchies {
        let procs = hierarchy.join(&path).join("cgroup.procs");
        if procs.exists() {
            // 0 is the writer itself.
            fs::write(&procs, "0")
                .map_err(|error| io::Error::new(error.kind(), format!("{procs:?}: {error}")))?;
            joined = true;
        }
    }
    if joined {
        return Ok(());
    }
    let message = format!("no cgroup {}", path.display());
    Err(io::Error::new(io::ErrorKind::NotFound, message))
}

/// `path` below the root of a hierarchy; none if it leaves it.
fn relative(path: &str) -> Option<PathBuf> {
    Path::new(path)
        .components()
        .filter(|part| !matches!(part, Component::RootDir | Component::CurDir))
        .map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hierarchy_that_has_the_cgroup_is_joined() {
        let root = tempfile::tempdir().unwrap();
        for dir in ["cpu/shims/nvidia", "memory/shims/nvidia", "pids"] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
            fs::write(root.path().join(dir).join("cgroup.procs"), "").unwrap();
        }
        join_below(root.path(), false, "/shims/nvidia").unwrap();
        let procs =
            |dir: &str| fs::read_to_string(root.path().join(dir).join("cgroup.procs")).unwrap();
        assert_eq!(procs("cpu/shims/nvidia"), "0");
        assert_eq!(procs("memory/shims/nvidia"), "0");
        assert_eq!(procs("pids"), "");
        join_below(&root.path().join("cpu"), true, "shims/nvidia").unwrap();
    }

    #[test]
    fn a_missing_cgroup_and_one_outside_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let missing = join_below(root.path(), true, "/none").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let outside = join_below(root.path(), false, "/../../proc").unwrap_err();
        assert_eq!(outside.kind(), io::ErrorKind::InvalidInput);
    }
}
