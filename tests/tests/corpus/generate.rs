//! CDI specs that we generate, and those that NVIDIA's generator made of the same hosts: devices,
//! nodes, mounts, links, loader directories.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

use nvidia_oci::Host;
use nvidia_oci::cdi::{self, ContainerEdits, Device, DeviceNode, Spec};
use nvidia_oci::elf::Elf;
use nvidia_shim::cdi::parse_generate;
use serde::Deserialize;
use tests::tree::{Tree, hosts};

use crate::schema::assert_fits;

/// `tests/corpus/generate.json`
#[derive(Deserialize)]
struct Corpus {
    cases: Vec<Case>,
    /// Edits that cases refer to by place.
    edits: Vec<ContainerEdits>,
}

#[derive(Deserialize)]
struct Case {
    /// `host/what`
    name: String,
    host: String,
    args: Vec<String>,
    /// `None`: it was refused.
    expect: Option<Expected>,
}

#[derive(Deserialize)]
struct Expected {
    version: String,
    kind: String,
    devices: BTreeMap<String, usize>,
    edits: usize,
}

impl Corpus {
    fn load() -> Self {
        let text = include_str!("../../corpus/generate.json");
        serde_json::from_str(text).expect("tests/corpus/generate.json")
    }

    fn spec(&self, expected: &Expected) -> Spec {
        let device = |(name, at): (&String, &usize)| Device {
            name: name.clone(),
            edits: self.edits[*at].clone(),
            ..Device::default()
        };
        Spec {
            version: expected.version.clone(),
            kind: expected.kind.clone(),
            devices: expected.devices.iter().map(device).collect(),
            edits: self.edits[expected.edits].clone(),
            ..Spec::default()
        }
    }

    fn case(&self, name: &str) -> &Case {
        self.cases.iter().find(|case| case.name == name).expect(name)
    }
}

/// What we do on purpose: the case, the row of the design's table or its decision, the result.
struct Difference {
    case: &'static str,
    #[expect(dead_code, reason = "for who reads it")]
    row: &'static str,
    ours: Ours,
}

enum Ours {
    Refused,
    /// As NVIDIA's result for this case, but for lines that begin so: `+` ours, `-` NVIDIA's.
    Like(&'static str, &'static [&'static str]),
}
use Ours::{Like, Refused};

/// 32-bit libraries of the RHEL host, in /usr/lib.
const COMPAT32: &[&str] =
    &["+every: mount /usr/lib/lib", "+every: folder /usr/lib", "+every: link /usr/lib/libcuda.so"];
/// NVIDIA's locator of files does not take a directory.
const MPS: &[&str] = &["+every: mount /tmp/nvidia-mps"];
/// NVIDIA leaves the driver root in the path of the link.
const BY_PATH: &[&str] =
    &[": link /run/nvidia/driver/dev/dri/by-path/", ": link /dev/dri/by-path/"];
/// The driver of Talos comes without the files that lead loaders to its libraries.
const VENDOR_FILES: &[&str] = &["+every: file ", "+every: hook apply"];

const DIFFERENCES: &[Difference] = &[
    row("rhel-580/coherent", "32-bit libraries", Like("rhel-580/coherent", COMPAT32)),
    row("rhel-580/explicit-libs", "32-bit libraries", Like("rhel-580/explicit-libs", COMPAT32)),
    row("deb550-8gpu/default", "MPS directory", Like("deb550-8gpu/default", MPS)),
    row("deb550-8gpu/mode-management", "MPS directory", Like("deb550-8gpu/mode-management", MPS)),
    row("gpuop-550/root", "by-path links", Like("gpuop-550/root", BY_PATH)),
    // NVIDIA cuts a slash too much from the path of libraries.
    row("gpuop-550/root-slash", "by-path links", Like("gpuop-550/root", BY_PATH)),
    row("talos-glibc/default", "driver root", Like("talos-glibc/root-devroot", VENDOR_FILES)),
    row("talos-glibc/root", "dev root", Like("talos-glibc/root-devroot", VENDOR_FILES)),
    row("talos-glibc/root-devroot", "decision 9", Like("talos-glibc/root-devroot", VENDOR_FILES)),
    row(
        "talos-glibc/subroot-devroot",
        "decision 9",
        Like("talos-glibc/subroot-devroot", VENDOR_FILES),
    ),
    // MIG devices are step 5.
    row(
        "deb550-mig/default",
        "decision 4",
        Like("deb550-mig/default", &["-device 0:", "-device MIG-", MIG_GPU, MIG_CAPS]),
    ),
    row(
        "deb550-mig/index",
        "decision 4",
        Like("deb550-mig/index", &["-device 0:", MIG_GPU, MIG_CAPS]),
    ),
    row(
        "deb550-mig/type-index",
        "decision 4",
        Like("deb550-mig/type-index", &["-device mig0:", MIG_GPU, MIG_CAPS]),
    ),
    row(
        "deb550-mig/uuid",
        "decision 4",
        Like("deb550-mig/uuid", &["-device MIG-", MIG_GPU, MIG_CAPS]),
    ),
    row("deb550-mig/dev-miguuid", "decision 4", Refused),
];
const MIG_GPU: &str = "-device all: node /dev/nvidia0 ";
const MIG_CAPS: &str = "-device all: node /dev/nvidia-caps/";

const fn row(case: &'static str, row: &'static str, ours: Ours) -> Difference {
    Difference { case, row, ours }
}

/// Each thing that a spec says, in a line with the device that it is of.
fn lines(spec: &Spec) -> BTreeSet<String> {
    let mut lines = BTreeSet::from([format!("kind {}", spec.kind)]);
    lines.extend(of_edits(&spec.edits).map(|line| format!("every: {line}")));
    for Device { name, edits, .. } in &spec.devices {
        lines.insert(format!("device {name}"));
        lines.extend(of_edits(edits).map(|line| format!("device {name}: {line}")));
    }
    lines
}

fn of_edits(edits: &ContainerEdits) -> impl Iterator<Item = String> {
    let env = edits.env.iter().map(|entry| format!("env {entry}"));
    let nodes = edits.device_nodes.iter().map(node);
    let mounts = edits.mounts.iter().map(|mount| {
        let options = mount.options.join(",");
        format!("mount {} {} {options}", mount.container_path, mount.host_path)
    });
    let hooks = edits.hooks.iter().flat_map(|hook| {
        assert!(!hook.env.is_empty() && hook.hook_name == "createContainer");
        let at = if hook.args[1] == "hook" { 2 } else { 1 };
        let (command, words) = (&hook.args[at], &hook.args[at + 1..]);
        let program = format!("program {} {}", hook.path, hook.args[..at].join(" "));
        let of_flags = words.chunks(2).map(|pair| match pair {
            [flag, value] if flag == "--link" => {
                let (target, link) = value.split_once("::").unwrap();
                format!("link {link} {target}")
            }
            [flag, value] => format!("{} {value}", flag.trim_start_matches('-')),
            [flag] => format!("{command} {flag}"),
            _ => unreachable!(),
        });
        [program].into_iter().chain(of_flags).chain([format!("hook {command}")]).collect::<Vec<_>>()
    });
    let gids = edits.additional_gids.iter().map(|gid| format!("gid {gid}"));
    env.chain(nodes).chain(mounts).chain(hooks).chain(gids)
}

fn node(node: &DeviceNode) -> String {
    let host = if node.host_path.is_empty() { &node.path } else { &node.host_path };
    let gid = node.gid.unwrap_or(0);
    match node.file_mode {
        Some(mode) => {
            format!("node {} {host} {}:{} {mode:o} {gid}", node.path, node.major, node.minor)
        }
        // Of IMEX channels NVIDIA says no more.
        None => format!("node {} {host}", node.path),
    }
}

/// Links that are right in any case: SONAMEs of libraries that are given.
fn is_soname(spec: &Spec, tree: &Host, line: &str) -> bool {
    let Some((link, target)) = line.strip_prefix("every: link ").and_then(|it| it.split_once(' '))
    else {
        return false;
    };
    let link = Path::new(link);
    let file = link.with_file_name(target);
    let mount = spec.edits.mounts.iter().find(|mount| Path::new(&mount.container_path) == file);
    let soname = mount.and_then(|mount| {
        let path = tree.join(&tree.resolve(Path::new(&mount.host_path)).ok()?);
        Elf::read(&std::fs::File::open(path).ok()?).ok()?.soname
    });
    soname.is_some_and(|soname| link.ends_with(soname))
}

fn compare(ours: &Spec, theirs: &Spec, tree: &Host, but: &[&str]) -> Result<(), String> {
    let (mine, their) = (lines(ours), lines(theirs));
    // What they say less of is in ours with more.
    let says_more = |line: &&String| their.iter().any(|it| line.starts_with(&format!("{it} ")));
    let says_less = |line: &&String| mine.iter().any(|it| it.starts_with(&format!("{line} ")));
    let surplus = mine.difference(&their).filter(|line| !is_soname(ours, tree, line));
    let surplus = surplus.filter(|line| !says_more(line)).map(|line| format!("+{line}"));
    let missing = their.difference(&mine).filter(|line| !says_less(line));
    let found: Vec<String> = surplus.chain(missing.map(|line| format!("-{line}"))).collect();
    let is = |line: &str, but: &str| match but.strip_prefix(':') {
        Some(_) => line.contains(but),
        None => line.starts_with(but),
    };
    let unexpected = found.iter().filter(|line| !but.iter().any(|but| is(line, but))).cloned();
    let unmet = but.iter().filter(|but| !found.iter().any(|line| is(line, but)));
    let complaints: Vec<String> =
        unexpected.chain(unmet.map(|but| format!("no line {but}"))).collect();
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n  ")) }
}

fn judge(corpus: &Corpus, case: &Case, tree: &Tree) -> Result<(), String> {
    let mut words = case.args.clone();
    words.push(format!("--host-root={}", tree.path().display()));
    let generated = parse_generate(&words)
        .map_err(anyhow::Error::from)
        .and_then(|args| Ok(args.generate()?.spec));
    let expected = |name: &str| corpus.case(name).expect.as_ref().map(|it| corpus.spec(it));
    let ours = DIFFERENCES.iter().find(|it| it.case == case.name).map(|it| &it.ours);
    let (like, but): (&str, &[&str]) = match ours {
        Some(Like(name, but)) => (name, but),
        _ => (&case.name, &[]),
    };
    match (ours, expected(like), generated) {
        (Some(Refused), _, Err(_)) | (None, None, Err(_)) => Ok(()),
        (Some(Like(..)) | None, Some(theirs), Ok(ours)) => {
            assert_fits(&serde_json::to_value(&ours).unwrap());
            let text = ours.to_yaml().unwrap();
            assert_eq!(cdi::parse(text.as_bytes()).unwrap(), ours, "{text}");
            assert!(ours.version <= theirs.version || !but.is_empty(), "{}", ours.version);
            compare(&ours, &theirs, &tree.host(), but)
        }
        (_, _, Err(error)) => Err(format!("{error:#}")),
        (_, _, Ok(_)) => Err("it was not refused".to_owned()),
    }
}

#[test]
fn generated_specs_say_what_nvidias_say() {
    let corpus = Corpus::load();
    let facts = hosts();
    let mut trees = BTreeMap::new();
    let mut complaints = Vec::new();
    for case in &corpus.cases {
        let tree =
            trees.entry(&case.host).or_insert_with(|| Tree::build(&facts[&case.host]).unwrap());
        if let Err(what) = judge(&corpus, case, tree) {
            complaints.push(format!("{}:\n  {what}", case.name));
        }
    }
    let (all, differ, failed) = (corpus.cases.len(), DIFFERENCES.len(), complaints.len());
    let agree = all.saturating_sub(differ + failed);
    let line = format!(
        "cdi generate: {all} cases: {agree} agree, {differ} differ by design, {failed} fail\n"
    );
    // Past the harness, which keeps what a test that passes prints.
    io::stderr().write_all(line.as_bytes()).unwrap();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert_eq!(all, 46);
    let is_case = |difference: &Difference| corpus.case(difference.case).name == difference.case;
    assert!(DIFFERENCES.iter().all(is_case));
}

#[test]
fn specs_of_nvidias_generator_are_read() {
    let corpus = Corpus::load();
    for case in &corpus.cases {
        let Some(expected) = &case.expect else { continue };
        let spec = corpus.spec(expected);
        assert_eq!(cdi::parse(spec.to_json().unwrap().as_bytes()).unwrap(), spec, "{}", case.name);
        assert_fits(&serde_json::to_value(&spec).unwrap());
        assert_eq!(spec.lowest_version().to_string(), expected.version, "{}", case.name);
    }
}

/// As at the start of a container; without being told so, the generator changes nothing.
#[test]
fn a_host_is_prepared_on_demand() {
    let tree = Tree::build(&hosts()["deb550-nodev"]).unwrap();
    let root = format!("--host-root={}", tree.path().display());
    let generate = |words: &[&str]| {
        let words: Vec<String> =
            words.iter().chain([&root.as_str()]).map(ToString::to_string).collect();
        parse_generate(&words).unwrap().generate()
    };
    generate(&[]).unwrap_err();
    assert!(!tree.path().join("dev/nvidiactl").exists());
    let spec = generate(&["--prepare"]).unwrap().spec;
    assert!(tree.path().join("dev/nvidiactl").exists());
    assert_eq!(generate(&[]).unwrap().spec, spec);
}

#[test]
fn the_kind_of_a_machine_is_seen() {
    for (host, mode) in [("wsl2", "wsl"), ("tegra-csv", "csv"), ("deb535-2gpu", "nvml")] {
        let tree = Tree::build(&hosts()[host]).unwrap();
        let spec = |mode: &str| {
            let root = format!("--host-root={}", tree.path().display());
            let words = [format!("--mode={mode}"), root];
            parse_generate(&words).unwrap().generate().unwrap().spec
        };
        assert_eq!(spec("auto"), spec(mode), "{host}");
    }
}
