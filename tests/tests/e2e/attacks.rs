//! Images and processes that try to make us write on the host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tests::{Containerd, GLIBC, Image, Node, Release, on_each_containerd};

use crate::snapshots::upper;

on_each_containerd!(
    links_to_the_outside,
    fifo_in_place_of_the_cache,
    directories_exchanged_during_create,
);

/// A directory of the host that no container may change. It lies in the mount namespace of the
/// test, where shims see it as any other directory of the host.
const CANARY: &str = "/run/containerd/canary";

/// From anywhere in an image, more than enough steps up, then to the canary.
const UPWARDS: &str = "../../../../../../../../../../../../../../../../run/containerd/canary";

fn glibc(root: &Path) {
    GLIBC.unpack(root);
}

fn replace(root: &Path, path: &str, target: &str) {
    let link = root.join(path);
    match fs::symlink_metadata(&link) {
        Ok(data) if data.is_dir() => fs::remove_dir_all(&link).expect("remove"),
        Ok(_) => fs::remove_file(&link).expect("remove"),
        Err(_) => fs::create_dir_all(link.parent().expect("a parent")).expect("mkdir"),
    }
    symlink(target, link).expect("a link");
}

const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Links at every path that is written for a GPU container, absolute and relative, at the file
/// and at each of its parents that an image can do without.
const LINKED: [Image; 6] = [
    Image::hostile(
        "cache-absolute",
        &[glibc, |root| {
            replace(root, "etc/ld.so.cache", "/run/containerd/canary/file");
        }],
    ),
    Image::hostile(
        "cache-relative",
        &[glibc, |root| {
            replace(root, "etc/ld.so.cache", &format!("{UPWARDS}/file"));
        }],
    ),
    Image::hostile("conf-dir", &[glibc, |root| replace(root, "etc/ld.so.conf.d", UPWARDS)]),
    Image::hostile("etc", &[glibc, |root| replace(root, "etc", UPWARDS)]),
    Image::hostile(
        "library-links",
        &[glibc, |root| {
            for name in ["libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1", "libcuda.so.550.163.01"]
            {
                replace(root, &format!("{LIBRARIES}/{name}"), &format!("{UPWARDS}/file"));
            }
            for name in ["vdpau", "gbm", "nvidia"] {
                replace(root, &format!("{LIBRARIES}/{name}"), CANARY);
            }
        }],
    ),
    Image::hostile(
        "usr-bin",
        &[glibc, |root| {
            for (path, target) in
                [("usr/bin/nvidia-smi", "file"), ("usr/share", ""), ("usr/local", "")]
            {
                replace(root, path, &format!("{UPWARDS}/{target}"));
            }
        }],
    ),
];

const FIFO: Image = Image::hostile(
    "fifo",
    &[glibc, |root| {
        let cache = root.join("etc/ld.so.cache");
        fs::create_dir_all(root.join("etc")).expect("etc");
        mkfifo(&cache, Mode::from_bits_truncate(0o666)).expect("a fifo");
    }],
);

/// Type, mode, owner, times and content of everything below a directory.
fn portrait(dir: &Path) -> BTreeMap<PathBuf, (u32, u32, i64, i64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let data = entry.metadata().expect("metadata");
        let content =
            if data.is_file() { fs::read(entry.path()).expect("read") } else { Vec::new() };
        let line = (data.mode(), data.uid(), data.mtime_nsec(), data.ctime_nsec(), content);
        if data.is_dir() {
            all.extend(portrait(&entry.path()));
        }
        all.insert(entry.path(), line);
    }
    all
}

/// Makes the canary, lets `attack` happen, and asserts that nothing of it has changed.
fn unharmed(containerd: &Containerd, attack: impl FnOnce()) {
    containerd.inside(|| {
        for dir in ["x86_64-linux-gnu", "etc", "lib"] {
            fs::create_dir_all(Path::new(CANARY).join(dir)).expect("canary");
        }
        for file in ["file", "ld.so.cache", "ld.so.conf", "etc/ld.so.cache", "libcuda.so.1"] {
            fs::write(Path::new(CANARY).join(file), "canary").expect("canary");
        }
    });
    let before = containerd.inside(|| portrait(Path::new(CANARY)));
    attack();
    assert_eq!(containerd.inside(|| portrait(Path::new(CANARY))), before);
}

fn links_to_the_outside(release: Release) {
    let containerd = Containerd::start(release);
    let node = Node::new(1);
    unharmed(&containerd, || {
        for image in &LINKED {
            containerd.import(image);
            for flag in ["--snapshotter=overlayfs", "--snapshotter=native"] {
                let run = containerd
                    .container(image, "c")
                    .flag(flag)
                    .on(&node)
                    .gpus("0")
                    .env("NVIDIA_DRIVER_CAPABILITIES", "all");
                refused_or_run(&containerd, &run.run(&["true"]));
            }
        }
    });
    containerd.assert_clean();
}

fn fifo_in_place_of_the_cache(release: Release) {
    let containerd = Containerd::start(release);
    let node = Node::new(1);
    containerd.import(&FIFO);
    for flag in ["--snapshotter=overlayfs", "--snapshotter=native"] {
        let run = containerd.container(&FIFO, "c").flag(flag).on(&node).gpus("0");
        refused_or_run(&containerd, &run.run(&["true"]));
    }
    containerd.assert_clean();
}

/// Either is right, as long as a refusal is one of ours or of runc, and not of a deadline.
#[track_caller]
fn refused_or_run(containerd: &Containerd, output: &tests::Output) {
    if !output.success() {
        let words = &output.stderr;
        assert!(!words.contains("NVS-402") && !words.contains("NVS-403"), "{words}");
        assert!(!words.contains("deadline"), "{words}");
        containerd.ctr(&["containers", "delete", "c"]);
    }
}

/// Only what we do is raced: runc itself, before 1.1.14, can be made to create an empty file outside
/// (CVE-2024-45310). A program that fails stands in for it, after our work is done.
fn directories_exchanged_during_create(release: Release) {
    let containerd = Containerd::start(release);
    let node = Node::new(1);
    node.configure("BinaryName = '/bin/false'", "");
    containerd.import(&GLIBC);
    let start = ["tasks", "start", "--detach", "--null-io", "c"];
    let run = containerd.container(&GLIBC, "c").on(&node).gpus("0");
    let words = containerd.output(&mut run.command(&["true"])).refused();
    assert!(words.contains("false"), "{words}");
    // The upper layer of an overlay, and a root that is written directly.
    let layer = upper(&containerd, "c");
    let root = containerd.path("rootfs");
    GLIBC.unpack(&root);
    unharmed(&containerd, || {
        let stop = AtomicBool::new(false);
        let mut refusals = BTreeSet::new();
        thread::scope(|scope| {
            for dir in [&root, &layer] {
                for name in ["etc", LIBRARIES] {
                    scope.spawn(|| containerd.inside(|| exchange(dir, name, &stop)));
                }
            }
            // Until some attempts were noticed and some met a moment without an exchange.
            for round in 0..200 {
                if round >= 20 && refusals.len() == 2 {
                    break;
                }
                let run = containerd.container_in(&root, "d").on(&node).gpus("0");
                for output in [run.run(&["true"]), containerd.ctr(&start)] {
                    let words = output.refused();
                    refusals.insert(words.contains("NVS-302"));
                }
                containerd.ctr(&["containers", "delete", "d"]);
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(refusals, BTreeSet::from([false, true]));
    });
    containerd.ctr(&["containers", "delete", "c"]).ok();
    containerd.assert_clean();
}

/// Exchanges a directory and a link to the canary, over and over; leaves the directory in place.
fn exchange(root: &Path, name: &str, stop: &AtomicBool) {
    let real = root.join(name);
    fs::create_dir_all(&real).expect("mkdir");
    let link = real.with_file_name("exchanged");
    symlink(UPWARDS, &link).expect("a link");
    let mut times = 0_u32;
    while !stop.load(Ordering::Relaxed) || times % 2 == 1 {
        renameat2(AT_FDCWD, &real, AT_FDCWD, &link, RenameFlags::RENAME_EXCHANGE).expect("rename");
        times += 1;
    }
}
