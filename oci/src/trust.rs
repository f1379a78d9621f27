//! Whether a directory of the host may be believed: owned by root, and writable by no other, at
//! every step of the way to it.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::{Code, Error, Host, Result};

const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// The kernel's own limit on links in one resolution (`MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;

/// Checks the directory `path` of `host`, links followed, and each directory above it.
///
/// Others may write to a directory on the way if it is sticky, as `/tmp` is: what root owns there
/// cannot be replaced. The prefix of `host` and what lies above it is not looked at: whoever chose
/// the prefix has checked it.
///
/// # Errors
/// [`Code::UntrustedPath`], naming the step that others control.
pub(crate) fn check(host: &Host, path: &Path, name: &str) -> Result<()> {
    let resolved = host.resolve(path).map_err(|error| unreadable(path, name, error))?;
    let walk = Walk { host, path, name, resolved: &resolved, owner: trusted_owner(), file: false };
    walk.along(path, MAX_LINKS)
}

/// Checks the regular file `path`, links followed, and each directory above it.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_file(host: &Host, path: &Path, name: &str) -> Result<()> {
    let resolved = host.resolve(path).map_err(|error| unreadable(path, name, error))?;
    let walk = Walk { host, path, name, resolved: &resolved, owner: trusted_owner(), file: true };
    walk.along(path, MAX_LINKS)
}

/// Checks the directories above `path`: whoever owns what lies there, nobody else can put something
/// in its place.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_above(host: &Host, path: &Path, name: &str) -> Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    // No step of the way is the last one: a sticky directory will do.
    Walk { host, path, name, resolved: Path::new(""), owner: trusted_owner(), file: false }
        .along(parent, MAX_LINKS)
}

struct Walk<'a> {
    host: &'a Host,
    path: &'a Path,
    name: &'a str,
    resolved: &'a Path,
    owner: u32,
    /// Whether the last step is a file.
    file: bool,
}

impl Walk<'_> {
    fn along(&self, path: &Path, links_left: u32) -> Result<()> {
        for step in steps(path) {
            let failed = |error| unreadable(self.path, self.name, error);
            let metadata = self.host.symlink_metadata(&step).map_err(failed)?;
            let last = step == self.resolved;
            if last && !self.file && !metadata.is_dir() {
                return Err(self.refusal("is not a directory"));
            }
            if last && self.file && !metadata.is_file() {
                return Err(self.refusal("is no regular file"));
            }
            if let Some(fault) = fault(&metadata, self.owner, !last) {
                return Err(self.refusal(&format!("cannot be trusted: {} {fault}", step.display())));
            }
            if metadata.is_symlink() {
                let left = links_left.checked_sub(1).ok_or_else(|| self.refusal("is a loop"))?;
                let target = self.host.read_link(&step).map_err(failed)?;
                self.along(&step.parent().unwrap_or(Path::new("/")).join(target), left)?;
            }
        }
        Ok(())
    }

    fn refusal(&self, what: &str) -> Error {
        let what = format!("{} {} {what}", self.name, self.path.display());
        Error::new(Code::UntrustedPath, what)
    }
}

fn unreadable(path: &Path, name: &str, error: io::Error) -> Error {
    let what = format!("{name} {} cannot be looked at", path.display());
    Error::caused(Code::UntrustedPath, what, error)
}

/// What is wrong with a step of a path, if anything.
fn fault(metadata: &Metadata, owner: u32, sticky_allowed: bool) -> Option<String> {
    let (uid, mode) = (metadata.uid(), metadata.mode());
    if uid != 0 && uid != owner {
        return Some(format!("belongs to user {uid}"));
    }
    // The mode of a link means nothing.
    let writable = !metadata.is_symlink() && mode & WRITABLE_BY_OTHERS != 0;
    let sticky = sticky_allowed && mode & STICKY != 0;
    (writable && !sticky).then(|| format!("is writable by others (mode {:o})", mode & 0o7777))
}

/// `/a`, `/a/b` of `/a/b`.
fn steps(path: &Path) -> impl Iterator<Item = PathBuf> {
    let below_root = |step: &&Path| step.parent().is_some();
    let mut steps: Vec<_> = path.ancestors().filter(below_root).map(Path::to_path_buf).collect();
    steps.reverse();
    steps.into_iter()
}

/// The user that this process acts as: its files are no less its own than root's are. A shim runs
/// as root, so that this is one more user only for a person who tries `explain`.
fn trusted_owner() -> u32 {
    fs::metadata("/proc/self").map(|metadata| metadata.uid()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn tree() -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        for name in ["run", "run/driver", "tmp", "tmp/mine"] {
            fs::create_dir(dir.path().join(name)).unwrap();
            set_mode(&dir.path().join(name), 0o755);
        }
        set_mode(&dir.path().join("tmp"), 0o1777);
        let host = Host::new(dir.path());
        (dir, host)
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_directory_of_roots_is_trusted_even_below_a_sticky_one() {
        let (_dir, host) = tree();
        check(&host, Path::new("/run/driver"), "driver root").unwrap();
        check(&host, Path::new("/tmp/mine"), "driver root").unwrap();
        check(&host, Path::new("/"), "driver root").unwrap();
    }

    #[test]
    fn what_others_can_write_is_not() {
        let (dir, host) = tree();
        let error = check(&host, Path::new("/tmp"), "driver root").unwrap_err();
        assert!(error.to_string().contains("writable by others (mode 1777)"), "{error}");
        set_mode(&dir.path().join("run"), 0o775);
        let error = check(&host, Path::new("/run/driver"), "driver root").unwrap_err();
        assert!(
            error
                .to_string()
                .contains("driver root /run/driver cannot be trusted: /run is writable"),
            "{error}"
        );
    }

    #[test]
    fn what_lies_in_a_sticky_directory_cannot_be_replaced() {
        let (dir, host) = tree();
        let above = |path: &str| check_above(&host, Path::new(path), "socket");
        above("/tmp/mine").unwrap();
        above("/tmp").unwrap();
        set_mode(&dir.path().join("tmp"), 0o777);
        assert!(above("/tmp/mine").unwrap_err().to_string().contains("/tmp is writable"));
        chown(dir.path().join("run"), Some(1000), None).unwrap();
        above("/run/driver").unwrap_err();
    }

    #[test]
    fn what_others_own_is_not_nor_a_link_of_theirs() {
        let (dir, host) = tree();
        chown(dir.path().join("run/driver"), Some(1000), None).unwrap();
        let error = check(&host, Path::new("/run/driver"), "driver root").unwrap_err();
        assert!(error.to_string().contains("belongs to user 1000"), "{error}");
        symlink("mine", dir.path().join("tmp/link")).unwrap();
        check(&host, Path::new("/tmp/link"), "driver root").unwrap();
        std::os::unix::fs::lchown(dir.path().join("tmp/link"), Some(1000), None).unwrap();
        check(&host, Path::new("/tmp/link"), "driver root").unwrap_err();
    }

    #[test]
    fn a_file_or_nothing_is_no_directory() {
        let (dir, host) = tree();
        fs::write(dir.path().join("run/file"), "").unwrap();
        check(&host, Path::new("/run/file"), "dev root").unwrap_err();
        check(&host, Path::new("/run/none"), "dev root").unwrap_err();
    }
}
