//! The whole decision: what containers get, and what NVIDIA gives them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use nvidia_oci::{Config, ConfigSource, Error, Handler, Image, Outcome, Spec, plan};
use tests::corpus::{Added, Case, Corpus};
use tests::tree::{Tree, hosts};

use crate::differences::{DIFFERENCES, Ours};
use crate::legacy;
use crate::tally::{self, Tally};

/// What became of a case: what was added, nothing, or a refusal.
pub(crate) type Got = Result<Option<Given>, Error>;

pub(crate) struct Given {
    pub(crate) added: Added,
    /// Links that are right in any case: SONAMEs of libraries that are given.
    sonames: BTreeSet<String>,
}

/// What becomes of a case, with that value of `driver-capabilities`.
pub(crate) fn decide(tree: &Tree, corpus: &Corpus, case: &Case, capabilities: &str) -> Got {
    let place = Path::new("config.json");
    let text = match (corpus.input(case), &case.raw) {
        (Some(input), _) => serde_json::to_vec(input).unwrap(),
        (None, Some(raw)) => raw.clone().into_bytes(),
        (None, None) => panic!("{} has no input", case.name),
    };
    let spec = Spec::parse(&text, place)?;
    install(tree, &corpus.files(case));
    let Outcome::Edited(plan) = decide_spec(tree, case, capabilities, &spec)? else {
        return Ok(None);
    };
    let mut after = spec.clone();
    plan.edits.apply(&mut after)?;
    let mut twice = after.clone();
    plan.edits.apply(&mut twice)?;
    assert_eq!(twice.to_json(), after.to_json(), "{}: twice is not once", case.name);

    let mut added = Added::between(spec.value(), after.value());
    let show = |path: &Path| path.display().to_string();
    added.links = plan.fixups.links.iter().map(|l| (show(&l.link), show(&l.target))).collect();
    added.folders = plan.fixups.library_dirs.iter().map(|dir| show(dir)).collect();
    let libraries = plan.fixups.libraries.iter();
    let sonames =
        libraries.map(|library| show(&library.path.with_file_name(&library.soname))).collect();
    Ok(Some(Given { added, sonames }))
}

/// Puts these CDI specs where there are none yet.
fn install(tree: &Tree, files: &BTreeMap<String, String>) {
    for directory in ["/etc/cdi", "/run/cdi", "/var/run/cdi"] {
        let directory = tree.host().join(Path::new(directory));
        if directory.is_dir() {
            fs::remove_dir_all(directory).unwrap();
        }
    }
    for (path, text) in files {
        tree.write(path, text).unwrap();
    }
}

/// CDI's contract is that of one handler, and of the other where the settings say so.
fn handler(case: &Case) -> Handler {
    if case.mode() == "cdi" || case.program.ends_with(".cdi") {
        Handler::NvidiaCdi
    } else {
        Handler::Nvidia
    }
}

fn decide_spec(
    tree: &Tree,
    case: &Case,
    capabilities: &str,
    spec: &Spec,
) -> nvidia_oci::Result<Outcome> {
    let file = "/etc/nvidia-container-runtime/config.toml";
    tree.write(file, case.config.as_deref().unwrap_or_default()).unwrap();
    // NVIDIA's just-in-time mode: all capabilities, no requirements, the host's paths.
    let settings = [
        ("host-root", tree.path().to_str().unwrap()),
        ("library-path", "host"),
        ("driver-capabilities", capabilities),
        ("requirements", if is_legacy(case) { "auto" } else { "off" }),
    ];
    let source = ConfigSource {
        path: Some(tree.host().join(&Config::default_file(|name| case.env.get(name).cloned()))),
        set: settings.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec(),
        ..ConfigSource::default()
    };
    let (config, _) = Config::load(&source)?;
    plan(&tree.host(), &config, handler(case), &Image::default(), spec)
}

fn is_legacy(case: &Case) -> bool {
    case.mode() == "legacy"
}

/// Each item that only one of two results has, in a line: `+` ours, `-` NVIDIA's.
pub(crate) fn items(added: &Added) -> BTreeSet<String> {
    let mut items = BTreeSet::new();
    items.extend(added.devices.iter().map(|(path, major, minor, mode, uid, gid)| {
        format!("device {path} {major}:{minor} {:o} {uid}:{gid}", mode.unwrap_or(0))
    }));
    items.extend(
        added
            .rules
            .iter()
            .map(|(kind, major, minor, access)| format!("rule {kind} {major}:{minor} {access}")),
    );
    items.extend(added.mounts.iter().map(|(source, destination, read_only)| {
        format!("mount {destination} {source} {}", if *read_only { "ro" } else { "rw" })
    }));
    items.extend(added.links.iter().map(|(link, target)| format!("link {link} {target}")));
    items.extend(added.folders.iter().map(|folder| format!("folder {folder}")));
    items.extend(added.gids.iter().map(|gid| format!("gid {gid}")));
    // What the handler itself is told differs by design (`NVIDIA_VISIBLE_DEVICES` inside).
    let env = added.env.iter().filter(|(name, _)| *name != "NVIDIA_VISIBLE_DEVICES");
    items.extend(env.map(|(name, value)| format!("env {name}={value}")));
    items
}

/// Compares what a container got with what it should get but for `but`, beginnings of lines.
fn compare(given: &Given, theirs: &Added, but: &[String]) -> Result<(), String> {
    let (ours, theirs) = (items(&given.added), items(theirs));
    let is_soname = |item: &&String| {
        let link = item.strip_prefix("link ").and_then(|link| link.split(' ').next());
        link.is_some_and(|link| given.sonames.contains(link))
    };
    let surplus = ours.difference(&theirs).filter(|item| !is_soname(item));
    let surplus = surplus.map(|item| format!("+{item}"));
    let missing = theirs.difference(&ours).map(|item| format!("-{item}"));
    let lines: Vec<String> = surplus.chain(missing).collect();
    let unexpected = lines.iter().filter(|line| !but.iter().any(|but| line.starts_with(but)));
    let unmet = but.iter().filter(|but| !lines.iter().any(|line| line.starts_with(but.as_str())));
    let complaints: Vec<String> =
        unexpected.cloned().chain(unmet.map(|but| format!("no line {but}"))).collect();
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n  ")) }
}

fn judge(corpus: &Corpus, case: &Case, got: Got) -> Result<(), String> {
    let row = |case: &Case| DIFFERENCES.get(&case.name);
    // The hook that decides in mode legacy was not recorded; another mode was asked the same.
    let twin = match row(case) {
        None if is_legacy(case) => legacy::twin(corpus, case).ok_or("no such case")?,
        _ => case,
    };
    // And there capabilities are honoured.
    let theirs = |twin: &Case| {
        let added = corpus.expected(twin).cloned();
        let spec = corpus.input(case).filter(|_| is_legacy(case));
        match (added, spec) {
            (Some(added), Some(spec)) => Some(legacy::of_capabilities(&added, spec)),
            (added, _) => added,
        }
    };
    match (row(twin).map(|row| &row.ours), got) {
        (Some(Ours::Refused(code)), Err(error)) if error.code().id() == code => Ok(()),
        (Some(Ours::Untouched), Ok(None)) => Ok(()),
        (Some(Ours::Like { case: other, but }), Ok(Some(given))) => {
            let other = corpus.cases.iter().find(|case| case.name == *other);
            compare(&given, &other.and_then(theirs).ok_or("no such case")?, but)
        }
        (None, Err(_)) if !twin.ran => Ok(()),
        (None, got) if twin.ran => {
            let theirs = theirs(twin).filter(|added| !items(added).is_empty());
            match (got, theirs) {
                (Ok(None), None) => Ok(()),
                (Ok(Some(given)), theirs) => compare(&given, &theirs.unwrap_or_default(), &[]),
                (Ok(None), Some(_)) => Err("untouched".to_owned()),
                (Err(error), _) => Err(error.to_string()),
            }
        }
        (expected, Err(error)) => Err(format!("expected {expected:?}, but {error}")),
        (expected, Ok(None)) => Err(format!("expected {expected:?}, but untouched")),
        (expected, Ok(Some(_))) => Err(format!("expected {expected:?}, but something was added")),
    }
}

#[test]
fn containers_get_what_nvidia_gives_them() {
    let corpus = Corpus::load();
    let facts = hosts();
    let mut trees = BTreeMap::new();
    let mut tally = Tally::default();
    for case in &corpus.cases {
        if let Some(elsewhere) = tally::elsewhere(case) {
            tally.leave(elsewhere);
            continue;
        }
        let tree =
            trees.entry(&case.host).or_insert_with(|| Tree::build(&facts[&case.host]).unwrap());
        // Mode legacy honours capabilities, the others give all.
        let capabilities = if is_legacy(case) { "auto" } else { "all" };
        let verdict = judge(&corpus, case, decide(tree, &corpus, case, capabilities));
        tally.count(&corpus, case, verdict);
    }
    tally.finish();
}
