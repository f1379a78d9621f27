//! What containers leave behind, and its removal at the end of a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Containerd;
use crate::namespace::{RUN, processes};

/// One line for each thing that is left of containers.
pub(crate) fn of(containerd: &Containerd) -> Vec<String> {
    let mut left = Vec::new();
    for pid in shims(containerd).into_iter().chain(contained(containerd)) {
        if let Some(command) = command_line(pid) {
            left.push(format!("process {pid}: {command}"));
        }
    }
    let namespace = containerd.namespace();
    for socket in namespace.names(&format!("{RUN}/s")) {
        left.push(format!("socket {}", socket.display()));
    }
    for mount in namespace.new_mounts() {
        left.push(format!("mount {mount}"));
    }
    for cgroup in cgroups(containerd) {
        let below = fs::read_dir(&cgroup).into_iter().flatten().flatten();
        let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        left.extend(below.map(|entry| format!("cgroup {}", entry.path().display())));
    }
    for parent in [
        containerd.bundle(containerd.name(), ""),
        containerd.bundle("k8s.io", ""),
        PathBuf::from(RUN).join("runc").join(containerd.name()),
        PathBuf::from(RUN).join("runc/k8s.io"),
    ] {
        let names = namespace.names(&parent.to_string_lossy());
        left.extend(names.iter().map(|path| format!("directory {}", path.display())));
    }
    left
}

/// Ends all processes of a test and removes its cgroups; mounts and sockets go with the namespace.
pub(crate) fn remove(containerd: &Containerd) {
    let begin = Instant::now();
    loop {
        let mut pids = contained(containerd);
        pids.extend(containerd.namespace().processes());
        pids.retain(|pid| command_line(*pid).is_some());
        if pids.is_empty() || begin.elapsed() > Duration::from_secs(10) {
            break;
        }
        for pid in pids {
            // It may have ended in the meantime.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    for cgroup in cgroups(containerd) {
        remove_cgroup(&cgroup);
    }
}

/// Processes of the daemon's mount namespace other than the daemon: shims, runc.
fn shims(containerd: &Containerd) -> Vec<i32> {
    let daemon = containerd.daemon_pid();
    let mut pids = containerd.namespace().processes();
    pids.retain(|pid| Some(*pid) != daemon);
    pids
}

/// Shims and what they started, by the name of the program file.
pub(crate) fn programs(containerd: &Containerd, name: &str) -> Vec<i32> {
    let mut pids = shims(containerd);
    pids.retain(|pid| {
        let line = command_line(*pid).unwrap_or_default();
        let program = line.split(' ').next().unwrap_or_default();
        Path::new(program).file_name().is_some_and(|file| file == name)
    });
    pids
}

/// Processes in containers.
fn contained(containerd: &Containerd) -> Vec<i32> {
    let marker = format!("/{}/", containerd.name());
    let inside = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| text.contains(&marker))
    };
    processes().filter(inside).collect()
}

/// The test's own directory in each cgroup hierarchy.
fn cgroups(containerd: &Containerd) -> Vec<PathBuf> {
    let top = Path::new("/sys/fs/cgroup");
    let controllers = fs::read_dir(top).into_iter().flatten().flatten().map(|entry| entry.path());
    controllers
        .chain([top.to_owned()])
        .map(|dir| dir.join(containerd.name()))
        .filter(|dir| dir.is_dir())
        .collect()
}

fn remove_cgroup(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&entry.path());
        }
    }
    // A process that still ends keeps it busy; it is then empty and harmless.
    let _ = fs::remove_dir(dir);
}

/// The command line of a process that lives; PID 1 may take its time with zombies.
fn command_line(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let state = stat.rsplit(") ").next()?.chars().next()?;
    if matches!(state, 'Z' | 'X') {
        return None;
    }
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(&line).replace('\0', " "))
}
