//! Where does a `BinaryName` lead? k3s, RKE2 and the GPU operator name a runtime of NVIDIA's there,
//! or this program; the inner shim would then inject a second time, or call us without end.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How the names of such programs begin.
const OURS: &[&str] = &["nvidia-container-runtime", "containerd-shim-nvidia"];

/// Whether the program `name` is this one or a runtime of NVIDIA's, whatever link leads there.
pub(super) fn leads_back(name: &str) -> bool {
    if name.is_empty() {
        return false;
    }
    let path = find(Path::new(name));
    let real = path.as_deref().and_then(|path| fs::canonicalize(path).ok());
    is_named_so(Path::new(name))
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

/// A bare name is looked up in `PATH`, as the inner shim will.
fn find(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return Some(name.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn runtimes_of_nvidia_are_known_by_name_and_through_links() {
        assert!(leads_back("/usr/bin/nvidia-container-runtime.cdi"));
        assert!(leads_back("nvidia-container-runtime-experimental"));
        assert!(leads_back("/opt/bin/containerd-shim-nvidia-v2"));
        assert!(!leads_back("/usr/sbin/runc"));
        assert!(!leads_back("crun"));
        assert!(!leads_back(""));
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
        assert!(leads_back(link.to_str().unwrap()));
    }
}
