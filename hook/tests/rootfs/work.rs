//! What a hook does in a container with its mounts, and what it does not.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nvidia_hook::{Command, Invocation, Work};
use nvidia_oci::{Code, Result};

use crate::container::container;
use crate::fixture::{Fixture, record};

/// The work that a command line means.
fn work(line: &str) -> Work {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let invocation = Invocation::parse(OsStr::new("nvidia-cdi-hook"), &words, |_| None).unwrap();
    match invocation.command {
        Command::Apply { work, .. } => *work,
        other => panic!("{other:?}"),
    }
}

/// Runs `test` in a container with a volume at `/volume` and a tmpfs at `/dev`.
fn inside(test: impl FnOnce(&Path, &Path) + Send) {
    let fixture = Fixture::new();
    let volume = fixture.path("volume");
    fs::create_dir(&volume).unwrap();
    fs::create_dir(fixture.path("1/fs/volume")).unwrap();
    container(&fixture, &[fixture.overlay()], |root| {
        let nothing = None::<&str>;
        let (dev, place) = (root.join("dev"), root.join("volume"));
        mount(Some("tmpfs"), &dev, Some("tmpfs"), MsFlags::empty(), nothing).unwrap();
        mount(Some(&volume), &place, nothing, MsFlags::MS_BIND, nothing).unwrap();
        test(root, &volume);
        for place in [&dev, &place] {
            umount2(place, MntFlags::empty()).unwrap();
        }
    });
}

fn refused(done: Result<()>) -> String {
    let error = done.unwrap_err();
    assert_eq!(error.code(), Code::FixupFailed);
    error.to_string()
}

#[test]
fn mounts_are_written_where_they_are_named() {
    inside(|root, volume| {
        let work = work(
            "apply --link ../card0::/dev/dri/by-path/x --link y::/volume/a/x --link y::/etc/x \
             --file /volume/f::text --mode 711 --path /dev/dri",
        );
        work.carry_out(root).unwrap();
        let first = record(root);
        work.carry_out(root).unwrap();
        assert_eq!(record(root), first, "twice is once");
        let link = |path: &Path| fs::read_link(path).unwrap().display().to_string();
        assert_eq!(link(&root.join("dev/dri/by-path/x")), "../card0");
        assert_eq!(link(&volume.join("a/x")), "y");
        assert_eq!(link(&root.join("etc/x")), "y");
        assert_eq!(fs::read_to_string(volume.join("f")).unwrap(), "text");
        let mode = fs::metadata(root.join("dev/dri")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o711);
    });
}

#[test]
fn no_link_of_the_image_leads_into_a_mount() {
    inside(|root, volume| {
        fs::create_dir(volume.join("there")).unwrap();
        fs::write(volume.join("ld.so.cache"), "").unwrap();
        fs::set_permissions(volume, fs::Permissions::from_mode(0o750)).unwrap();
        let before = record(volume);
        for (path, target) in [
            ("opt/a", "/volume"),
            ("opt/b", "../volume/there"),
            ("opt/c", "/volume/new/directories"),
            ("opt/d", "a"),
            ("opt/e", "/../../volume/there/../there"),
        ] {
            symlink(target, root.join(path)).unwrap();
            let words = format!("create-symlinks --link x::/{path}/link");
            let error = refused(work(&words).carry_out(root));
            assert!(error.contains(&format!("mounted on the way to /{path}")), "{error}");
        }
        refused(work("chmod --mode 777 --path /opt/a").carry_out(root));
        fs::remove_dir_all(root.join("etc")).unwrap();
        symlink("volume", root.join("etc")).unwrap();
        refused(work("update-ldcache --folder /opt/driver").carry_out(root));
        assert_eq!(record(volume), before);
    });
}

#[test]
fn nothing_is_copied_out_of_a_mount() {
    inside(|root, volume| {
        fs::write(volume.join("secret"), "/secret\n").unwrap();
        let config = root.join("etc/ld.so.conf.d/00-nvidia-shim.conf");
        fs::create_dir_all(config.parent().unwrap()).unwrap();
        symlink("/volume/secret", &config).unwrap();
        work("update-ldcache --folder /opt/driver").carry_out(root).unwrap();
        assert!(fs::symlink_metadata(&config).unwrap().is_file());
        assert_eq!(fs::read_to_string(config).unwrap(), "/opt/driver\n");
        symlink("/volume/secret", root.join("etc/ld.so.cache")).unwrap();
        let error = work("update-ldcache --folder /opt").carry_out(root).unwrap_err();
        assert_eq!(error.code(), Code::CacheUnreadable);
    });
}

/// As crun has it when it calls hooks.
#[test]
fn a_read_only_root_is_written_and_is_read_only_again() {
    let fixture = Fixture::new();
    container(&fixture, &[fixture.overlay()], |root| {
        let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
        let nothing = None::<&str>;
        mount(nothing, root, nothing, read_only | MsFlags::MS_NOSUID, nothing).unwrap();
        work("create-symlinks --link y::/etc/x").carry_out(root).unwrap();
        assert_eq!(fs::read_link(root.join("etc/x")).unwrap(), Path::new("y"));
        assert!(fs::write(root.join("etc/new"), "").is_err());
        let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap();
        let line = mounts.lines().find(|line| line.contains(root.to_str().unwrap())).unwrap();
        assert!(line.contains(" ro,nosuid,"), "{line}");
    });
}

#[test]
fn the_hosts_own_root_is_refused() {
    for root in ["/", "/proc/self/root"] {
        let error = Work::default().carry_out(Path::new(root)).unwrap_err();
        assert_eq!(error.code(), Code::SpecUnreadable);
        assert!(error.to_string().contains("the host's own"), "{error}");
    }
}
