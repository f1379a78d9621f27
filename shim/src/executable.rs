//! Program files of others: what can be executed, and what must not be because it leads back.
//!
//! k3s, RKE2 and the GPU operator name a runtime of NVIDIA's where we expect runc; it would inject
//! a second time, and this program would call itself without end.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How the names of programs begin that do what we do.
const OURS: &[&str] = &["nvidia-container-runtime", "containerd-shim-nvidia"];

pub(crate) fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
}

/// The program `name` in the directory of this one, which is as trusted as we are.
pub(crate) fn beside(name: &str) -> PathBuf {
    let own = fs::read_link("/proc/self/exe").unwrap_or_default();
    own.with_file_name(name)
}

/// Whether a hook of a container can execute `path`: in a user namespace it is nobody's process.
pub(crate) fn is_for_container(path: &Path, in_user_namespace: bool) -> bool {
    let may_all = |path: &Path| fs::metadata(path).is_ok_and(|found| found.mode() & 0o001 != 0);
    is_executable(path) && (!in_user_namespace || path.ancestors().all(may_all))
}

/// Whether `path` is this very program or one that does the same, whatever link leads there.
pub(crate) fn leads_back(path: &Path) -> bool {
    let real = fs::canonicalize(path).ok();
    is_named_so(path)
        || real.as_deref().is_some_and(is_named_so)
        || real.is_some_and(|real| is_this_program(&real))
}

fn is_named_so(path: &Path) -> bool {
    let base = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    OURS.iter().any(|name| base.starts_with(name))
}

fn is_this_program(path: &Path) -> bool {
    let id = |found: Metadata| (found.dev(), found.ino());
    match (fs::metadata(path), fs::metadata("/proc/self/exe")) {
        (Ok(found), Ok(own)) => id(found) == id(own),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn runtimes_of_nvidia_are_known_by_name_and_through_links() {
        let leads_back = |path: &str| leads_back(Path::new(path));
        assert!(leads_back("/usr/bin/nvidia-container-runtime.cdi"));
        assert!(leads_back("nvidia-container-runtime-experimental"));
        assert!(leads_back("/opt/bin/containerd-shim-nvidia-v2"));
        assert!(!leads_back("/usr/sbin/runc"));
        assert!(!leads_back("crun"));
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("nvidia-container-runtime.real");
        fs::write(&real, "").unwrap();
        symlink(&real, dir.path().join("runc")).unwrap();
        assert!(leads_back(dir.path().join("runc").to_str().unwrap()));
    }

    #[test]
    fn this_program_is_known_under_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("innocent");
        symlink(fs::canonicalize("/proc/self/exe").unwrap(), &link).unwrap();
        assert!(leads_back(&link));
    }
}
