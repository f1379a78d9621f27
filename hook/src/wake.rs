//! Opening a GPU once, so that the driver reads its UUID.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag, makedev, mknodat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use nvidia_oci::{Code, Error, Host, Result};

use crate::host::{HANDLE, is_device, open_dev};

/// Opens the GPU of the device number within a time: the driver initialises a GPU when it is first
/// opened, which takes seconds on large machines.
///
/// # Errors
/// [`Code::UuidUnknown`] with what the driver answered.
pub(crate) fn gpu(host: &Host, major: u32, minor: u32, within: Duration) -> Result<()> {
    open_dev(host, Path::new("/dev"))
        .and_then(|dev| handle(&dev, major, minor))
        .and_then(|node| open_once(node, within))
        .map_err(|error| {
            let what = format!("/dev/nvidia{minor} cannot be opened to learn the GPU's UUID");
            Error::caused(Code::UuidUnknown, what, error)
        })
}

/// A handle of the GPU's node, which is not opened yet. Where there is none, as after boot, one is
/// made for as long as it takes.
fn handle(dev: &OwnedFd, major: u32, minor: u32) -> io::Result<OwnedFd> {
    let name = format!("nvidia{minor}");
    let handle = match openat(dev, name.as_str(), HANDLE, Mode::empty()) {
        Err(Errno::ENOENT) => {
            let temporary = format!(".nvidia-shim.{}.{major}:{minor}", std::process::id());
            let (temporary, device) = (temporary.as_str(), makedev(major.into(), minor.into()));
            mknodat(dev, temporary, SFlag::S_IFCHR, Mode::S_IRUSR | Mode::S_IWUSR, device)?;
            let handle = openat(dev, temporary, HANDLE, Mode::empty());
            unlinkat(dev, temporary, UnlinkatFlags::NoRemoveDir)?;
            handle
        }
        handle => handle,
    }?;
    let node = File::from(handle);
    if is_device(&node.metadata()?, major, minor) {
        Ok(node.into())
    } else {
        Err(io::Error::other(format!("it is not device {major}:{minor}")))
    }
}

/// Opens what the handle stands for. A driver that hangs must not take the caller along: the
/// thread is then left behind, and ends with the process, a short worker.
fn open_once(handle: OwnedFd, within: Duration) -> io::Result<()> {
    let (answer, answered) = mpsc::channel();
    std::thread::spawn(move || {
        let device = format!("/proc/self/fd/{}", handle.as_raw_fd());
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let opened = open(device.as_str(), flags, Mode::empty()).map(drop);
        if answer.send(opened).is_err() {
            log::debug!("a GPU was opened too late");
        }
    });
    match answered.recv_timeout(within) {
        Ok(opened) => Ok(opened?),
        Err(_) => Err(Errno::ETIMEDOUT.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_right_device_is_opened_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let dev = dir.path().join("dev");
        fs::create_dir(&dev).unwrap();
        let host = Host::new(dir.path());
        let wake = || gpu(&host, 195, 0, Duration::from_secs(60)).unwrap_err().to_string();
        // No driver here: the device that was made for it is opened, and answers so.
        assert!(wake().contains("No such device or address"), "{}", wake());
        assert_eq!(fs::read_dir(&dev).unwrap().count(), 0);

        let mknod = |name: &str, minor| {
            let mode = Mode::S_IRUSR;
            nix::sys::stat::mknod(&dev.join(name), SFlag::S_IFCHR, mode, makedev(195, minor))
                .unwrap();
        };
        mknod("nvidia0", 1);
        assert!(wake().contains("not device 195:0"), "{}", wake());
        fs::remove_file(dev.join("nvidia0")).unwrap();
        mknod("other", 0);
        std::os::unix::fs::symlink("other", dev.join("nvidia0")).unwrap();
        assert!(wake().contains("not device 195:0"), "{}", wake());
    }
}
