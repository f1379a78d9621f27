//! The root filesystem as the container has it: mounted as runc would, in a mount namespace of a
//! thread.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nvidia_hook::RootfsMount;

use crate::fixture::Fixture;

/// Mounts `mounts` and runs `inside` with the path of the root.
pub(crate) fn container<T: Send>(
    fixture: &Fixture,
    mounts: &[RootfsMount],
    inside: impl FnOnce(&Path) -> T + Send,
) -> T {
    let root = fixture.bundle().join("rootfs");
    let nothing = None::<&str>;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing).unwrap();
            for rootfs in mounts {
                let (mut flags, mut data) = (MsFlags::empty(), Vec::new());
                for option in &rootfs.options {
                    match option.as_str() {
                        "ro" => flags |= MsFlags::MS_RDONLY,
                        "rw" => {}
                        "rbind" => flags |= MsFlags::MS_BIND | MsFlags::MS_REC,
                        option => data.push(option),
                    }
                }
                let (source, kind) = (Some(rootfs.source.as_str()), Some(rootfs.kind.as_str()));
                mount(source, &root, kind, flags, Some(data.join(",").as_str())).unwrap();
            }
            let answer = inside(&root);
            for _ in mounts {
                umount2(&root, MntFlags::empty()).unwrap();
            }
            answer
        });
        thread.join().unwrap()
    })
}

/// Runs a program of the container in it.
pub(crate) fn run(root: &Path, command: &[&str]) -> Output {
    Command::new("/usr/sbin/chroot").arg(root).args(command).env_clear().output().unwrap()
}

/// The standard output of a program that must succeed.
pub(crate) fn output(root: &Path, command: &[&str]) -> String {
    let output = run(root, command);
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The path that the container's cache has for the SONAME.
pub(crate) fn cached(root: &Path, soname: &str) -> Option<String> {
    use nvidia_oci::elf::{Class, Machine};
    use nvidia_oci::ldcache::Cache;
    let cache = Cache::parse(&fs::read(root.join("etc/ld.so.cache")).unwrap()).unwrap();
    let found = cache.find(soname, Class::Elf64, Machine::X86_64)?;
    Some(found.display().to_string())
}
