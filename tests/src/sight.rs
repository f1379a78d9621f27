//! What the probe saw from inside a container.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The JSON object that `src/bin/probe.rs` prints.
#[derive(Clone, Debug, Deserialize)]
pub struct Sight {
    /// Each of NVIDIA's nodes below `/dev`, with the errno of opening it, 0 if that worked.
    pub devices: BTreeMap<String, i32>,
    /// For each device number asked for, the errno of making a node of one's own and opening it.
    pub made: BTreeMap<String, i32>,
    /// Mount points.
    pub mounts: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Only with `--cuda`.
    pub cuda: Option<Cuda>,
}

/// What a CUDA program gets.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum Cuda {
    Loaded { init: i32, result: i32, count: i32 },
    Failed { error: String },
}

impl Sight {
    /// Of the standard output of a container that ran the probe.
    #[track_caller]
    pub fn parse(output: &str) -> Self {
        serde_json::from_str(output.trim()).unwrap_or_else(|error| panic!("{error}: {output}"))
    }

    /// The nodes, by name below `/dev`.
    pub fn nodes(&self) -> Vec<&str> {
        self.devices.keys().map(|path| path.trim_start_matches("/dev/")).collect()
    }
}
