//! `nvidia-cdi-hook` on the root filesystems that NVIDIA's hooks were recorded on: whether it fails,
//! and what it leaves behind. Each in a mount namespace of its own, with a driver's parameters.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nvidia_oci::elf::{Class, Machine};
use nvidia_oci::ldcache::Cache;
use nvidia_shim::simulate::elf;
use serde::Deserialize;
use serde_json::Value;
use tests::product;

/// A run of one of NVIDIA's hooks.
#[derive(Deserialize)]
struct Case {
    name: String,
    args: Vec<String>,
    /// Path, kind and what belongs to the kind.
    tree: Vec<Vec<Value>>,
    /// The container's state, or the text in its place.
    state: Value,
    /// `config.json`
    config: String,
    rc: i32,
    /// By path: kind and what belongs to it.
    changed: BTreeMap<String, Vec<Value>>,
}

/// What NVIDIA's hooks leave behind beside their work.
const TRACES: [&str; 3] = ["/proc d ", "/run d ", "/run/nvidia-ctk-hook"];
/// Names of files, theirs and ours. The second of theirs names directories that a loader of another
/// distribution would search, as it is the host's ldconfig that runs.
const NAMES: [(&str, Option<&str>); 3] = [
    ("/etc/ld.so.conf.d/00-compat-N.conf", Some("/etc/ld.so.conf.d/00-compat-nvidia-shim.conf")),
    ("/etc/ld.so.conf.d/00-nvcr-N.conf", Some("/etc/ld.so.conf.d/00-nvidia-shim.conf")),
    ("/etc/ld.so.conf.d/zz-nvcr-N.conf", None),
];

const INSIDE: &str = "links of the image are resolved inside it, also where nothing is yet";
/// Libraries of other directories: the image's own ldconfig brought them to its cache, and a cache
/// is added to.
const OTHERS: [&str; 2] =
    ["-/usr/lib/x86_64-linux-gnu/libfoo.so.1 l libfoo.so.1.2", "-/etc/ld.so.cache libfoo.so.1 "];

/// Where we differ on purpose: the case, why, whether it ends well, and lines of ours (`+`) or of
/// NVIDIA's only (`-`).
const DIFFERENCES: &[(&str, &str, bool, &[&str])] = &[
    ("app-profile/etc-symlink-escape", INSIDE, true, &["+/outside"]),
    (
        "app-profile/minor-63",
        "directories that others may write in later",
        true,
        &["-/etc d 555", "-/etc/nvidia", "+/etc d 755", "+/etc/nvidia"],
    ),
    ("create-symlinks/parent-symlink-escapes", INSIDE, true, &["+/out"]),
    ("create-symlinks/parent-symlink-missing-target", INSIDE, true, &["+/real"]),
    (
        "create-symlinks/empty-target",
        "nothing is done before all words are read",
        false,
        &["-/x d"],
    ),
    (
        "disable-device-node-modification/no-proc",
        "a container without the file cannot be misled by it",
        true,
        &[],
    ),
    ("state/no-root-in-config.create-symlinks", "a bundle is no root filesystem", false, &[]),
    (
        "update-ldcache/conf-without-include",
        "what is asked for is in the cache whatever a later ldconfig would do",
        true,
        &[
            OTHERS[0],
            OTHERS[1],
            "+/opt/nv/lib",
            "+/etc/ld.so.cache libcuda.so.1 ",
            "+/etc/ld.so.cache libnvidia-ml.so.1 ",
        ],
    ),
    ("update-ldcache/debian-container", "a cache is added to", true, &OTHERS),
    ("update-ldcache/one-folder", "a cache is added to", true, &OTHERS),
    (
        "update-ldcache/folder-missing",
        "a cache is added to",
        true,
        &[OTHERS[0], OTHERS[1], "-/etc/ld.so.cache ldcache"],
    ),
];

fn build(root: &Path, tree: &[Vec<Value>]) {
    for entry in tree {
        let text = |at: usize| entry[at].as_str().unwrap();
        let path = root.join(text(0).trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let chmod = |mode: &str| {
            let mode = u32::from_str_radix(mode, 8).unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        match text(1) {
            "d" => {
                fs::create_dir_all(&path).unwrap();
                chmod(text(2));
            }
            "f" => {
                fs::write(&path, text(2)).unwrap();
                chmod(text(3));
            }
            "l" => symlink(text(2), &path).unwrap(),
            "c" => {
                let device = makedev(entry[2].as_u64().unwrap(), entry[3].as_u64().unwrap());
                mknod(&path, SFlag::S_IFCHR, Mode::S_IRWXU, device).unwrap();
            }
            "so" => {
                let library = elf::library(Some(text(2)), Class::Elf64, Machine::X86_64);
                fs::write(&path, library).unwrap();
            }
            kind => panic!("unknown kind {kind}"),
        }
    }
}

/// A line for everything below `root`; several for a loader's cache.
fn portrait(root: &Path) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let mut pending = vec![root.to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            let shown = format!("/{}", path.strip_prefix(root).unwrap().display());
            let metadata = entry.metadata().unwrap();
            let mode = metadata.mode() & 0o7777;
            let kind = metadata.file_type();
            if kind.is_symlink() {
                lines.insert(format!("{shown} l {}", fs::read_link(&path).unwrap().display()));
            } else if kind.is_dir() {
                lines.insert(format!("{shown} d {mode:o}"));
                pending.push(path);
            } else if kind.is_char_device() {
                lines.insert(format!("{shown} c {}", metadata.rdev()));
            } else if shown == "/etc/ld.so.cache" {
                lines.insert(format!("{shown} ldcache {mode:o}"));
                let cache = Cache::parse(&fs::read(&path).unwrap()).unwrap();
                lines.extend(cache.entries().iter().map(|entry| {
                    let name = String::from_utf8_lossy(&entry.key);
                    format!("{shown} {name} {}", entry.path().display())
                }));
            } else {
                let content = fs::read(&path).unwrap();
                lines.insert(format!("{shown} f {mode:o} {}", String::from_utf8_lossy(&content)));
            }
        }
    }
    lines
}

/// The recorded changes as such lines, by our names and without traces.
fn expected(changed: &BTreeMap<String, Vec<Value>>) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for (path, entry) in changed {
        let path = match NAMES.iter().find(|(theirs, _)| path == theirs) {
            Some((_, Some(ours))) => *ours,
            Some((_, None)) => continue,
            None => path,
        };
        let texts: Vec<&str> = entry.iter().filter_map(Value::as_str).collect();
        lines.insert(format!("{path} {}", texts.join(" ")));
        for library in entry.iter().filter_map(Value::as_array).flatten() {
            let (name, place) = library.as_str().unwrap().split_once(" => ").unwrap();
            assert!(name.ends_with(" (libc6,x86-64)"), "{name}");
            lines.insert(format!("{path} {} {place}", name.split(' ').next().unwrap()));
        }
    }
    lines.retain(|line| !TRACES.iter().any(|trace| line.starts_with(trace)));
    lines
}

/// Whether the hook ended well, and what is new.
fn call(case: &Case) -> (bool, BTreeSet<String>) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("case/bundle/rootfs");
    fs::create_dir_all(&root).unwrap();
    build(&root, &case.tree);
    let own = |text: &str| text.replace("/case/", &format!("{}/case/", dir.path().display()));
    let state = match &case.state {
        Value::String(text) => text.clone(),
        state => own(&state.to_string()),
    };
    fs::write(root.join("../config.json"), own(&case.config)).unwrap();
    let before = portrait(&root);

    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    mount(Some("tmpfs"), "/proc/driver", Some("tmpfs"), MsFlags::empty(), none).unwrap();
    fs::create_dir("/proc/driver/nvidia").unwrap();
    fs::write("/proc/driver/nvidia/params", PARAMS).unwrap();
    let mut hook = Command::new(product().join("nvidia-cdi-hook"))
        .arg0("nvidia-cdi-hook")
        .args(&case.args)
        .current_dir(&root)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end without having read it.
    let _ = hook.stdin.take().unwrap().write_all(state.as_bytes());
    let output = hook.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || words.lines().count() == 1, "{}: {words}", case.name);
    let after = portrait(&root);
    assert!(before.iter().all(|line| {
        let path = line.split(' ').next().unwrap();
        after.iter().any(|line| line.split(' ').next() == Some(path))
    }));
    (output.status.success(), after.difference(&before).cloned().collect())
}

const PARAMS: &str = "ResmanDebugLevel: 4294967295\nRmLogonRC: 1\nModifyDeviceFiles: 1\n\
                      DeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\nEnableMSI: 1\n";

#[test]
fn hooks_do_what_nvidias_do() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../corpus/hooks.json")).unwrap();
    product();
    let mut complaints = Vec::new();
    for case in &cases {
        let called = thread::scope(|scope| scope.spawn(|| call(case)).join());
        let (success, mut got) = called.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let mut theirs = expected(&case.changed);
        let row = DIFFERENCES.iter().find(|row| row.0 == case.name);
        let (ends_well, lines) = row.map_or((case.rc == 0, &[][..]), |row| (row.2, row.3));
        for line in lines {
            let (list, start) = match line.split_at(1) {
                ("+", start) => (&mut got, start),
                (_, start) => (&mut theirs, start),
            };
            let before = list.len();
            list.retain(|line| !line.starts_with(start));
            if list.len() == before {
                complaints.push(format!("{}: {line} is not true", case.name));
            }
        }
        if success != ends_well || got != theirs {
            complaints.push(format!(
                "{}: success {success}\n  ours {:?}\n  theirs {:?}",
                case.name,
                got.difference(&theirs).collect::<Vec<_>>(),
                theirs.difference(&got).collect::<Vec<_>>(),
            ));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert_eq!(cases.len(), 63);
    assert!(DIFFERENCES.iter().all(|row| cases.iter().any(|case| case.name == row.0)));
}
