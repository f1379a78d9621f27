//! How many cases agree with NVIDIA, differ by design or fail; no case is left out without a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use tests::corpus::{Case, Corpus};

use crate::differences::DIFFERENCES;
use crate::{front, legacy};

/// What has become of the cases so far.
#[derive(Default)]
pub(crate) struct Tally {
    agree: usize,
    differ: usize,
    complaints: Vec<String>,
    /// By reason.
    left: BTreeMap<&'static str, usize>,
    compared: BTreeSet<String>,
}

/// Why a case is not compared here.
pub(crate) fn elsewhere(case: &Case) -> Option<&'static str> {
    const HARDWARE: &str = "MIG, gated devices, Tegra: step 5";
    match (case.group(), case.mode()) {
        _ if front::is_answerable(case) => Some("command lines: see the front"),
        (_, "cdi") => None,
        ("mig" | "gated", _) | (_, "csv") => Some(HARDWARE),
        _ => None,
    }
}

impl Tally {
    pub(crate) fn leave(&mut self, reason: &'static str) {
        *self.left.entry(reason).or_default() += 1;
    }

    pub(crate) fn count(&mut self, corpus: &Corpus, case: &Case, verdict: Result<(), String>) {
        let is_listed = |name: &str| DIFFERENCES.contains_key(name);
        let twin = case.name.ends_with(".legacy").then(|| legacy::twin(corpus, case)).flatten();
        let differs = is_listed(&case.name) || twin.is_some_and(|twin| is_listed(&twin.name));
        match verdict {
            Ok(()) if differs => self.differ += 1,
            Ok(()) => self.agree += 1,
            Err(what) => self.complaints.push(format!("{}:\n  {what}", case.name)),
        }
        self.compared.insert(case.name.clone());
    }

    /// Prints the summary, past the harness, which keeps what a test that passes prints.
    pub(crate) fn finish(self) {
        let left: Vec<String> =
            self.left.iter().map(|(reason, count)| format!("{count} of {reason}")).collect();
        let line = format!(
            "corpus: {} cases compared: {} agree, {} differ by design, {} fail; left: {}\n",
            self.compared.len(),
            self.agree,
            self.differ,
            self.complaints.len(),
            left.join(", ")
        );
        io::stderr().write_all(line.as_bytes()).unwrap();
        assert!(self.complaints.is_empty(), "{}", self.complaints.join("\n"));
        let stale = DIFFERENCES.iter().find(|(case, _)| !self.compared.contains(*case));
        assert!(stale.is_none(), "of no case: {stale:?}");
    }
}
