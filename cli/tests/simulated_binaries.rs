//! The simulated binaries under the real loader and kernel of this machine.

mod sys;

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nvidia_oci::elf::{Class, Machine};
use nvidia_shim::simulate::elf::{libcuda, library, nvidia_smi};
use nvidia_shim::simulate::{Layout, Node};

use crate::sys::Cuda;

const THIS_MACHINE: Machine =
    if cfg!(target_arch = "aarch64") { Machine::Aarch64 } else { Machine::X86_64 };

/// `content` as a file that may be run at once: written by another process, so that no child of
/// this one, forked in another thread meanwhile, holds it open for writing (ETXTBSY).
fn written(dir: &Path, name: &str, content: &[u8]) -> PathBuf {
    let (draft, path) = (dir.join("draft"), dir.join(name));
    std::fs::write(&draft, content).unwrap();
    let status = Command::new("install").arg(&draft).arg(&path).status().unwrap();
    assert!(status.success());
    path
}

/// Runs in its own mount namespace with an empty `/dev`; needs root.
fn with_empty_dev<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            mount(
                None::<&str>,
                "/",
                None::<&str>,
                MsFlags::MS_REC | MsFlags::MS_PRIVATE,
                None::<&str>,
            )
            .unwrap();
            mount(Some("none"), "/dev", Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
            body()
        });
        thread.join().unwrap()
    })
}

#[test]
fn libcuda_counts_the_nodes_that_open_or_have_no_driver() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(dir.path(), "libcuda.so.1", &libcuda(THIS_MACHINE, 12_040).unwrap());
    let cuda = Cuda::load(&path);
    assert_eq!(cuda.init(), 0);
    assert_eq!(cuda.driver_version(), Ok(12_040));
    let (none, some) = with_empty_dev(|| {
        let none = cuda.device_count();
        for minor in [0, 9, 10, 31, 32] {
            // Null devices: they open.
            let node = format!("/dev/nvidia{minor}");
            mknod(node.as_str(), SFlag::S_IFCHR, Mode::S_IRWXU, makedev(1, 3)).unwrap();
        }
        std::os::unix::fs::symlink("loop", "/dev/loop").unwrap();
        std::os::unix::fs::symlink("loop", "/dev/nvidia5").unwrap();
        (none, cuda.device_count())
    });
    assert_eq!(none, Ok(0));
    assert_eq!(some, Ok(4), "0, 9, 10 and 31; 32 is beyond, 5 fails with ELOOP");
    assert_eq!(cuda.device_count_into_null(), 1);
}

#[test]
fn nvidia_smi_answers_as_it_was_told() {
    let dir = tempfile::tempdir().unwrap();
    // More than a pipe takes at once.
    let query = "<nvidia_smi_log/>\n".repeat(20_000);
    let program = nvidia_smi(THIS_MACHINE, "GPU 0\n", &query, "usage\n").unwrap();
    let path = written(dir.path(), "nvidia-smi", &program);
    let run = |args: &[&str]| {
        let output = Command::new(&path).args(args).env_clear().output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    assert_eq!(run(&["-L"]), (Some(0), "GPU 0\n".to_owned(), String::new()));
    assert_eq!(run(&["-q", "-x"]), (Some(0), query.clone(), String::new()));
    for wrong in [&[][..], &["-Lx"], &["-q"], &["-q", "-d"], &["-q", "-x", "-i"]] {
        assert_eq!(run(wrong), (Some(2), String::new(), "usage\n".to_owned()), "{wrong:?}");
    }
}

#[test]
fn ldconfig_takes_a_library_for_one_of_libc6() {
    let root = tempfile::tempdir().unwrap();
    let lib = root.path().join("lib");
    std::fs::create_dir_all(&lib).unwrap();
    std::fs::create_dir(root.path().join("etc")).unwrap();
    for (name, class, machine) in
        [("libone.so.7", Class::Elf64, THIS_MACHINE), ("libtwo.so.7", Class::Elf32, Machine::X86)]
    {
        std::fs::write(lib.join(name), library(Some(name), class, machine)).unwrap();
    }
    ldconfig(root.path(), &["/lib"]);
    let cache = ldconfig(root.path(), &["-p"]);
    assert!(cache.contains("libone.so.7 (libc6,"), "{cache}");
    if THIS_MACHINE == Machine::X86_64 {
        assert!(cache.contains("libtwo.so.7 (libc6) => /lib/libtwo.so.7"), "{cache}");
    }
}

#[test]
fn the_cache_of_a_node_is_what_ldconfig_makes_of_it() {
    for layout in [Layout::Debian, Layout::Rhel, Layout::Talos, Layout::DriverContainer] {
        let dir = tempfile::tempdir().unwrap();
        Node::new(layout, 1).write(dir.path()).unwrap();
        let root = match layout {
            Layout::DriverContainer => dir.path().join("run/nvidia/driver"),
            _ => dir.path().to_owned(),
        };
        let entries = || {
            let listing = ldconfig(&root, &["-p"]);
            // The first line counts, the last names the program that made the cache.
            listing.lines().filter(|line| line.contains("=>")).map(str::to_owned).collect()
        };
        let ours: Vec<String> = entries();
        ldconfig(&root, &[]);
        assert_eq!(ours, entries(), "{layout:?}");
    }
}

fn ldconfig(root: &Path, args: &[&str]) -> String {
    let output = Command::new("ldconfig").arg("-r").arg(root).args(args).output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "{complaints}");
    String::from_utf8(output.stdout).unwrap()
}
