//! The OCI-runtime front itself, called as NVIDIA's runtimes were: which command lines are looked
//! at, and what the runtime behind gets.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::Value;
use tests::corpus::{Added, Case, Corpus};
use tests::product;
use tests::tree::{Tree, hosts};

use crate::compare::items;

/// Where we differ on purpose: the case, why, whether the runtime is called, and what the container
/// gets: nothing, or what it got in another case.
const DIFFERENCES: &[(&str, &str, bool, Option<&str>)] = &[
    // `create` is a word here, not the command.
    ("argv/create-as-id.jit", "create as a subcommand only", true, None),
    ("argv/delete-create.jit", "create as a subcommand only", true, None),
    ("argv/exec-create.jit", "create as a subcommand only", true, None),
    ("argv/root-create.jit", "create as a subcommand only", true, None),
    ("argv/run.jit", "the same engine before create and run", true, Some("argv/cwd.jit")),
    // NVIDIA's injects what nvidia-container-cli does in a hook; it is not recorded.
    (
        "binary/legacy-mode-in-config-ignored",
        "NVIDIA's mode key: the environment contract",
        true,
        Some("argv/cwd.jit"),
    ),
    ("config/bad-toml.delete", "a broken file means runc", true, None),
    ("config/bad-toml.start", "a broken file means runc", true, None),
    ("config/bad-toml.state", "a broken file means runc", true, None),
];

/// What became of a case.
struct Got {
    success: bool,
    /// The words that the runtime behind got, if it was called.
    words: Option<Vec<String>>,
    added: Added,
}

/// Whether a case is one of command lines or of the programs' names.
pub(crate) fn is_answerable(case: &Case) -> bool {
    case.argv.is_some() || case.group() == "binary"
}

fn call(tree: &Tree, corpus: &Corpus, case: &Case) -> Got {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    for name in ["bundle/rootfs", "out", "bin"] {
        fs::create_dir_all(place(name)).unwrap();
    }
    let before = corpus.input(case).expect("a spec");
    fs::write(place("bundle/config.json"), before.to_string()).unwrap();
    let script = format!(
        "#!/bin/sh\nfor word; do printf '%s\\0' \"$word\"; done > {}\n",
        place("words").display()
    );
    fs::write(place("bin/runc"), script).unwrap();
    fs::set_permissions(place("bin/runc"), Permissions::from_mode(0o755)).unwrap();
    let settings = format!(
        "{}\n[nvidia-shim]\nhost-root = '{}'\nlibrary-path = 'host'\n\
         driver-capabilities = 'all'\nrequirements = 'off'\n",
        case.config.as_deref().unwrap_or_default(),
        tree.path().display(),
    );
    fs::write(place("config.toml"), settings).unwrap();

    let root = dir.path().display();
    let own = |word: &String| match word.as_str() {
        "/case/bundle" => format!("{root}/bundle"),
        word if word.starts_with("/out/") => format!("{root}{word}"),
        word => word.to_owned(),
    };
    let usual = ["create", "--bundle", "/case/bundle", "c1"].map(str::to_owned).to_vec();
    let words: Vec<String> = case.argv.as_ref().unwrap_or(&usual).iter().map(own).collect();
    let status = Command::new(product().join("nvidia-container-runtime"))
        .arg0(format!("/usr/bin/{}", case.program))
        .args(&words)
        .env_clear()
        .env("PATH", place("bin"))
        .env("NVIDIA_CTK_CONFIG_FILE_PATH", place("config.toml"))
        .current_dir(place("bundle"))
        .output()
        .unwrap()
        .status;
    let seen = fs::read_to_string(place("words")).ok();
    let seen = seen.map(|text| {
        let mut words: Vec<String> = text.split('\0').map(str::to_owned).collect();
        words.pop();
        words
    });
    assert!(seen.iter().all(|seen| *seen == words), "{}: {seen:?}", case.name);
    let after = fs::read(place("bundle/config.json")).unwrap();
    let after: Value = serde_json::from_slice(&after).unwrap();
    Got { success: status.success(), words: seen, added: Added::between(before, &after) }
}

fn judge(corpus: &Corpus, case: &Case, got: &Got) -> Result<(), String> {
    let row = DIFFERENCES.iter().find(|row| row.0 == case.name);
    let ran = row.map_or(case.ran, |row| row.2);
    if (got.success, got.words.is_some()) != (ran, ran) {
        return Err(format!("succeeds: {}, runs: {:?}", got.success, got.words));
    }
    let named = |name| corpus.cases.iter().find(|case| case.name == name);
    let like = row.map_or(Some(case), |row| row.3.and_then(named));
    let expected = like.and_then(|case| corpus.expected(case));
    let expected = expected.map(in_spec).unwrap_or_default();
    let ours = in_spec(&got.added);
    let lines = ours.difference(&expected).map(|item| format!("+{item}"));
    let lines: Vec<_> =
        lines.chain(expected.difference(&ours).map(|item| format!("-{item}"))).collect();
    if lines.is_empty() { Ok(()) } else { Err(lines.join("\n  ")) }
}

/// Links and folders are in no spec, and sources of mounts have the host's prefix in ours.
fn in_spec(added: &Added) -> BTreeSet<String> {
    let mut items = items(&Added { mounts: Vec::new(), ..added.clone() });
    items.retain(|item| !item.starts_with("link ") && !item.starts_with("folder "));
    let mounts = added.mounts.iter();
    items.extend(
        mounts.map(|(_, destination, read_only)| format!("mount {destination} {read_only}")),
    );
    items
}

#[test]
fn command_lines_mean_what_they_mean_to_nvidias_runtimes() {
    let corpus = Corpus::load();
    let facts = hosts();
    let mut trees = BTreeMap::new();
    let mut complaints = Vec::new();
    let cases: Vec<&Case> = corpus.cases.iter().filter(|case| is_answerable(case)).collect();
    for case in &cases {
        let tree =
            trees.entry(&case.host).or_insert_with(|| Tree::build(&facts[&case.host]).unwrap());
        if let Err(what) = judge(&corpus, case, &call(tree, &corpus, case)) {
            complaints.push(format!("{}:\n  {what}", case.name));
        }
    }
    let differ = cases.iter().filter(|case| DIFFERENCES.iter().any(|row| row.0 == case.name));
    let (differ, failed) = (differ.count(), complaints.len());
    let line = format!(
        "front: {} command lines: {} agree, {differ} differ by design, {failed} fail\n",
        cases.len(),
        cases.len() - differ - failed,
    );
    io::stderr().write_all(line.as_bytes()).unwrap();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert_eq!(cases.len(), 25);
    let stale = |row: &&(&str, &str, bool, Option<&str>)| !cases.iter().any(|c| c.name == row.0);
    assert_eq!(DIFFERENCES.iter().find(stale), None);
}
