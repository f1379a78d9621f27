//! Changes on the host: device nodes, `/dev/char` links, kernel modules, GPUs to wake.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, makedev, mkdirat, mknodat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, symlinkat, unlinkat};
use nvidia_oci::{Code, Error, Host, MissingNode, Need, Result};
use rustix::fs::{RenameFlags, renameat_with};

use crate::{modprobe, wake};

/// Majors below are the kernel's own memory, terminals and disks: none is ever a GPU's.
const LOWEST_MAJOR: u32 = 10;

/// For a look at what a name stands for, whatever it is.
pub(crate) const HANDLE: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Makes what [`nvidia_oci::Inquiry::needs`] found wanting, all of it `within` a time.
///
/// # Errors
/// [`Code::ModuleNotLoaded`] with what modprobe said, [`Code::UuidUnknown`] if the GPU's node
/// cannot be opened.
pub fn satisfy(host: &Host, needs: &[Need], within: Duration) -> Result<()> {
    let end = Instant::now() + within;
    needs.iter().try_for_each(|need| {
        let left = end.saturating_duration_since(Instant::now());
        match need {
            Need::Module(name) => modprobe::load(host, name, left),
            Need::Wake { minor, major } => wake::gpu(host, *major, *minor, left),
        }
    })
}

/// Makes a device node with its `/dev/char` link; one that another process made meanwhile is
/// left as it is if it is the same device.
///
/// # Errors
/// [`Code::NodeMissing`]: no device of a GPU, something else has its name, or the system refuses.
pub fn make_node(host: &Host, node: &MissingNode) -> Result<()> {
    let failed = |error: io::Error| {
        let what = format!("device node {} cannot be made", node.path.display());
        Error::caused(Code::NodeMissing, what, error)
    };
    let (major, minor) = (node.major, node.minor);
    if major < LOWEST_MAJOR {
        let what = format!("{} as {major}:{minor} would be no GPU device", node.path.display());
        return Err(Error::new(Code::NodeMissing, what));
    }
    let Some((path, below, name)) = split(&node.path) else {
        return Err(failed(io::Error::other("no path below a directory dev")));
    };
    let dev = open_dev(host, path).map_err(failed)?;
    let parent = directory(&dev, below.parent().unwrap_or(Path::new(""))).map_err(failed)?;
    make(&parent, name, node).map_err(failed)?;
    link_by_number(&dev, below, major, minor).map_err(|error| {
        let what = format!("{}/char/{major}:{minor} cannot be made", path.display());
        Error::caused(Code::NodeMissing, what, error)
    })
}

/// The node under a name of its own, complete, and then under its name unless that is taken.
fn make(directory: &OwnedFd, name: &OsStr, node: &MissingNode) -> io::Result<()> {
    if let Some(there) = look(directory, name)? {
        return expect(&there, node);
    }
    let temporary = format!(".nvidia-shim.{}.{}:{}", std::process::id(), node.major, node.minor);
    let temporary = temporary.as_str();
    let device = makedev(node.major.into(), node.minor.into());
    mknodat(directory, temporary, SFlag::S_IFCHR, Mode::empty(), device)?;
    let named = own(directory, temporary, node).and_then(|()| {
        Ok(renameat_with(directory, temporary, directory, name, RenameFlags::NOREPLACE)?)
    });
    match named {
        Ok(()) => Ok(()),
        Err(error) => {
            unlinkat(directory, temporary, UnlinkatFlags::NoRemoveDir)?;
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(error);
            }
            look(directory, name)?.map_or(Err(error), |there| expect(&there, node))
        }
    }
}

fn own(directory: &OwnedFd, name: &str, node: &MissingNode) -> io::Result<()> {
    let (uid, gid) = (Some(Uid::from_raw(node.uid)), Some(Gid::from_raw(node.gid)));
    fchownat(directory, name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    let mode = Mode::from_bits_truncate(node.mode & 0o777);
    // The name is ours and root's directory has no other writer: nothing to be followed.
    fchmodat(directory, name, mode, FchmodatFlags::FollowSymlink)?;
    Ok(())
}

fn expect(there: &Metadata, node: &MissingNode) -> io::Result<()> {
    let (major, minor) = (node.major, node.minor);
    if is_device(there, major, minor) {
        return Ok(());
    }
    Err(io::Error::other(format!("something that is not device {major}:{minor} has its name")))
}

pub(crate) fn is_device(there: &Metadata, major: u32, minor: u32) -> bool {
    there.file_type().is_char_device() && there.rdev() == makedev(major.into(), minor.into())
}

/// `/dev/char/M:m → ../nvidia0`: runc finds devices by it where systemd manages the cgroups.
fn link_by_number(dev: &OwnedFd, below: &Path, major: u32, minor: u32) -> io::Result<()> {
    let char = directory(dev, Path::new("char"))?;
    let name = format!("{major}:{minor}");
    let target = Path::new("..").join(below);
    match readlinkat(&char, name.as_str()) {
        Ok(there) if there == target.as_os_str() => return Ok(()),
        Ok(_) | Err(Errno::ENOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let temporary = format!(".nvidia-shim.{}.{name}", std::process::id());
    symlinkat(&target, &char, temporary.as_str())?;
    Ok(renameat(&char, temporary.as_str(), &char, name.as_str())?)
}

/// The directory `dev` in a node's path, what follows it, and the node's own name.
fn split(path: &Path) -> Option<(&Path, &Path, &OsStr)> {
    let is_dev = |path: &&Path| path.file_name().is_some_and(|name| name == "dev");
    let dev = path.ancestors().skip(1).find(is_dev)?;
    Some((dev, path.strip_prefix(dev).ok()?, path.file_name()?))
}

/// A host's directory of devices: its path may hold links, as a driver root does.
pub(crate) fn open_dev(host: &Host, dev: &Path) -> io::Result<OwnedFd> {
    let dev = host.join(&host.resolve(dev)?);
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(nix::fcntl::open(&dev, flags, Mode::empty())?)
}

/// The directory `path` below `dev`, made where it is missing. No link in /dev is followed.
fn directory(dev: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let how = OpenHow::new()
        .flags(flags)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    match openat2(dev, path, how) {
        Err(Errno::ENOENT) => {}
        answer => return Ok(answer?),
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::ENOENT.into());
    };
    let parent = directory(dev, parent)?;
    match mkdirat(&parent, name, Mode::from_bits_truncate(0o755)) {
        // Another process made it.
        Err(Errno::EEXIST) => {}
        // The umask takes what it likes: the mode is set again.
        answer => answer.and_then(|()| {
            fchmodat(&parent, name, Mode::from_bits_truncate(0o755), FchmodatFlags::FollowSymlink)
        })?,
    }
    Ok(openat2(dev, path, how)?)
}

pub(crate) fn look(directory: &OwnedFd, name: &OsStr) -> io::Result<Option<Metadata>> {
    match openat(directory, name, HANDLE, Mode::empty()) {
        Ok(seen) => Ok(Some(File::from(seen).metadata()?)),
        Err(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn host() -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("dev")).unwrap();
        let host = Host::new(dir.path());
        (dir, host)
    }

    fn node(path: &str, minor: u32) -> MissingNode {
        MissingNode { path: path.into(), major: 195, minor, mode: 0o666, uid: 7, gid: 44 }
    }

    #[test]
    fn a_node_gets_exactly_its_owner_mode_and_link() {
        let (dir, host) = host();
        let wanted = node("/dev/nvidia3", 3);
        make_node(&host, &wanted).unwrap();
        make_node(&host, &wanted).unwrap();
        let made = fs::symlink_metadata(dir.path().join("dev/nvidia3")).unwrap();
        assert!(made.file_type().is_char_device());
        assert_eq!(made.rdev(), makedev(195, 3));
        assert_eq!(made.permissions().mode() & 0o7777, 0o666);
        assert_eq!((made.uid(), made.gid()), (7, 44));
        let link = fs::read_link(dir.path().join("dev/char/195:3")).unwrap();
        assert_eq!(link, Path::new("../nvidia3"));
        assert_eq!(fs::read_dir(dir.path().join("dev")).unwrap().count(), 2);
    }

    #[test]
    fn a_node_in_a_directory_of_its_own_and_a_stale_link() {
        let (dir, host) = host();
        fs::create_dir(dir.path().join("dev/char")).unwrap();
        symlink("../nvidia9", dir.path().join("dev/char/195:1")).unwrap();
        make_node(&host, &node("/dev/nvidia-caps/nvidia-cap1", 1)).unwrap();
        assert!(fs::metadata(dir.path().join("dev/char/195:1")).unwrap().rdev() == makedev(195, 1));
    }

    #[test]
    fn another_device_or_a_link_by_that_name_is_refused_and_stays() {
        let (dir, host) = host();
        make_node(&host, &node("/dev/nvidia0", 1)).unwrap();
        let error = make_node(&host, &node("/dev/nvidia0", 0)).unwrap_err();
        assert_eq!(error.code(), Code::NodeMissing);
        assert!(error.to_string().contains("/dev/nvidia0"), "{error}");

        symlink("nvidia0", dir.path().join("dev/nvidia1")).unwrap();
        assert!(make_node(&host, &node("/dev/nvidia1", 1)).is_err());
        assert!(fs::symlink_metadata(dir.path().join("dev/nvidia1")).unwrap().is_symlink());
    }

    #[test]
    fn no_link_in_dev_is_followed() {
        let (dir, host) = host();
        fs::create_dir(dir.path().join("elsewhere")).unwrap();
        symlink("../elsewhere", dir.path().join("dev/nvidia-caps")).unwrap();
        assert!(make_node(&host, &node("/dev/nvidia-caps/nvidia-cap1", 1)).is_err());
        symlink("../elsewhere", dir.path().join("dev/char")).unwrap();
        assert!(make_node(&host, &node("/dev/nvidia0", 0)).is_err());
        assert_eq!(fs::read_dir(dir.path().join("elsewhere")).unwrap().count(), 0);
    }

    #[test]
    fn majors_of_the_kernel_itself_are_refused() {
        let (dir, host) = host();
        let mut memory = node("/dev/nvidia0", 1);
        memory.major = 1;
        assert!(make_node(&host, &memory).is_err());
        memory.major = 195;
        memory.path = "/etc/nvidia0".into();
        assert!(make_node(&host, &memory).is_err());
        assert_eq!(fs::read_dir(dir.path().join("dev")).unwrap().count(), 0);
    }

    #[test]
    fn many_at_once_make_one_node() {
        let (dir, host) = host();
        let wanted = node("/dev/nvidia5", 5);
        std::thread::scope(|scope| {
            let makers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| make_node(&host, &wanted).is_ok())).collect();
            assert!(makers.into_iter().any(|maker| maker.join().unwrap()));
        });
        assert_eq!(fs::read_dir(dir.path().join("dev")).unwrap().count(), 2);
    }
}
