//! Where does a `BinaryName` lead? Not to us, nor to a runtime of NVIDIA's.

use std::path::{Path, PathBuf};

use crate::executable;

/// Whether the program `name` is this one or a runtime of NVIDIA's, whatever link leads there.
pub(super) fn leads_back(name: &str) -> bool {
    let name = Path::new(name);
    executable::leads_back(name) || find(name).is_some_and(|path| executable::leads_back(&path))
}

/// A bare name is looked up in `PATH`, as the inner shim will.
fn find(name: &Path) -> Option<PathBuf> {
    if name.components().count() != 1 {
        return None;
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_looked_at() {
        assert!(leads_back("/usr/bin/nvidia-container-runtime.cdi"));
        assert!(leads_back("nvidia-container-runtime-experimental"));
        assert!(!leads_back("/usr/sbin/runc"));
        assert!(!leads_back("runc"));
        assert!(!leads_back(""));
    }
}
