//! What stays in a container's snapshot: the container's own changes and none of ours.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tests::{Containerd, GLIBC, GLIBC_LAYERED, Image, Node, Release, Setup, on_each_containerd};

on_each_containerd!(
    three_starts_of_one_snapshot,
    read_only_snapshot_stays_empty,
    dirty_pages_are_left_alone,
);

fn machine(release: Release, image: &Image) -> (Containerd, Node) {
    let containerd = Containerd::start(release);
    containerd.import(image);
    (containerd, Node::new(2))
}

/// The directory of a snapshot's own files.
pub(crate) fn upper(containerd: &Containerd, key: &str) -> PathBuf {
    let mount = containerd.ctr(&["snapshots", "mounts", "/mnt", key]).ok();
    let option = mount.split([',', ' ']).find_map(|word| word.strip_prefix("upperdir="));
    PathBuf::from(option.unwrap_or_else(|| panic!("no upperdir in {mount}")).trim())
}

/// All files and links below `dir`, and no directories.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

fn three_starts_of_one_snapshot(release: Release) {
    for image in [GLIBC, GLIBC_LAYERED] {
        let (containerd, node) = machine(release, &image);
        let script = "ldconfig -p | grep -q libcuda.so.1 && echo $$ > /etc/mine && sleep 1000";
        let run = containerd.container(&image, "c").on(&node).gpus("0");
        run.detach(&["sh", "-c", script]);
        let written = upper(&containerd, "c").join("etc/mine");
        for _ in 0..3 {
            assert!(tests::eventually(|| written.exists()), "the container did not get there");
            fs::remove_file(&written).expect("etc/mine");
            containerd.ctr(&["tasks", "kill", "--signal", "SIGKILL", "c"]).ok();
            assert!(tests::eventually(|| containerd.state("c").as_deref() == Some("STOPPED")));
            containerd.ctr(&["tasks", "delete", "c"]);
            containerd.ctr(&["tasks", "start", "--detach", "--null-io", "c"]).ok();
        }
        assert!(tests::eventually(|| written.exists()));

        let own = files(&upper(&containerd, "c"));
        let strange: Vec<_> = own.iter().filter(|path| is_ours(path)).collect();
        assert!(strange.is_empty(), "in the snapshot: {strange:?}");
        let diff = listed_diff(&containerd, "c");
        let strange: Vec<_> = diff.lines().filter(|line| is_ours(Path::new(line))).collect();
        assert!(strange.is_empty(), "in the diff: {strange:?}");
        assert!(diff.contains("etc/mine"), "{diff}");
        containerd.remove("c");
        containerd.assert_clean();
    }
}

fn read_only_snapshot_stays_empty(release: Release) {
    let (containerd, node) = machine(release, &GLIBC);
    let run = containerd.container(&GLIBC, "c").flag("--read-only").on(&node).gpus("0");
    run.detach(&["sleep", "1000"]);
    let own = files(&upper(&containerd, "c"));
    let strange: Vec<_> = own.iter().filter(|path| is_ours(path)).collect();
    assert!(strange.is_empty(), "{strange:?}");
    containerd.remove("c");
    containerd.assert_clean();
}

/// A gigabyte of an image that was just pulled is still to be written: Create does not wait for it.
fn dirty_pages_are_left_alone(release: Release) {
    const PAGES: usize = 1 << 30;
    let node = Node::new(2);
    let setup = Setup { disk: true, ..Setup::default() };
    let containerd = Containerd::start_as(release, setup);
    containerd.import(&GLIBC);
    let run = containerd.container(&GLIBC, "c").on(&node).gpus("0");
    run.detach(&["sleep", "1000"]);
    containerd.ctr(&["tasks", "kill", "--signal", "SIGKILL", "c"]).ok();
    assert!(tests::eventually(|| containerd.state("c").as_deref() == Some("STOPPED")));
    containerd.ctr(&["tasks", "delete", "c"]);

    let begin = Instant::now();
    let file = containerd.path("root/dirty");
    containerd.inside(|| {
        let mut file = fs::File::create(&file).expect("a file");
        let chunk = vec![1; 1 << 20];
        (0..PAGES / chunk.len()).for_each(|_| file.write_all(&chunk).expect("write"));
    });
    let before = containerd.written();
    containerd.ctr(&["tasks", "start", "--detach", "--null-io", "c"]).ok();
    let bytes = (containerd.written() - before) * 512;
    // The kernel begins by itself after 30 seconds (dirty_expire_centisecs); then nothing is told.
    let told = begin.elapsed() < Duration::from_secs(25);
    assert!(!told || bytes < PAGES as u64 / 4, "{bytes} bytes were written");
    containerd.remove("c");
    containerd.assert_clean();
}

/// Whether a path is one that a GPU container gets: links of libraries, loader cache and its
/// configuration. Empty files are runc's mount points.
fn is_ours(path: &Path) -> bool {
    let text = path.to_string_lossy();
    let loader = text.contains("ld.so.c") || text.contains("nvidia-shim");
    let link = path.symlink_metadata().is_ok_and(|data| data.file_type().is_symlink());
    loader || (link && (text.contains("nvidia") || text.contains("libcuda")))
}

/// The names in the tar stream of `ctr snapshots diff`.
fn listed_diff(containerd: &Containerd, key: &str) -> String {
    let archive = containerd.path("diff.tar");
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" --address \"$1\" --namespace \"$2\" snapshots diff \"$3\" > \"$4\""]);
    shell.arg(containerd.release().ctr()).arg(containerd.socket());
    shell.args([containerd.name(), key]).arg(&archive);
    containerd.output(&mut shell).ok();
    containerd.output(Command::new("tar").arg("-tzf").arg(&archive)).ok()
}
