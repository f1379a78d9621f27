//! Device nodes: those that are there, with what they are; those that are not, with what they
//! should be. They are looked at (`lstat`), never opened, and a link is never followed.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::NodeNumbers;
use super::procfs::Params;
use crate::host::below;
use crate::{Code, Error, Host, Result};

/// Majors below this are the kernel's own: memory, terminals, disks.
const FIRST_MAJOR: u32 = 10;

/// The place at which device nodes are looked for.
pub(super) struct Nodes {
    /// As the host names it.
    root: PathBuf,
    tree: Host,
    params: Params,
}

impl Nodes {
    pub(super) fn new(host: &Host, root: PathBuf, params: Params) -> Self {
        Self { tree: host.below(&root), root, params }
    }

    /// The node `path`, if it is there.
    ///
    /// # Errors
    /// Something else is there.
    pub(super) fn existing(&self, path: &Path) -> Result<Option<NodeNumbers>> {
        let host_path = self.host_path(path);
        let metadata = match self.tree.symlink_metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let what = format!("device node {}", host_path.display());
                return Err(Error::caused(Code::NodeMissing, what, error));
            }
        };
        if !metadata.file_type().is_char_device() {
            let what = format!("{} is no character device", host_path.display());
            return Err(Error::new(Code::NodeMissing, what));
        }
        let (major, minor) = numbers(metadata.rdev());
        if major < FIRST_MAJOR {
            let what = format!("{} has major {major}, no driver's", host_path.display());
            return Err(Error::new(Code::NodeMissing, what));
        }
        Ok(Some(NodeNumbers {
            path: path.to_owned(),
            host_path,
            major,
            minor,
            mode: metadata.mode() & 0o777,
            uid: metadata.uid(),
            gid: metadata.gid(),
            exists: true,
        }))
    }

    /// The node `path`, or what it should be where it is not there.
    ///
    /// # Errors
    /// As [`Self::existing_as`], and where the driver says that it has a major of the kernel's own.
    pub(super) fn expected(&self, path: &Path, major: u32, minor: u32) -> Result<NodeNumbers> {
        if let Some(node) = self.existing_as(path, major, minor)? {
            return Ok(node);
        }
        let host_path = self.host_path(path);
        if major < FIRST_MAJOR {
            let what = format!("{} would have major {major}, no driver's", host_path.display());
            return Err(Error::new(Code::NodeMissing, what));
        }
        Ok(NodeNumbers {
            path: path.to_owned(),
            host_path,
            major,
            minor,
            mode: self.params.mode,
            uid: self.params.uid,
            gid: self.params.gid,
            exists: false,
        })
    }

    /// The node `path`, if it is there.
    ///
    /// # Errors
    /// Something else is there, another device included: a node left over from a module that had
    /// another major, or one that was made for another GPU.
    pub(super) fn existing_as(
        &self,
        path: &Path,
        major: u32,
        minor: u32,
    ) -> Result<Option<NodeNumbers>> {
        let Some(node) = self.existing(path)? else { return Ok(None) };
        if (node.major, node.minor) != (major, minor) {
            let what = format!(
                "{} is device {}:{}, not {major}:{minor} as the driver says",
                node.host_path.display(),
                node.major,
                node.minor
            );
            return Err(Error::new(Code::NodeMissing, what));
        }
        Ok(Some(node))
    }

    /// Target of the link `path`, as it is stored.
    pub(super) fn link(&self, path: &Path) -> Option<PathBuf> {
        self.tree.read_link(path).ok()
    }

    /// Names in the directory `path`.
    pub(super) fn list(&self, path: &Path) -> std::io::Result<Vec<std::ffi::OsString>> {
        self.tree.read_dir(path)
    }

    fn host_path(&self, path: &Path) -> PathBuf {
        below(&self.root, path)
    }
}

/// A `dev_t` of Linux, taken apart.
pub(crate) fn numbers(device: u64) -> (u32, u32) {
    let major = ((device >> 8) & 0xfff) | ((device >> 32) & 0xffff_f000);
    let minor = (device & 0xff) | ((device >> 12) & 0xffff_ff00);
    (u32::try_from(major).unwrap_or(u32::MAX), u32::try_from(minor).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_of_more_than_eight_bits() {
        assert_eq!(numbers(0x1_fe08), (0x1fe, 8));
        assert_eq!(numbers((195 << 8) | 255), (195, 255));
        assert_eq!(
            numbers((511 << 8) | (0x12345 & 0xff) | ((0x12345 & !0xff) << 12)),
            (511, 0x12345)
        );
    }

    #[test]
    fn only_character_devices_of_drivers() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("dev")).unwrap();
        std::fs::write(dir.path().join("dev/nvidia0"), "").unwrap();
        std::os::unix::fs::symlink("/dev/null", dir.path().join("dev/nvidia1")).unwrap();
        let host = Host::new(dir.path());
        let nodes = Nodes::new(&host, PathBuf::from("/"), Params::default());
        let message = |path| nodes.existing(Path::new(path)).unwrap_err().to_string();
        assert!(message("/dev/nvidia0").contains("/dev/nvidia0 is no character device"));
        assert!(message("/dev/nvidia1").contains("/dev/nvidia1 is no character device"));
        let real = Nodes::new(&Host::new("/"), PathBuf::from("/"), Params::default());
        let error = real.existing(Path::new("/dev/null")).unwrap_err();
        assert!(error.to_string().contains("/dev/null has major 1"));
        let made = nodes.expected(Path::new("/dev/nvidia7"), 195, 7).unwrap();
        assert_eq!((made.major, made.minor, made.mode, made.exists), (195, 7, 0o666, false));
        let error = nodes.expected(Path::new("/dev/nvidia7"), 1, 7).unwrap_err();
        assert!(error.to_string().contains("/dev/nvidia7 would have major 1"), "{error}");
    }
}
