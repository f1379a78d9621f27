//! Where the stock shim is.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{env, fs};

use nvidia_oci::{Code, Config, ConfigSource, Error, Result};

use crate::executable::{is_executable, leads_back};

const NAME: &str = "containerd-shim-runc-v2";

/// Where installers put it when it is neither beside containerd nor in its `PATH`.
const USUAL: &[&str] = &[
    "/usr/bin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/sbin",
    "/opt/containerd/bin",
    "/opt/bin",
];

/// k3s and RKE2 unpack their programs below `NAME/data/current/bin`.
const RANCHER: &str = "/var/lib/rancher";

/// The stock shim that the settings name. Settings that cannot be read must not stop a container
/// that asks for nothing: they are reported where it matters, when one asks for a GPU.
pub(crate) fn configured(mut source: ConfigSource) -> Option<PathBuf> {
    source.default_path.get_or_insert_with(|| Config::default_file(|name| env::var(name).ok()));
    match Config::load(&source) {
        Ok((config, _)) => config.inner_shim,
        Err(error) => {
            log::warn!("inner-shim is not known: {error}");
            None
        }
    }
}

/// Finds the stock shim: the configured one, the one beside containerd, in `PATH`, in the usual
/// directories. Never this program under whatever name, nor another shim of ours.
///
/// # Errors
/// `InnerShim`, if there is none.
pub(crate) fn find(
    configured: Option<&Path>,
    containerd: &Path,
    path: Option<&OsStr>,
) -> Result<PathBuf> {
    let usable = |program: &Path| is_executable(program) && !leads_back(program);
    if let Some(configured) = configured {
        if usable(configured) {
            return Ok(configured.to_owned());
        }
        log::warn!("inner-shim {} is not a stock shim, looking elsewhere", configured.display());
    }
    let beside = containerd.parent().map(Path::to_owned);
    let in_path = path.iter().flat_map(env::split_paths);
    let usual = USUAL.iter().map(PathBuf::from);
    beside
        .into_iter()
        .chain(in_path)
        .chain(usual)
        // What a relative directory means depends on where we were called.
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(NAME))
        .find(|program| usable(program))
        .or_else(|| of_rancher().find(|program| usable(program)))
        .ok_or_else(|| {
            let what = "containerd-shim-runc-v2 is neither beside containerd nor in its PATH";
            Error::new(Code::InnerShim, what)
        })
}

fn of_rancher() -> impl Iterator<Item = PathBuf> {
    let products = fs::read_dir(RANCHER).into_iter().flatten().flatten();
    products.map(|product| product.path().join("data/current/bin").join(NAME))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A directory with an executable file of the stock shim's name.
    fn dir_with_shim() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(NAME);
        fs::write(&program, "").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        dir
    }

    #[test]
    fn the_configured_one_comes_first_then_containerds_then_path() {
        let [configured, beside, in_path] = [(); 3].map(|()| dir_with_shim());
        let other = configured.path().join("my-shim");
        fs::rename(configured.path().join(NAME), &other).unwrap();
        let containerd = beside.path().join("containerd");
        let path = env::join_paths([Path::new("."), in_path.path()]).unwrap();

        let found = |configured, containerd| find(configured, containerd, Some(&path)).unwrap();
        assert_eq!(found(Some(&other), &containerd), other);
        assert_eq!(found(None, &containerd), beside.path().join(NAME));
        assert_eq!(found(None, Path::new("")), in_path.path().join(NAME));
        let missing = Path::new("/nonexistent/shim");
        assert_eq!(found(Some(missing), &containerd), beside.path().join(NAME));
    }

    #[test]
    fn what_leads_back_to_us_or_cannot_be_executed_is_passed_over() {
        let good = dir_with_shim();
        let [itself, link, other_of_ours, no_program] =
            [(); 4].map(|()| tempfile::tempdir().unwrap());
        let own = env::current_exe().unwrap();
        fs::hard_link(&own, itself.path().join(NAME))
            .or_else(|_| symlink(&own, itself.path().join(NAME)))
            .unwrap();
        symlink(&own, link.path().join(NAME)).unwrap();
        let ours = other_of_ours.path().join("containerd-shim-nvidia-cdi-v2");
        fs::copy(good.path().join(NAME), &ours).unwrap();
        symlink(&ours, other_of_ours.path().join(NAME)).unwrap();
        fs::write(no_program.path().join(NAME), "").unwrap();

        let dirs = [&itself, &link, &other_of_ours, &no_program, &good];
        let path = env::join_paths(dirs.map(tempfile::TempDir::path)).unwrap();
        let found = find(None, Path::new("relative/containerd"), Some(&path)).unwrap();
        assert_eq!(found, good.path().join(NAME));
    }
}
