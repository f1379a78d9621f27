//! `config.json`, in and out: nothing lost, nothing reordered, nothing written when nothing
//! changes.

/// An OCI runtime spec, carried as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec(serde_json::Value);

impl Spec {
    pub fn new(value: serde_json::Value) -> Self {
        Self(value)
    }

    /// The spec as JSON.
    pub fn value(&self) -> &serde_json::Value {
        &self.0
    }
}

/// A bundle directory.
#[derive(Clone, Debug)]
pub struct Bundle {
    pub dir: std::path::PathBuf,
}
