//! Nothing of a spec is lost or reordered, and editing twice is editing once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nvidia_oci::{ConfigSource, Handler, Spec};
use nvidia_shim::explain::{Question, Verdict};
use serde_json::Value;
use tests::corpus::Corpus;
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
