//! A root filesystem that is read-only for its container, made writable while a hook works in it:
//! crun makes it read-only before it calls hooks, runc after them. Hooks of this stage are called in
//! the container's mount namespace, so that nobody else sees the mount, and before its first process.

use std::io;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sys::statvfs::FsFlags;

use crate::Rootfs;

/// How `statvfs` and `mount` call what a mount has.
const FLAGS: [(FsFlags, MsFlags); 6] = [
    (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
    (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
    (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
    (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
    (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
    (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
];

/// Does `work` in the root filesystem. One that cannot be made writable is left as it is: what is to
/// be written then fails, each with its own path.
pub(crate) fn while_writable<T>(rootfs: &Rootfs, work: impl FnOnce() -> T) -> io::Result<T> {
    let flags = rootfs.flags()?;
    let kept: MsFlags =
        FLAGS.iter().filter(|(had, _)| flags.contains(*had)).map(|(_, flag)| *flag).collect();
    let remount = |more: MsFlags| {
        let none: Option<&Path> = None;
        let how = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | kept | more;
        mount(none, rootfs.by_handle().as_str(), none, how, none)
    };
    let unlocked = flags.contains(FsFlags::ST_RDONLY) && remount(MsFlags::empty()).is_ok();
    let answer = work();
    if unlocked {
        remount(MsFlags::MS_RDONLY)?;
    }
    Ok(answer)
}
