//! What we make of the recorded cases, compared with what NVIDIA's programs made of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::Path;

use nvidia_oci::{Config, ConfigSource, Driver, FileKind, Handler, Inventory, Spec};
use nvidia_shim::explain::{Question, Verdict};
use serde_json::Value;
use tests::corpus::{Added, Corpus};
use tests::tree::{Tree, hosts};

#[test]
fn reading_and_writing_loses_nothing() {
    let corpus = Corpus::load();
    for input in &corpus.inputs {
        let text = serde_json::to_string(input).unwrap();
        let spec = Spec::parse(text.as_bytes(), Path::new("config.json")).unwrap();
        let written = spec.to_json();
        // Text, not values: the order of keys counts.
        let again: Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
    }
    assert!(corpus.inputs.len() > 100);
}

/// The result for a case that asked for every GPU of `host`.
fn everything(corpus: &Corpus, host: &str) -> Added {
    let case = ["all", "root-all"]
        .map(|what| format!("host/{host}-{what}.auto"))
        .into_iter()
        .chain(["nvd/all.jit".to_owned()])
        .find_map(|name| {
            let case = corpus.cases.iter().find(|case| case.name == name && case.host == host)?;
            corpus.expected(case).filter(|added| !added.mounts.is_empty())
        });
    case.cloned().unwrap_or_else(|| panic!("no case for {host}"))
}

/// What only one of two sets has.
fn difference<T: Ord + Debug>(ours: &BTreeSet<T>, theirs: &BTreeSet<T>) -> Vec<String> {
    let surplus = ours.difference(theirs).map(|item| format!("ours only: {item:?}"));
    surplus.chain(theirs.difference(ours).map(|item| format!("theirs only: {item:?}"))).collect()
}

/// Discovery alone finds what NVIDIA mounts and links, on every host that has a driver.
#[test]
fn discovery_finds_the_driver_of_every_host() {
    let corpus = Corpus::load();
    let facts = hosts();
    for name in ["deb535-2gpu", "deb550-8gpu", "rhel-580", "gpuop-550", "talos-glibc"] {
        let facts = &facts[name];
        let tree = Tree::build(facts).unwrap();
        let host = tree.host();
        let inventory = Inventory::read(&host, &Config::default()).unwrap();
        assert_eq!(inventory.driver_version, facts.driver_version, "{name}");
        let driver =
            Driver::discover(&host, &Config::default(), inventory.driver_version.as_deref())
                .unwrap();
        assert_eq!(driver.root, Path::new(&facts.driver_root), "{name}");
        assert_eq!(driver.unreadable, [], "{name}");

        let expected = everything(&corpus, name);
        let wide = driver
            .libraries
            .iter()
            .filter(|library| library.class == nvidia_oci::elf::Class::Elf64);
        let show = |path: &Path| path.display().to_string();
        let mut mounts: BTreeSet<(String, String)> = wide
            .clone()
            .map(|library| (show(&driver.host_path(&library.path)), show(&library.path)))
            .collect();
        // NVIDIA's locator of the MPS directory takes no directories: design.md, "right".
        let files = driver.files.iter().filter(|file| file.source != Path::new("/tmp/nvidia-mps"));
        mounts.extend(files.clone().map(|file| (show(&file.source), show(&file.destination))));
        let theirs = expected.mounts.iter();
        let theirs: BTreeSet<_> =
            theirs.map(|(source, destination, _)| (source.clone(), destination.clone())).collect();
        assert_eq!(difference(&mounts, &theirs), [""; 0], "{name}");
        for file in files {
            let writable =
                expected.mounts.contains(&(show(&file.source), show(&file.destination), false));
            assert_eq!(writable, file.kind == FileKind::Socket, "{name} {file:?}");
        }

        let mut links: BTreeSet<(String, String)> = wide
            .flat_map(|library| {
                let dir = library.path.parent().unwrap();
                library.links.iter().map(|(link, target)| (show(&dir.join(link)), show(target)))
            })
            .collect();
        links.extend(driver.links.iter().map(|(link, target)| (show(link), show(target))));
        for gpu in &inventory.gpus {
            links.extend(gpu.drm_links.iter().map(|(link, target)| (show(link), show(target))));
        }
        let theirs: BTreeSet<_> = expected
            .links
            .iter()
            // NVIDIA leaves the dev root in these: design.md, "by-path links".
            .map(|(link, target)| (link.replace("/run/nvidia/driver/", "/"), target.clone()))
            .collect();
        // NVIDIA leaves out the SONAME links of the EGL platform libraries.
        let sonames: BTreeSet<_> =
            driver.libraries.iter().filter_map(|l| l.soname.as_deref()).collect();
        links.retain(|(link, target)| {
            let soname = Path::new(link).file_name().and_then(|name| name.to_str());
            theirs.contains(&(link.clone(), target.clone()))
                || !soname.is_some_and(|soname| sonames.contains(soname))
        });
        assert_eq!(difference(&links, &theirs), [""; 0], "{name}");
    }
}

/// Every input that is edited, by either handler: editing the result changes nothing.
#[test]
fn editing_twice_is_editing_once() {
    let corpus = Corpus::load();
    let facts = hosts();
    let mut edited = 0;
    let mut trees: BTreeMap<&str, Tree> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for case in &corpus.cases {
        let Some(input) = corpus.input(case) else { continue };
        // Cases that differ in settings only.
        if !seen.insert((&case.host, input.to_string())) {
            continue;
        }
        let tree = trees
            .entry(&case.host)
            .or_insert_with(|| Tree::build(&facts[case.host.as_str()]).unwrap());
        for handler in [Handler::Nvidia, Handler::NvidiaCdi] {
            let explain = |spec: &Value| {
                let question = Question {
                    config_json: spec.to_string().into_bytes(),
                    place: "config.json".into(),
                    bundle: None,
                    handler,
                    settings: ConfigSource::default(),
                    host_root: Some(tree.host().prefix().to_owned()),
                };
                question.explain()
            };
            let once = explain(input);
            if once.outcome != Verdict::Edited {
                assert_eq!(once.spec, *input, "{}", case.name);
                continue;
            }
            edited += 1;
            let twice = explain(&once.spec);
            // Text, not values: the order of keys and entries counts.
            assert_eq!(twice.spec.to_string(), once.spec.to_string(), "{}", case.name);
            let rules = once.spec.pointer("/linux/resources/devices").unwrap().as_array().unwrap();
            let old = input.pointer("/linux/resources/devices").and_then(Value::as_array);
            let ours = rules.iter().filter(|rule| !old.is_some_and(|old| old.contains(rule)));
            for rule in ours {
                assert!(rule["major"].is_u64() && rule["minor"].is_u64(), "{} {rule}", case.name);
            }
        }
    }
    assert!(edited > 50, "{edited}");
}
