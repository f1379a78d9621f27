//! Images of odd shapes: whatever lies where something is written or mounted, and whatever
//! attributes it has, there is a container or a refusal that names the place.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;
use nvidia_hook::{Look, Rootfs};
use nvidia_oci::Code;
use nvidia_oci::elf::{Class, Machine};
use nvidia_oci::ldcache::Cache;
use rustix::fs::{XattrFlags, getxattr, setxattr};

use crate::container::{cached, container};
use crate::fixture::{Fixture, LIBRARIES, record};

/// Where files are mounted, written and linked.
const PLACES: [&str; 5] = [
    "opt/gpu/lib/libcuda.so.550",
    "opt/gpu/lib/libcuda.so.1",
    "usr/bin/nvidia-smi",
    "etc/ld.so.conf.d/00-nvidia-shim.conf",
    "etc/ld.so.conf",
];

type Make<'a> = &'a dyn Fn(&Path);

fn free(image: &Path, place: &str) -> std::path::PathBuf {
    let place = image.join(place);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    place
}

#[test]
fn whatever_lies_at_a_place_is_covered_or_replaced_and_never_opened() {
    let kinds: [(&str, Make<'_>); 5] = [
        ("fifo", &|place| mkfifo(place, Mode::S_IRWXU).unwrap()),
        ("socket", &|place| drop(UnixListener::bind(place).unwrap())),
        // The console and a whiteout: opening the one would be heard, the other is removed.
        ("device", &|p| mknod(p, SFlag::S_IFCHR, Mode::S_IRWXU, makedev(5, 1)).unwrap()),
        ("whiteout", &|p| mknod(p, SFlag::S_IFCHR, Mode::empty(), makedev(0, 0)).unwrap()),
        ("set-id", &|place| {
            fs::write(place, "#!/bin/sh").unwrap();
            chown(place, Some(1000), Some(1000)).unwrap();
            fs::set_permissions(place, Permissions::from_mode(0o6755)).unwrap();
        }),
    ];
    for (kind, make) in kinds {
        for way in 0..2 {
            let fixture = Fixture::new();
            for place in PLACES {
                make(&free(&fixture.path("1/fs"), place));
            }
            let mounts = [[fixture.overlay(), fixture.bind("rw")][way].clone()];
            let prepared = fixture.apply(&mounts).unwrap();
            container(&fixture, &prepared.mounts, |root| {
                let link = fs::read_link(root.join("opt/gpu/lib/libcuda.so.1"));
                assert_eq!(link.unwrap(), Path::new("libcuda.so.550"), "{kind}");
                let config = fs::metadata(root.join("etc/ld.so.conf.d/00-nvidia-shim.conf"));
                assert_eq!(config.unwrap().mode() & 0o7000, 0, "{kind}");
                assert!(cached(root, "libcuda.so.1").is_some(), "{kind}");
            });
        }
    }
}

#[test]
fn links_into_the_file_systems_of_the_kernel() {
    for target in ["/proc/self/root", "/proc/self/fd", "/dev/fd", "/sys", "/", ".", "/proc/1/cwd"] {
        for path in ["usr/lib", "opt/gpu/lib", "opt", "etc", "usr/bin", "etc/ld.so.conf.d"] {
            let fixture = Fixture::new();
            let image = fixture.path("1/fs");
            fs::remove_dir_all(fixture.path("2/fs/etc")).unwrap();
            if image.join(path).exists() {
                fs::remove_dir_all(image.join(path)).unwrap();
            }
            symlink(target, free(&image, path)).unwrap();
            for mounts in [fixture.overlay(), fixture.bind("rw")] {
                match fixture.apply(&[mounts]) {
                    Ok(prepared) => container(&fixture, &prepared.mounts, |_| {}),
                    Err(error) => assert_eq!(error.code(), Code::FixupFailed, "{error}"),
                }
            }
        }
    }
}

#[test]
fn notes_of_overlayfs_in_an_image_are_not_copied_and_lists_of_access_are() {
    let fixture = Fixture::new();
    let etc = fixture.path("2/fs/etc");
    fs::create_dir(fixture.path("1/fs/hidden")).unwrap();
    let set = |name: &str, value: &[u8]| setxattr(&etc, name, value, XattrFlags::empty()).unwrap();
    set("trusted.overlay.opaque", b"y");
    set("trusted.overlay.redirect", b"/hidden");
    set("trusted.overlay.origin", b"\0\xfb");
    set("user.overlay.opaque", b"y");
    set("trusted.other", b"kept");
    // Version 2; user::rwx, user:1000:rwx, group::r-x, mask::rwx, other::r-x
    let mut access = vec![2, 0, 0, 0];
    for (tag, permissions, id) in [
        (1_u16, 7_u16, u32::MAX),
        (2, 7, 1000),
        (4, 5, u32::MAX),
        (16, 7, u32::MAX),
        (32, 5, u32::MAX),
    ] {
        access.extend(tag.to_le_bytes());
        access.extend(permissions.to_le_bytes());
        access.extend(id.to_le_bytes());
    }
    set("system.posix_acl_default", &access);
    let prepared = fixture.apply(&[fixture.overlay()]).unwrap();
    let layer = fixture.layer().join("etc");
    let read = |name: &str| getxattr(&layer, name, &mut [0; 256][..]).is_ok();
    for name in ["opaque", "redirect", "origin", "metacopy"] {
        assert!(!read(&format!("trusted.overlay.{name}")), "{name}");
        assert!(!read(&format!("user.overlay.{name}")), "{name}");
    }
    assert!(read("trusted.other") && read("system.posix_acl_default"));
    container(&fixture, &prepared.mounts, |root| {
        assert!(cached(root, "libcuda.so.1").is_some());
        let mode = fs::metadata(root.join("etc/ld.so.cache")).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o644);
    });
}

#[test]
fn snapshots_with_delimiters_in_their_paths() {
    let name = OsStr::from_bytes("a:b,c\\d\n\u{1b}[31m=é".as_bytes());
    let fixture = Fixture::below(Path::new(name));
    let prepared = fixture.apply(&[fixture.overlay_escaped()]).unwrap();
    assert!(fixture.layer().join("opt/gpu/lib/libcuda.so.1").is_symlink());
    assert!(prepared.mounts[0].options.iter().any(|option| option.contains("nvidia-shim-layer")));
}

#[test]
fn two_creates_of_one_snapshot_at_once() {
    let fixture = Fixture::new();
    let outside = record(&fixture.path("1"));
    let attempts = std::thread::scope(|scope| {
        let create = || (0..40).filter(|_| fixture.apply(&[fixture.overlay()]).is_ok()).count();
        let creates: Vec<_> = (0..2).map(|_| scope.spawn(create)).collect();
        creates.into_iter().map(|create| create.join().unwrap()).sum::<usize>()
    });
    assert!(attempts > 0);
    assert_eq!(record(&fixture.path("1")), outside);
    // Whatever the two left behind, the next one starts afresh.
    let prepared = fixture.apply(&[fixture.overlay()]).unwrap();
    container(&fixture, &prepared.mounts, |root| {
        assert_eq!(cached(root, "libcuda.so.1").unwrap(), format!("{LIBRARIES}/libcuda.so.1"));
    });
}

#[test]
fn a_chain_of_links_with_endless_names() {
    let fixture = Fixture::new();
    let image = fixture.path("1/fs");
    let step = "a/../".repeat(800);
    fs::create_dir(image.join("a")).unwrap();
    for number in 0..30 {
        symlink(format!("{step}l{}", number + 1), image.join(format!("l{number}"))).unwrap();
    }
    fs::create_dir(image.join("l30")).unwrap();
    fs::remove_dir(image.join("opt")).unwrap();
    symlink("/l0", image.join("opt")).unwrap();
    let error = fixture.apply(&[fixture.overlay()]).unwrap_err();
    assert_eq!(error.code(), Code::FixupFailed);
    assert!(error.to_string().contains("/opt/gpu/lib"), "{error}");
}

#[test]
fn a_mount_of_the_spec_with_an_endless_path() {
    let fixture = Fixture::new();
    let path = "/x".repeat(500_000);
    let spec =
        fixture.spec(&serde_json::json!([{"destination": path, "type": "tmpfs"}]).to_string());
    let mounts = [fixture.overlay()];
    let look = Look::open(&mounts, &fixture.bundle(), &spec).unwrap();
    let image = nvidia_hook::facts(look.rootfs()).unwrap();
    look.apply(&image, &crate::fixture::fixups(), &fixture.edits(), &spec).unwrap();
}

#[test]
fn what_cannot_be_changed_is_no_matter_to_a_layer() {
    let fixture = Fixture::new();
    let places = ["1/fs/etc", "1/fs/opt", "2/fs/etc"].map(|place| fixture.path(place));
    let chattr = |flag: &str| {
        let status = Command::new("chattr").arg(flag).args(&places).status();
        assert!(status.unwrap().success());
    };
    chattr("+i");
    let layered = fixture.apply(&[fixture.overlay()]);
    let direct = fixture.apply(&[fixture.bind("rw")]);
    chattr("-i");
    container(&fixture, &layered.unwrap().mounts, |root| {
        assert!(cached(root, "libcuda.so.1").is_some());
    });
    let error = direct.unwrap_err();
    assert!(error.to_string().contains("/opt/gpu/lib"), "{error}");
}

#[test]
fn a_cache_of_endless_directories() {
    let fixture = Fixture::new();
    // More entries than are looked at, each in a directory of its own, deep and through links.
    let mut cache = Cache::default();
    symlink(".", fixture.path("1/fs/l")).unwrap();
    let deep = "/l".repeat(30);
    for number in 0..3000 {
        let path = format!("{deep}/{number}/l");
        cache.insert("l", Path::new(&path), Class::Elf64, Machine::X86_64);
    }
    fs::write(fixture.path("1/fs/etc/ld.so.cache"), cache.to_bytes().unwrap()).unwrap();
    let prepared = fixture.apply(&[fixture.bind("rw")]).unwrap();
    container(&fixture, &prepared.mounts, |root| {
        assert!(cached(root, "libcuda.so.1").is_some() && cached(root, "l").is_some());
    });
}

/// Whatever a loader says of itself, and wherever links lead.
#[test]
fn libraries_go_to_directories_that_are_known_beforehand() {
    let known = ["/usr/lib", "/usr/lib64", "/usr/lib32"].map(Path::new);
    let fixture = Fixture::new();
    let image = fixture.path("1/fs");
    for path in ["usr/lib64/ld-linux-x86-64.so.2", "usr/lib/ld-linux-aarch64.so.1"] {
        for (class, machine) in [(1, 3), (2, 62), (1, 62), (2, 183), (2, 0xffff), (1, 8)] {
            for target in ["/", "/proc", "/dev", "lib", "../../..", "/etc"] {
                let mut loader = vec![0x7f, b'E', b'L', b'F', class, 1, 1, 0];
                loader.resize(16, 0);
                loader.extend([3, 0]);
                loader.extend(u16::to_le_bytes(machine));
                loader.resize(64, 0);
                fs::write(image.join(path), loader).unwrap();
                let links = ["usr/lib/x86_64-linux-gnu", "usr/lib32", "usr/lib/aarch64-linux-gnu"];
                for link in links.map(|link| image.join(link)) {
                    // A directory the first time, a link later, or nothing.
                    let _ = fs::remove_dir_all(&link).or_else(|_| fs::remove_file(&link));
                    symlink(target, link).unwrap();
                }
                let facts = nvidia_hook::facts(&Rootfs::open(&image).unwrap()).unwrap();
                for directory in [facts.library_dir, facts.library_dir_32].iter().flatten() {
                    let multiarch = directory.to_str().unwrap().ends_with("-linux-gnu");
                    let below = directory.parent() == Some(Path::new("/usr/lib"));
                    assert!(known.contains(&directory.as_path()) || (multiarch && below));
                }
            }
        }
    }
}
