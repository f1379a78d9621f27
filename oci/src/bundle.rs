//! The bundle's `config.json`, in and out: nothing lost, nothing reordered, nothing written when
//! nothing changes.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use crate::{Code, Error, Result, Spec};

/// More than any container engine writes; a file beyond it is no spec.
const LIMIT: u64 = 16 << 20;
/// What containerd writes has less.
const USUAL_SIZE: usize = 32 << 10;

/// A bundle directory and the spec that was read from it.
#[derive(Clone, Debug)]
pub struct Bundle {
    pub dir: PathBuf,
    spec: Spec,
}

impl Bundle {
    /// Reads `config.json` of the bundle directory `dir`.
    ///
    /// # Errors
    /// [`Code::SpecUnreadable`], naming the file, and line and column where it is not JSON.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self> {
        let dir = dir.into();
        let path = config_path(&dir);
        let spec = Spec::parse(&read(&path)?, &path)?;
        Ok(Self { dir, spec })
    }

    /// The bytes of `config.json` of the bundle directory `dir`, at most 16 MiB.
    ///
    /// # Errors
    /// [`Code::SpecUnreadable`], naming the file.
    pub fn read(dir: &Path) -> Result<Vec<u8>> {
        read(&config_path(dir))
    }

    /// The bytes of a spec that lies elsewhere, at most 16 MiB; `None` if it is no regular file:
    /// what is read of a pipe is gone for others.
    ///
    /// # Errors
    /// [`Code::SpecUnreadable`], naming the file.
    pub fn read_elsewhere(path: &Path) -> Result<Option<Vec<u8>>> {
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Ok(None);
        }
        read(path).map(Some)
    }

    /// The spec as it was read.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Replaces `config.json` by `edited`, whole or not at all, mode and owner kept. Says whether
    /// it wrote: a spec equal to the one that was read leaves the file as it is.
    ///
    /// # Errors
    /// [`Code::SpecUnreadable`] if the bundle cannot be written; the file is then as it was.
    pub fn write(&self, edited: &Spec) -> Result<bool> {
        if *edited == self.spec {
            return Ok(false);
        }
        let path = config_path(&self.dir);
        replace(&path, &edited.to_json()).map_err(|error| {
            let what = format!("{} cannot be written", path.display());
            Error::caused(Code::SpecUnreadable, what, error)
        })?;
        Ok(true)
    }
}

fn config_path(dir: &Path) -> PathBuf {
    dir.join("config.json")
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let read = || {
        let mut bytes = Vec::with_capacity(USUAL_SIZE);
        File::open(path)?.take(LIMIT + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LIMIT {
            return Err(io::Error::other(format!("larger than {LIMIT} bytes")));
        }
        Ok(bytes)
    };
    let what = || format!("{} cannot be read", path.display());
    read().map_err(|error| Error::caused(Code::SpecUnreadable, what(), error))
}

/// No fsync: the bundle lies on a tmpfs and does not outlive a crash of the machine.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let before = fs::metadata(path)?;
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".config.json.").tempfile_in(dir)?;
    file.write_all(content)?;
    let made = file.as_file();
    let now = made.metadata()?;
    if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
        fchown(made, Some(before.uid()), Some(before.gid()))?;
    }
    made.set_permissions(before.permissions())?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn bundle(json: &str) -> (tempfile::TempDir, Bundle) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("config.json"), json).unwrap();
        let bundle = Bundle::open(dir.path()).unwrap();
        (dir, bundle)
    }

    #[test]
    fn an_unchanged_spec_is_not_written() {
        let (dir, bundle) = bundle("{ \"a\" : 1 }");
        assert!(!bundle.write(&bundle.spec().clone()).unwrap());
        assert_eq!(fs::read(dir.path().join("config.json")).unwrap(), b"{ \"a\" : 1 }");
    }

    #[test]
    fn a_written_spec_keeps_mode_and_leaves_nothing_beside_it() {
        let (dir, bundle) = bundle("{}");
        let path = dir.path().join("config.json");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let edited = Spec::parse(b"{\"a\":1}", &path).unwrap();
        assert!(bundle.write(&edited).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"{\"a\":1}\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_missing_or_endless_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let error = Bundle::open(dir.path()).unwrap_err();
        assert!(error.to_string().contains("config.json cannot be read"), "{error}");
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("config.json")).unwrap();
        let error = Bundle::open(dir.path()).unwrap_err();
        assert!(error.to_string().contains("larger than"), "{error}");
    }
}
