//! Mounts that no path leads to: held by a handle, seen by nobody else, gone when it is closed.
//! Their cost does not depend on how many mounts the host has.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
    open_tree,
};

/// The longest value that `fsconfig` takes, with its NUL.
const MAX_VALUE: usize = 256;

/// The name of the only file of a file system.
const FILE: &str = "file";

/// A key with its value, if it has one.
pub(crate) type MountOption = (String, Option<String>);

/// A read-only overlay of `layers`, the topmost first. It has no upper directory: ending it syncs
/// nothing, and marks nothing as in use.
pub(crate) fn overlay(layers: &[&Path], options: &[MountOption]) -> io::Result<OwnedFd> {
    match one_by_one(&handles(layers)?, options)? {
        Some(mounted) => Ok(mounted),
        None => joined(layers, options),
    }
}

/// A file system of `kind` on the block device `source`.
pub(crate) fn block(
    kind: &str,
    source: &str,
    options: &[MountOption],
    attributes: MountAttrFlags,
) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", source)?;
    set(&context, options)?;
    create(&context, attributes)
}

/// An empty tree.
pub(crate) fn empty() -> io::Result<OwnedFd> {
    create(&fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?, look())
}

/// One read-only file with this content, to be mounted over another. `staging` is a directory of
/// the mount namespace that we are in, where nobody else looks.
pub(crate) fn file(content: &[u8], staging: &OwnedFd) -> io::Result<OwnedFd> {
    let tree = tree_of(content)?;
    match clone(&tree) {
        Err(Errno::EINVAL) => staged(&tree, staging),
        cloned => Ok(cloned?),
    }
}

/// A read-only file system of nothing but [`FILE`].
fn tree_of(content: &[u8]) -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let tree = create(&context, attributes)?;
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let mode = Mode::S_IRUSR | Mode::S_IRGRP | Mode::S_IROTH;
    File::from(openat(&tree, FILE, flags, mode)?).write_all(content)?;
    fsconfig_set_flag(&context, "ro").map_err(|error| said(&context, error))?;
    fsconfig_reconfigure(&context).map_err(|error| said(&context, error))?;
    Ok(tree)
}

/// A part of a mount that no path leads to can be cloned since Linux 6.15; before, a path has to
/// lead there for a moment.
fn staged(tree: &OwnedFd, staging: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", staging, "", flags)?;
    let cloned = clone(tree);
    let there = format!("/proc/self/fd/{}", tree.as_raw_fd());
    umount2(there.as_str(), MntFlags::MNT_DETACH)?;
    Ok(cloned?)
}

fn clone(tree: &OwnedFd) -> nix::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(tree, FILE, flags).map_err(|error| Errno::from_raw(error.raw_os_error()))
}

/// Linux 6.7 and later. `None` where the kernel does not know the way, which before 6.5 it says
/// only at the end. What else is invalid, the other way will say.
fn one_by_one(layers: &[OwnedFd], options: &[MountOption]) -> io::Result<Option<OwnedFd>> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let mounted = layers
        .iter()
        .try_for_each(|layer| {
            let path = format!("/proc/self/fd/{}", layer.as_raw_fd());
            fsconfig_set_string(&context, "lowerdir+", path).map_err(|error| said(&context, error))
        })
        .and_then(|()| set(&context, options))
        .and_then(|()| create(&context, look()));
    match mounted {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        mounted => mounted.map(Some),
    }
}

/// Older kernels take all layers as one string: short, since in `/proc/self/fd` a layer is a
/// number. That directory must be the current one, of a thread of its own.
fn joined(layers: &[&Path], options: &[MountOption]) -> io::Result<OwnedFd> {
    let mount_there = || {
        unshare(CloneFlags::CLONE_FS)?;
        nix::unistd::chdir("/proc/self/fd")?;
        let handles = handles(layers)?;
        let lowers = numbers(&handles);
        if lowers.len() >= MAX_VALUE {
            drop(handles);
            return in_private_namespace(layers, options);
        }
        let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(&context, "lowerdir", lowers).map_err(|error| said(&context, error))?;
        set(&context, options)?;
        create(&context, look())
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(mount_there);
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the mounting thread panicked")))
    })
}

/// Too many layers for `fsconfig`: mount(2) takes a page of them. The mount is detached before the
/// namespace ends, so that only the handle holds it. The target is the topmost layer, a directory
/// that is there in any case.
fn in_private_namespace(layers: &[&Path], options: &[MountOption]) -> io::Result<OwnedFd> {
    let target = layers.first().copied().ok_or(Errno::EINVAL)?;
    let nothing = None::<&str>;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)?;
    // The kernel refuses layers whose handles are of another namespace.
    let handles = handles(layers)?;
    let mut data = format!("lowerdir={}", numbers(&handles));
    for (key, value) in options {
        data.push(',');
        data.push_str(key);
        if let Some(value) = value {
            data.push('=');
            data.push_str(value);
        }
    }
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("overlay"), target, Some("overlay"), flags, Some(data.as_str()))?;
    let held = handle(target);
    umount2(target, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)?;
    held
}

/// Layers are named by their handles, so that neither colons nor long paths matter.
fn handles(layers: &[&Path]) -> io::Result<Vec<OwnedFd>> {
    layers.iter().map(|layer| handle(layer)).collect()
}

fn handle(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty()).map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    })
}

/// The layers as overlayfs reads them with `/proc/self/fd` as current directory.
fn numbers(handles: &[OwnedFd]) -> String {
    let numbers: Vec<String> = handles.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
    numbers.join(":")
}

/// Devices in an image are none here, and nothing of it runs.
fn look() -> MountAttrFlags {
    MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
}

fn set(context: &OwnedFd, options: &[MountOption]) -> io::Result<()> {
    for (key, value) in options {
        match value {
            Some(value) => fsconfig_set_string(context, key.as_str(), value.as_str()),
            None => fsconfig_set_flag(context, key.as_str()),
        }
        .map_err(|error| said(context, error))?;
    }
    Ok(())
}

fn create(context: &OwnedFd, attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    fsconfig_create(context).map_err(|error| said(context, error))?;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// The error with what the file system says of it, which is read from the context.
fn said(context: &OwnedFd, error: rustix::io::Errno) -> io::Error {
    let mut words = [0; 512];
    let read = context.try_clone().and_then(|context| File::from(context).read(&mut words));
    let error = io::Error::from(error);
    match read.ok().and_then(|length| words.get(..length)) {
        Some(words) if !words.is_empty() => {
            let words = String::from_utf8_lossy(words);
            io::Error::new(error.kind(), format!("{error}: {}", words.trim()))
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::Rootfs;

    fn layers(count: usize) -> (tempfile::TempDir, Vec<PathBuf>) {
        let dir = tempfile::tempdir().unwrap();
        let layers: Vec<PathBuf> =
            (0..count).map(|n| dir.path().join(format!("layer:{n},{}", "x".repeat(200)))).collect();
        for (n, layer) in layers.iter().enumerate() {
            fs::create_dir(layer).unwrap();
            fs::write(layer.join("who"), n.to_string()).unwrap();
            fs::write(layer.join(n.to_string()), "").unwrap();
        }
        (dir, layers)
    }

    fn paths(layers: &[PathBuf]) -> Vec<&Path> {
        layers.iter().map(PathBuf::as_path).collect()
    }

    fn check(mounted: OwnedFd, count: usize) {
        let rootfs = Rootfs::held(mounted);
        assert_eq!(rootfs.read(Path::new("/who"), 10).unwrap(), b"0");
        for n in 0..count {
            assert!(rootfs.metadata(Path::new(&format!("/{n}"))).unwrap().is_file());
        }
    }

    #[test]
    fn layers_with_delimiters_and_long_names() {
        let (_dir, layers) = layers(3);
        check(overlay(&paths(&layers), &[]).unwrap(), 3);
    }

    #[test]
    fn the_way_of_older_kernels() {
        let (_dir, layers) = layers(3);
        check(joined(&paths(&layers), &[]).unwrap(), 3);
    }

    #[test]
    fn the_way_of_older_kernels_with_many_layers() {
        let (_dir, layers) = layers(120);
        check(joined(&paths(&layers), &[]).unwrap(), 120);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(layers[0].to_str().unwrap()));
    }

    /// In a mount namespace of its own, whose mounts end with it.
    fn in_namespace(test: impl FnOnce() + Send) {
        let inside = || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let nothing = None::<&str>;
            mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing).unwrap();
            test();
        };
        std::thread::scope(|scope| scope.spawn(inside).join().unwrap());
    }

    #[test]
    fn a_file_is_mounted_over_another_and_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let masked = dir.path().join("params");
        fs::write(&masked, "image").unwrap();
        in_namespace(|| {
            let flags =
                MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
            // Handles of the namespace that the mount is for.
            let place = open(&masked, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).unwrap();
            let staging = handle(dir.path()).unwrap();
            let older = |content: &[u8]| staged(&tree_of(content).unwrap(), &staging);
            for mounted in [file(b"masked", &staging), older(b"masked")] {
                let mounted = mounted.unwrap();
                move_mount(&mounted, "", &place, "", flags).unwrap();
                assert_eq!(fs::read(&masked).unwrap(), b"masked");
                let error = fs::write(&masked, "").unwrap_err();
                assert_eq!(error.raw_os_error(), Some(Errno::EROFS as i32));
                umount2(&masked, MntFlags::MNT_DETACH).unwrap();
                assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "staging is left");
            }
        });
        assert_eq!(fs::read(&masked).unwrap(), b"image");
    }

    #[test]
    fn a_missing_layer_is_named() {
        let error = overlay(&[Path::new("/none/such"), Path::new("/")], &[]).unwrap_err();
        assert!(error.to_string().contains("/none/such"));
    }
}
