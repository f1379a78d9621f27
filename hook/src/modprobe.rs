//! Loading a kernel module: the host's own modprobe, found in system directories only, with an
//! empty environment and a limited time.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nvidia_oci::{Code, Error, Host, Result};

const DIRECTORIES: [&str; 4] = ["/sbin", "/usr/sbin", "/bin", "/usr/bin"];

const AFTER_KILL: Duration = Duration::from_millis(200);
const POLL: Duration = Duration::from_millis(2);

/// As much of modprobe's words as an error carries.
const MAX_WORDS: u64 = 1024;

/// Loads `module` within a time: seconds on a machine of many GPUs. A host below another prefix
/// than `/` is simulated: its kernel is not ours.
pub(crate) fn load(host: &Host, module: &str, within: Duration) -> Result<()> {
    let refused = |why: &str| {
        let what = format!("the kernel module {module} is not loaded{why}");
        Error::new(Code::ModuleNotLoaded, what)
    };
    if host.prefix() != Path::new("/") {
        let prefix = host.prefix().display();
        return Err(refused(&format!(", and {prefix} is not this machine's own root")));
    }
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if module.starts_with('-') || module.is_empty() || !module.chars().all(named) {
        return Err(refused(", and that is no name of a module"));
    }
    let modprobe =
        find(&DIRECTORIES).ok_or_else(|| refused(", and this machine has no modprobe"))?;
    run(&modprobe, module, within).map_err(|error| {
        let what = format!("the kernel module {module} could not be loaded");
        Error::caused(Code::ModuleNotLoaded, what, error)
    })
}

fn find(directories: &[&str]) -> Option<PathBuf> {
    directories.iter().map(|directory| Path::new(directory).join("modprobe")).find(|p| p.is_file())
}

fn run(modprobe: &Path, module: &str, within: Duration) -> io::Result<()> {
    let mut child = Command::new(modprobe)
        .args(["-q", "--", module])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let status = wait(&mut child, within)?;
    if status.success() {
        return Ok(());
    }
    let words = words(&mut child)?;
    let words = words.trim();
    let said = if words.is_empty() { "and says nothing" } else { words };
    Err(io::Error::other(format!("{} ends with {status}: {said}", modprobe.display())))
}

/// Waits for the child, which is killed when the time is over. One that the kernel holds even then is
/// left to its fate, as waiting for it would hold us too.
fn wait(child: &mut Child, within: Duration) -> io::Result<ExitStatus> {
    if let Some(status) = wait_until(child, Instant::now() + within)? {
        return Ok(status);
    }
    child.kill()?;
    wait_until(child, Instant::now() + AFTER_KILL)?;
    let what = format!("modprobe did not end within {} s", within.as_secs());
    Err(io::Error::new(io::ErrorKind::TimedOut, what))
}

fn wait_until(child: &mut Child, end: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= end {
            return Ok(status);
        }
        sleep(POLL);
    }
}

/// What the child has said so far; who else holds its stderr is not waited for.
fn words(child: &mut Child) -> io::Result<String> {
    let Some(stderr) = child.stderr.take() else { return Ok(String::new()) };
    fcntl(stderr.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let mut words = Vec::new();
    match stderr.take(MAX_WORDS).read_to_end(&mut words) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(String::from_utf8_lossy(&words).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn script(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("modprobe");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        (dir, path)
    }

    #[test]
    fn a_simulated_node_loads_nothing() {
        let error = load(&Host::new("/tmp/node"), "nvidia-uvm", LONG).unwrap_err();
        assert_eq!(error.code(), Code::ModuleNotLoaded);
        assert!(error.to_string().contains("/tmp/node"), "{error}");
    }

    #[test]
    fn a_module_is_a_name() {
        for module in ["", "-r", "../x", "a b"] {
            let error = load(&Host::new("/"), module, LONG).unwrap_err();
            assert!(error.to_string().contains("no name of a module"), "{error}");
        }
    }

    #[test]
    fn the_environment_is_empty_and_the_words_are_told() {
        // sh itself sets PWD and the like; what matters is that nothing of ours is there.
        let (_dir, path) = script("test \"$3\" = nvidia-uvm && test -z \"$CARGO_PKG_NAME$HOME\"");
        run(&path, "nvidia-uvm", LONG).unwrap();
        let (_dir, path) = script("echo FATAL: no such module >&2; sleep 5 & exit 1");
        let error = run(&path, "nvidia-uvm", LONG).unwrap_err().to_string();
        assert!(error.contains("FATAL: no such module"), "{error}");
    }

    #[test]
    fn a_modprobe_that_hangs_is_ended() {
        let (_dir, path) = script("exec sleep 1000");
        let error = run(&path, "nvidia-uvm", Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
