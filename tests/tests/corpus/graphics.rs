//! What NVIDIA's runtime adds for graphics in mode legacy, where capabilities are honoured. The
//! rest is a hook's, which was not recorded: it is compared with the reference's tables, on real
//! drivers.

use std::collections::{BTreeMap, BTreeSet};

use nvidia_oci::Code;
use tests::corpus::Corpus;
use tests::tree::{Tree, hosts};

use crate::compare::{decide, items};

/// Where NVIDIA's runtime does not fail and we do, and why.
const REFUSED: [(&str, Code); 2] = [
    // Its hook would.
    ("host/deb550-nogpu-all.legacy", Code::NoGpu),
    // A host without procfs of the driver: none is loaded.
    ("host/nvml-fails-all.legacy", Code::NoKernelDriver),
];
/// Where NVIDIA takes an index for a minor, and gives the DRM nodes of another GPU.
const OTHER_GPU: [&str; 1] = ["host/rhel-580-graphics-0.legacy"];
const OF_ONE_GPU: [&str; 3] = ["device /dev/dri/", "rule c 226:", "link /dev/dri/"];

#[test]
fn graphics_is_given_where_it_is_asked_for_and_only_there() {
    let corpus = Corpus::load();
    let facts = hosts();
    let mut trees = BTreeMap::new();
    let mut compared = 0;
    for case in &corpus.cases {
        let in_group = ["caps", "host"].contains(&case.group()) && case.mode() == "legacy";
        let Some(theirs) = corpus.expected(case).filter(|_| in_group && case.ran) else { continue };
        let tree =
            trees.entry(&case.host).or_insert_with(|| Tree::build(&facts[&case.host]).unwrap());
        compared += 1;
        let given = match decide(tree, &corpus, case, "auto") {
            Ok(given) => given.unwrap_or_else(|| panic!("{}: untouched", case.name)),
            Err(error) => {
                let refused = REFUSED.contains(&(case.name.as_str(), error.code()));
                assert!(refused, "{}: {error}", case.name);
                continue;
            }
        };
        let ours = items(&given.added);
        for item in items(theirs) {
            // NVIDIA leaves the dev root in the links by bus id.
            let item = item.replace("link /run/nvidia/driver/dev/", "link /dev/");
            let of_other = OTHER_GPU.contains(&case.name.as_str())
                && OF_ONE_GPU.iter().any(|beginning| item.starts_with(beginning));
            assert!(of_other || ours.contains(&item), "{}: {item} is not in\n{ours:#?}", case.name);
        }
        let draws = |items: &BTreeSet<String>| {
            items.iter().any(|item| item.contains("egl_vendor.d") || item.contains("/dev/dri/"))
        };
        assert_eq!(draws(&ours), draws(&items(theirs)), "{}", case.name);
    }
    assert!(compared >= 13, "{compared}");
}
