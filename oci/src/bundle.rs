//! `config.json`, in and out: nothing lost, nothing reordered, nothing written when nothing
//! changes.

/// An OCI runtime spec, carried as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec(serde_json::Value);

/// A bundle directory.
#[derive(Clone, Debug)]
pub struct Bundle {
    pub dir: std::path::PathBuf,
}
