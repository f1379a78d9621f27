//! `differences.json`: where we differ from NVIDIA on purpose, the row of the design's table that
//! says so (or the decision), and what a container gets instead.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Difference {
    /// The subject in the table of the design.
    #[expect(dead_code, reason = "for a person, and shown when a row is stale")]
    row: String,
    #[serde(rename = "expected")]
    pub(crate) ours: Ours,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Ours {
    /// With this code.
    Refused(String),
    Untouched,
    /// As NVIDIA's result for that case, but for lines that begin so: `+` ours, `-` NVIDIA's.
    Like {
        case: String,
        but: Vec<String>,
    },
}

/// By the case's name.
pub(crate) static DIFFERENCES: LazyLock<BTreeMap<String, Difference>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../corpus/differences.json")).expect("differences.json")
});
