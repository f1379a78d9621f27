//! Whatever a container writes, it gets no device that it did not name.

use proptest::prelude::*;
use serde_json::json;

use super::tests::Case;
use crate::Spec;

/// What may be written, and which of the two GPUs it means, by index: GPU 0 has minor 1, GPU 1
/// minor 0. No meaning at all: refused.
const WORDS: [(&str, Option<&[u64]>); 24] = [
    ("0", Some(&[0])),
    ("1", Some(&[1])),
    ("00", Some(&[0])),
    (" 1\t", Some(&[1])),
    ("\u{a0}0\n", Some(&[0])),
    ("GPU-00000000-aaaa-bbbb-cccc-000000000000", Some(&[0])),
    ("gpu-00000001-AAAA-bbbb-cccc-000000000000", Some(&[1])),
    ("0000:0a:00.0", Some(&[0])),
    ("b:0.0", Some(&[1])),
    ("", Some(&[])),
    ("all", Some(&[0, 1])),
    ("none", Some(&[])),
    ("All", None),
    ("2", None),
    ("-1", None),
    ("4294967296", None),
    ("\u{661}", None),
    ("0\0", None),
    ("0-1", None),
    ("*", None),
    ("GPU-", None),
    ("0:0", None),
    ("nvidia.com/gpu=all", None),
    ("/dev/mem", None),
];

proptest! {
    #[test]
    fn a_list_gives_what_it_names_or_is_refused(
        words in prop::collection::vec(prop::sample::select(WORDS.to_vec()), 1..5),
        void in prop::bool::weighted(0.1),
        earlier in prop::option::of("all|0,1|void"),
    ) {
        let mut list = words.iter().map(|(word, _)| *word).collect::<Vec<_>>();
        list.extend(void.then_some("void"));
        let mut env = vec![format!("NVIDIA_VISIBLE_DEVICES={}", list.join(","))];
        // Only the last entry of a name counts.
        env.splice(0..0, earlier.map(|value| format!("NVIDIA_VISIBLE_DEVICES={value}")));
        let mut case = Case::asking("");
        case.spec = json!({"process": {"env": env}});
        let request = crate::Request::of(&Spec::new(case.spec.clone())).unwrap();
        if void {
            prop_assert!(request.is_none());
            return Ok(());
        }
        if request.is_none() {
            prop_assert!(words.iter().all(|(word, _)| word.trim().is_empty()));
            return Ok(());
        }
        let Ok(plan) = case.plan() else {
            prop_assert!(words.iter().any(|(_, meaning)| meaning.is_none()));
            return Ok(());
        };
        let mut spec = Spec::new(case.spec.clone());
        plan.edits.apply(&mut spec).unwrap();
        let named: Vec<u64> = words.iter().flat_map(|(_, named)| named.unwrap_or_default()).copied().collect();
        for rule in spec.value()["linux"]["resources"]["devices"].as_array().unwrap() {
            let number = |key: &str| rule[key].as_u64().expect("no wildcard");
            prop_assert_eq!((&rule["allow"], &rule["type"]), (&json!(true), &json!("c")));
            match (number("major"), number("minor")) {
                (195, 255) | (510, 0) => {}
                (195, minor) => prop_assert!(named.contains(&(1 - minor)), "{list:?}: {rule}"),
                (226, minor) => prop_assert!(named.contains(&minor), "{list:?}: {rule}"),
                other => prop_assert!(false, "{list:?}: {other:?}"),
            }
        }
    }
}
