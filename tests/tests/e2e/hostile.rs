//! Images, volumes and environments of odd shapes: there is a container or a refusal in one line,
//! and the host is as it was.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;
use tests::{BUSYBOX, Containerd, GLIBC, Image, Node, Release, on_each_containerd};

use crate::attacks::{LIBRARIES, UPWARDS, glibc, portrait, refused_or_run, replace, unharmed};

on_each_containerd!(odd_images, volumes_over_what_is_given, hostile_environments);

/// Where files are mounted, linked or written.
const PLACES: [&str; 5] = [
    "usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01",
    "usr/bin/nvidia-smi",
    "etc/ld.so.conf",
    "etc/ld.so.conf.d/00-nvidia-shim.conf",
];

fn at_each_place(root: &Path, make: impl Fn(&Path)) {
    for place in PLACES {
        let place = root.join(place);
        // What is not there cannot be removed.
        let _ = fs::remove_file(&place);
        fs::create_dir_all(place.parent().expect("a parent")).expect("mkdir");
        make(&place);
    }
}

const ODD: [Image; 5] = [
    Image::hostile(
        "odd-fifos",
        &[glibc, |root| at_each_place(root, |place| mkfifo(place, Mode::S_IRWXU).expect("fifo"))],
    ),
    Image::hostile(
        "odd-devices",
        &[glibc, |root| {
            // The console: opening it would be heard.
            let console = makedev(5, 1);
            at_each_place(root, |place| {
                mknod(place, SFlag::S_IFCHR, Mode::S_IRWXU, console).expect("mknod");
            });
        }],
    ),
    Image::hostile(
        "odd-set-id",
        &[glibc, |root| {
            at_each_place(root, |place| {
                fs::write(place, "").expect("a file");
                fs::set_permissions(place, fs::Permissions::from_mode(0o6777)).expect("chmod");
            });
            for dir in ["etc", "usr/bin", LIBRARIES] {
                let mode = fs::Permissions::from_mode(0o7777);
                fs::set_permissions(root.join(dir), mode).expect("chmod");
            }
        }],
    ),
    Image::hostile(
        "odd-passwd",
        &[glibc, |root| {
            replace(root, "usr/bin/nvidia-smi", "../../../../../../../../etc/passwd");
            replace(root, &format!("{LIBRARIES}/libcuda.so.550.163.01"), "/etc/shadow");
        }],
    ),
    Image::hostile(
        "odd-kernel",
        &[glibc, |root| {
            replace(root, "usr/bin/nvidia-smi", "/proc/1/cwd");
            replace(root, "usr/share", "/proc/self/root");
            replace(root, "etc/ld.so.conf.d", "/dev/fd");
        }],
    ),
];

fn odd_images(release: Release) {
    let containerd = Containerd::start(release);
    let node = Node::new(1);
    unharmed(&containerd, || {
        for image in &ODD {
            containerd.import(image);
            for flag in ["--snapshotter=overlayfs", "--snapshotter=native"] {
                let run = containerd.container(image, "c").flag(flag).on(&node).gpus("all");
                refused_or_run(&containerd, &run.run(&["true"]));
            }
        }
    });
    containerd.assert_clean();
}

/// Every name that is mounted below one of the destinations, as a link to the outside.
fn volume(dir: &Path) {
    for name in ["libcuda.so.550.163.01", "libcuda.so.1", "nvidia-smi", "ld.so.cache", "nvidia0"] {
        replace(dir, name, &format!("{UPWARDS}/file"));
    }
    for name in ["x86_64-linux-gnu", "lib", "bin", "ld.so.conf.d", "share", "firmware"] {
        replace(dir, name, UPWARDS);
    }
}

fn volumes_over_what_is_given(release: Release) {
    let containerd = Containerd::start(release);
    let node = Node::new(1);
    containerd.import(&GLIBC);
    containerd.import(&BUSYBOX);
    let dir = containerd.path("volume");
    unharmed(&containerd, || {
        for destination in ["/usr/lib/x86_64-linux-gnu", "/usr/lib", "/usr", "/etc", "/dev", "/"] {
            for access in ["ro", "rw"] {
                for image in [&BUSYBOX, &GLIBC] {
                    volume(&dir);
                    let before = portrait(&dir);
                    let mount = format!(
                        "--mount=type=bind,src={},dst={destination},options=rbind:{access}",
                        dir.display()
                    );
                    let run = containerd.container(image, "c").flag(mount).on(&node).gpus("all");
                    refused_or_run(&containerd, &run.run(&["/bin/true"]));
                    // runc makes the mount points that the volume lacks, if it may.
                    if access == "ro" {
                        assert_eq!(portrait(&dir), before, "{destination}");
                    }
                    fs::remove_dir_all(&dir).expect("the volume");
                }
            }
        }
    });
    containerd.assert_clean();
}

fn hostile_environments(release: Release) {
    let containerd = Containerd::start(release);
    let node = Node::new(2);
    containerd.import(&BUSYBOX);
    let run = |value: &str| containerd.container(&BUSYBOX, "c").on(&node).gpus(value);
    for nothing in [",".repeat(100_000), " \t,\u{a0},void,0".to_owned()] {
        let list = run(&nothing).run(&["/bin/ls", "/dev"]).ok();
        assert!(!list.contains("nvidia"), "{list}");
    }
    let list = run(&"0,".repeat(40_000)).run(&["/bin/ls", "/dev"]).ok();
    assert!(list.contains(&node.gpu(0).node()) && !list.contains(&node.gpu(1).node()), "{list}");
    for value in
        ["0\n1", "\u{1b}[2J\u{1b}]0;owned\u{7}", "0\" level=error msg=\"x", "\u{202e}0llа", "*"]
    {
        let words = run(value).run(&["/bin/true"]).refused();
        assert!(words.contains("NVS-102"), "{words}");
        let odd = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!words.contains(odd) && words.trim_end().lines().count() == 1, "{words:?}");
        containerd.ctr(&["containers", "delete", "c"]);
    }
    containerd.assert_clean();
}
