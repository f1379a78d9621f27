//! Images that mean harm: whatever they hold, nothing outside of the root filesystem changes,
//! and nothing blocks.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;
use nvidia_hook::RootfsMount;
use nvidia_oci::Code;
use rustix::fs::{RenameFlags, renameat_with};

use crate::container::{cached, container};
use crate::fixture::{Fixture, record};

/// Every path that fix-ups are written at, and those above.
const PATHS: [&str; 14] = [
    "etc",
    "etc/ld.so.cache",
    "etc/ld.so.conf",
    "etc/ld.so.conf.d",
    "etc/ld.so.conf.d/00-nvidia-shim.conf",
    "opt",
    "opt/gpu",
    "opt/gpu/lib",
    "opt/gpu/lib/libcuda.so.1",
    "opt/gpu/lib/libcuda.so.550",
    "usr/bin",
    "usr/bin/nvidia-smi",
    "usr/lib/firmware",
    "usr/lib/firmware/nvidia/550",
];

/// A tree outside that looks like what an attacker would like to change.
fn canary(fixture: &Fixture) -> std::path::PathBuf {
    let canary = fixture.path("canary");
    for path in PATHS {
        let path = canary.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
    }
    for path in ["etc/ld.so.cache", "etc/passwd", "opt/gpu/lib/libcuda.so.1", "usr/bin/nvidia-smi"]
    {
        fs::write(canary.join(path), "canary").unwrap();
    }
    canary
}

fn replace_by_link(place: &Path, target: &Path) {
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    if fs::symlink_metadata(place).is_ok_and(|metadata| metadata.is_dir()) {
        fs::remove_dir_all(place).unwrap();
    }
    symlink(target, place).unwrap();
}

fn ways(fixture: &Fixture) -> [RootfsMount; 2] {
    [fixture.overlay(), fixture.bind("rw")]
}

#[test]
fn links_to_the_outside_at_every_path() {
    for path in PATHS {
        for way in 0..2 {
            for absolute in [true, false] {
                let fixture = Fixture::new();
                let canary = canary(&fixture);
                fs::remove_dir_all(fixture.path("2/fs/etc")).unwrap();
                let place = fixture.path("1/fs").join(path);
                let above = "../".repeat(12);
                let target = match absolute {
                    true => canary.join(path),
                    false => Path::new(&above).join(canary.strip_prefix("/").unwrap()).join(path),
                };
                replace_by_link(&place, &target);
                let before = record(&canary);
                // Refused or resolved inside, both are right; the canary is what counts.
                let mounts = [ways(&fixture)[way].clone()];
                if let Ok(prepared) = fixture.apply(&mounts) {
                    container(&fixture, &prepared.mounts, |_| {});
                }
                assert_eq!(record(&canary), before, "{path} → {}", target.display());
                assert!(fs::symlink_metadata(&place).is_ok(), "{path}");
            }
        }
    }
}

#[test]
fn a_link_to_the_outside_in_the_upper_directory() {
    for path in PATHS {
        let fixture = Fixture::new();
        let canary = canary(&fixture);
        replace_by_link(&fixture.upper().join(path), &canary.join(path));
        let before = record(&canary);
        if let Ok(prepared) = fixture.apply(&[fixture.overlay()]) {
            container(&fixture, &prepared.mounts, |_| {});
        }
        assert_eq!(record(&canary), before, "{path}");
    }
}

#[test]
fn a_fifo_or_device_in_place_of_the_cache_is_replaced_unread() {
    let fifo = |place: &Path| mkfifo(place, Mode::S_IRWXU).unwrap();
    // The console: opening it would be heard.
    let device = |place: &Path| mknod(place, SFlag::S_IFCHR, Mode::S_IRWXU, makedev(5, 1)).unwrap();
    let kinds: [&dyn Fn(&Path); 2] = [&fifo, &device];
    for make in kinds {
        for way in 0..2 {
            let fixture = Fixture::new();
            make(&fixture.path("1/fs/etc/ld.so.cache"));
            let mounts = [ways(&fixture)[way].clone()];
            let prepared = fixture.apply(&mounts).unwrap();
            container(&fixture, &prepared.mounts, |root| {
                assert!(cached(root, "libcuda.so.1").is_some());
            });
        }
    }
}

#[test]
fn a_directory_in_place_of_the_cache() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("1/fs/etc/ld.so.cache")).unwrap();
    let prepared = fixture.apply(&[fixture.overlay()]).unwrap();
    container(&fixture, &prepared.mounts, |root| assert!(cached(root, "libcuda.so.1").is_some()));
    let error = fixture.apply(&[fixture.bind("rw")]).unwrap_err();
    assert!(error.to_string().contains("/etc/ld.so.cache"), "{error}");
}

#[test]
fn a_damaged_cache_is_refused_by_name_and_an_empty_one_is_none() {
    let fixture = Fixture::new();
    let place = fixture.path("2/fs/etc/ld.so.cache");
    fs::write(&place, "").unwrap();
    fixture.apply(&[fixture.overlay()]).unwrap();
    for bytes in [b"glibc-ld.so.cache1.1 and then nothing".to_vec(), vec![0; 5 << 20]] {
        fs::write(&place, bytes).unwrap();
        let error = fixture.apply(&[fixture.overlay()]).unwrap_err();
        assert_eq!(error.code(), Code::CacheUnreadable);
        assert!(error.to_string().contains("/etc/ld.so.cache"), "{error}");
    }
}

/// There is no way back in place.
#[test]
fn a_damaged_cache_is_refused_before_anything_is_written_in_place() {
    let fixture = Fixture::new();
    fs::write(fixture.path("1/fs/etc/ld.so.cache"), "glibc-ld.so.cache1.1 and no more").unwrap();
    let before = record(&fixture.path("1/fs"));
    let error = fixture.apply(&[fixture.bind("rw")]).unwrap_err();
    assert_eq!(error.code(), Code::CacheUnreadable);
    assert_eq!(record(&fixture.path("1/fs")), before);
}

#[test]
fn directories_exchanged_with_links_all_the_while() {
    let fixture = Fixture::new();
    let canary = canary(&fixture);
    let root = fixture.path("1/fs");
    fs::create_dir_all(root.join("opt/gpu/lib")).unwrap();
    fs::create_dir_all(root.join("etc/ld.so.conf.d")).unwrap();
    // Held by handles, so that the exchange itself does not go through a link.
    let held = |path: &str| fs::File::open(root.join(path)).unwrap();
    let top = held("");
    let swaps = [("", "etc"), ("etc", "ld.so.conf.d"), ("opt", "gpu"), ("opt/gpu", "lib")].map(
        |(parent, name)| {
            let link = format!("swap-{name}");
            symlink(canary.join(parent).join(name), root.join(&link)).unwrap();
            (held(parent), name, link)
        },
    );
    let before = record(&canary);
    let mut written = 0;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for (parent, name, link) in &swaps {
                    renameat_with(parent, *name, &top, link, RenameFlags::EXCHANGE).unwrap();
                }
            }
        });
        for _ in 0..200 {
            if fixture.apply(&[fixture.bind("rw")]).is_ok() {
                written += 1;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(record(&canary), before);
    assert!(written > 0, "the race was never won: nothing was tried");
}

#[test]
fn a_link_in_place_of_the_layer_is_removed_itself() {
    let fixture = Fixture::new();
    let canary = canary(&fixture);
    symlink(&canary, fixture.layer()).unwrap();
    let before = record(&canary);
    fixture.apply(&[fixture.overlay()]).unwrap();
    assert_eq!(record(&canary), before);
    assert!(fs::symlink_metadata(fixture.layer()).unwrap().is_dir());
}
