//! What each driver capability gives of the real drivers of Debian, side by side.
//!
//! `capabilities.txt` is the whole, for a person to read; the tables of the reference, kept here
//! apart from the product's own, say what must be in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nvidia_oci::{
    Config, ConfigSource, Handler, Host, Image, Outcome, Plan, Spec, elf::Elf, elf::ElfError, plan,
};
use nvidia_shim::simulate::{self, Layout};
use serde_json::json;
use tests::drivers;
use tests::reference::{self, REFERENCE};

const DRIVERS: [(&str, &str); 3] =
    [("470", "470.256.02"), ("535", "535.261.03"), ("550", "550.163.01")];
const SETS: [&str; 4] = ["compute,utility", "video", "graphics", "all"];
const GOLDEN: &str = "tests/capabilities.txt";

/// A node with one GPU and a real driver in its driver container's place.
struct Node(tempfile::TempDir);

impl Node {
    fn new(driver: &str, version: &str) -> Self {
        let dir = tempfile::tempdir_in(drivers()).unwrap();
        let node = simulate::Node {
            driver_version: version.to_owned(),
            ..simulate::Node::new(Layout::Debian, 1)
        };
        node.write(&dir.path().join("host")).unwrap();
        let place = dir.path().join("host/run/nvidia/driver");
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        let root = drivers().join(driver).join("root");
        let status = Command::new("cp").arg("-al").arg(&root).arg(&place).status().unwrap();
        assert!(status.success(), "cp: {status}");
        Self(dir)
    }

    fn host(&self) -> Host {
        Host::new(self.0.path().join("host"))
    }

    fn plan(&self, capabilities: &str) -> Plan {
        let spec = Spec::new(json!({"process": {"env": [
            "NVIDIA_VISIBLE_DEVICES=0",
            format!("NVIDIA_DRIVER_CAPABILITIES={capabilities}"),
        ]}}));
        let (config, _) = Config::load(&ConfigSource::default()).unwrap();
        let plan = plan(&self.host(), &config, Handler::Nvidia, &Image::default(), &spec);
        match plan.unwrap_or_else(|error| panic!("{capabilities}: {error}")) {
            Outcome::Edited(plan) => *plan,
            Outcome::Untouched(_) => panic!("{capabilities}: untouched"),
        }
    }
}

/// Paths of what a plan gives, in the container; a link with its target.
fn given(plan: &Plan) -> BTreeSet<String> {
    let show = |path: &Path| path.display().to_string();
    let devices = plan.edits.devices.iter().map(|device| show(&device.path));
    let mounts = plan.edits.mounts.iter().map(|mount| show(&mount.destination));
    let links = plan.fixups.links.iter();
    let links = links.map(|link| format!("{} -> {}", show(&link.link), show(&link.target)));
    let files = plan.fixups.files.iter().map(|file| format!("{} (written)", show(&file.path)));
    devices.chain(mounts).chain(links).chain(files).collect()
}

#[test]
fn capabilities_side_by_side() {
    let mut text = format!("{}\n", SETS.join("  "));
    for (driver, version) in DRIVERS {
        let node = Node::new(driver, version);
        let mut rows: BTreeMap<String, [bool; SETS.len()]> = BTreeMap::new();
        for (index, set) in SETS.iter().enumerate() {
            for path in given(&node.plan(set)) {
                rows.entry(path).or_default()[index] = true;
            }
        }
        writeln!(text, "\ndriver {version}").unwrap();
        for (path, columns) in rows {
            for (set, on) in SETS.iter().zip(columns) {
                let mark = if on { "x" } else { "-" };
                write!(text, "{mark:<width$}  ", width = set.len()).unwrap();
            }
            writeln!(text, "{path}").unwrap();
        }
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(GOLDEN);
    if std::env::var_os("NVS_WRITE_GOLDEN").is_some() {
        fs::write(&golden, &text).unwrap();
    }
    let expected = fs::read_to_string(&golden).unwrap();
    for (number, (ours, theirs)) in text.lines().zip(expected.lines()).enumerate() {
        assert_eq!(ours, theirs, "line {} of {GOLDEN}; NVS_WRITE_GOLDEN=1 writes it", number + 1);
    }
    assert_eq!(text.lines().count(), expected.lines().count());
}

/// The names, without directory and version, of devices and files.
fn names(plan: &Plan) -> BTreeSet<String> {
    let devices = plan.edits.devices.iter().map(|device| device.path.clone());
    let mounts = plan.edits.mounts.iter().map(|mount| mount.destination.clone());
    let files = plan.fixups.files.iter().map(|file| file.path.clone());
    devices
        .chain(mounts)
        .chain(files)
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.split_once(".so.").map_or(name, |(name, _)| name).to_owned()
        })
        .collect()
}

#[test]
fn every_set_is_what_the_reference_says() {
    for (driver, version) in DRIVERS {
        let node = Node::new(driver, version);
        let everything = names(&node.plan("all"));
        for (set, capabilities) in [
            ("utility", &["utility"][..]),
            ("compute", &["compute"]),
            ("compute,utility", &["compute", "utility"]),
            ("video", &["compute", "video"]),
            ("graphics", &["graphics"]),
            ("ngx", &["ngx"]),
            ("display", &["graphics", "display"]),
        ] {
            let mut expected = reference::names(capabilities);
            // Not every driver has everything.
            expected.retain(|name| everything.contains(*name));
            let given = names(&node.plan(set));
            let given: BTreeSet<&str> = given.iter().map(String::as_str).collect();
            assert_eq!(given, expected, "{set} of {version}");
        }
        let known = reference::names(&REFERENCE.map(|(capability, _)| capability));
        let more: Vec<_> =
            everything.iter().filter(|name| !known.contains(name.as_str())).collect();
        assert_eq!(more, [""; 0], "all of {version}");
    }
}

/// A library that is loaded with another is given with it, whatever the capabilities.
#[test]
fn no_library_is_given_without_those_that_it_needs() {
    for (driver, version) in DRIVERS {
        let node = Node::new(driver, version);
        let all = sonames(&node, "all");
        for set in ["utility", "compute", "video", "graphics", "display", "ngx"] {
            let given = sonames(&node, set);
            for (path, _) in given.values() {
                for needed in needed(path) {
                    let ours = all.contains_key(&needed);
                    let missing = ours && !given.contains_key(&needed);
                    assert!(!missing, "{set} of {version}: {} needs {needed}", path.display());
                }
            }
        }
    }
}

/// What the loader finds, with the file on this machine.
fn sonames(node: &Node, capabilities: &str) -> BTreeMap<String, (PathBuf, PathBuf)> {
    let plan = node.plan(capabilities);
    let host = node.host();
    let mut found = BTreeMap::new();
    for mount in &plan.edits.mounts {
        let path = host.join(&mount.source);
        let Ok(file) = fs::File::open(&path) else { continue };
        let elf = match Elf::read(&file) {
            Ok(elf) => elf,
            Err(ElfError::NotElf | ElfError::Truncated(_)) => continue,
            Err(error) => panic!("{}: {error}", path.display()),
        };
        let name = mount.destination.file_name().unwrap().to_str().unwrap().to_owned();
        found.insert(elf.soname.unwrap_or(name), (path, mount.destination.clone()));
    }
    found
}

/// `DT_NEEDED`, as binutils reads it.
fn needed(path: &Path) -> Vec<String> {
    let output = Command::new("readelf").arg("-d").arg(path).output().unwrap();
    assert!(output.status.success(), "readelf {}", path.display());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| line.contains("(NEEDED)"));
    lines
        .filter_map(|line| Some(line.split_once('[')?.1.trim_end_matches(']').to_owned()))
        .collect()
}

/// By name and by where it comes from: nothing but the driver's.
#[test]
fn nothing_but_the_drivers_files_is_mounted() {
    for (driver, version) in DRIVERS {
        let node = Node::new(driver, version);
        for mount in node.plan("all").edits.mounts {
            let source = mount.source.as_path();
            let name = source.file_name().unwrap().to_str().unwrap();
            let in_root = source.starts_with("/run/nvidia/driver");
            // The daemon's socket is on the host.
            assert!(in_root || source.starts_with("/run/nvidia-persistenced"), "{mount:?}");
            let ours =
                ["nvidia", "libnv", "gsp_", "socket", "nv"].iter().any(|it| name.contains(it));
            assert!(ours || name.ends_with(&format!(".so.{version}")), "{mount:?}");
        }
    }
}
