//! The containerds that tests run on: the installed one, and those that `fetch-containerd` brings.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build;

/// A containerd with its own `ctr` and stock shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// The machine's own, on Debian bookworm 1.6.
    Installed,
    /// Debian trixie's.
    V1_7,
    /// Debian forky's.
    V2_1,
}

impl Release {
    /// The directory of its programs.
    pub fn programs(self) -> PathBuf {
        match self {
            Self::Installed => installed("containerd").parent().expect("a file").to_owned(),
            Self::V1_7 => fetched("1.7").join("usr/bin"),
            Self::V2_1 => fetched("2.1").join("usr/bin"),
        }
    }

    pub fn containerd(self) -> PathBuf {
        self.programs().join("containerd")
    }

    pub fn ctr(self) -> PathBuf {
        self.programs().join("ctr")
    }

    /// Major and minor number, as the program tells them.
    pub fn version(self) -> (u32, u32) {
        let output = Command::new(self.containerd()).arg("--version").output().expect("containerd");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // containerd github.com/containerd/containerd 1.6.20~ds1 REVISION
        let word = text.split_whitespace().nth(2).unwrap_or_default().trim_start_matches('v');
        let mut numbers = word.split('.').map(|number| number.parse().ok());
        match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(major), Some(minor)) => (major, minor),
            _ => panic!("containerd --version says {text:?}"),
        }
    }
}

/// The file tree of a part that `fetch-containerd` brings, fetched now if it is not there.
pub(crate) fn fetched(part: &str) -> PathBuf {
    let dir = build::target_dir().join("containerd");
    if !dir.join(part).join(".complete").exists() {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/fetch-containerd");
        build::succeed(Command::new(script).arg(&dir).arg(part));
    }
    dir.join(part).join("root")
}

/// A program that runs Debian's crun, which finds its library where it was unpacked.
pub fn crun(dir: &Path) -> PathBuf {
    let (crun, program) = (fetched("crun").join("usr"), dir.join("crun"));
    let machine = std::env::consts::ARCH;
    let script = format!(
        "#!/bin/sh\nexport LD_LIBRARY_PATH={0}/lib/{machine}-linux-gnu\nexec {0}/bin/crun \"$@\"\n",
        crun.display()
    );
    fs::write(&program, script).expect("crun");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("crun");
    program
}

/// trixie's crun, which knows the specs of newer containerds. It needs that suite's libraries, and
/// executes itself again: so they are written into the program.
pub fn newer_crun(dir: &Path) -> PathBuf {
    let (usr, program) = (fetched("crun-trixie").join("usr"), dir.join("crun"));
    let libraries = usr.join(format!("lib/{}-linux-gnu", std::env::consts::ARCH));
    let loader = match std::env::consts::ARCH {
        "aarch64" => "ld-linux-aarch64.so.1",
        _ => "ld-linux-x86-64.so.2",
    };
    fs::copy(usr.join("bin/crun"), &program).expect("crun");
    let mut patchelf = Command::new(fetched("patchelf").join("usr/bin/patchelf"));
    patchelf.arg("--set-interpreter").arg(libraries.join(loader));
    patchelf.args(["--force-rpath", "--set-rpath"]).arg(&libraries).arg(&program);
    build::succeed(&mut patchelf);
    program
}

/// A program of this machine.
pub(crate) fn installed(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(usual)
        .map(|dir| dir.join(name))
        .find(|program| program.is_file())
        .unwrap_or_else(|| panic!("{name} is not installed; `make test` installs what it needs"))
}
