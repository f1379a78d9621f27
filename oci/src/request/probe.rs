//! Whether a container asks for anything at all: a cheap question, put to every container of the
//! node, without the settings. It may be answered yes where the settings would say no, never the
//! other way round.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::environment::Environment;
use super::is_sandbox;
use super::mounts::MountList;
use crate::config::ANNOTATION_PREFIXES;
use crate::{Code, ConfigSource, Error, Result};

/// Whether the container of this `config.json` may ask for anything. Reads only what tells it; the
/// file of the settings only for names that swarm gives to its variables.
///
/// # Errors
/// [`Code::SpecUnreadable`], with line and column, if it is no spec.
pub fn asks(config_json: &[u8], settings: &ConfigSource) -> Result<bool> {
    let probe: Probe<'_> = serde_json::from_slice(config_json)
        .map_err(|error| Error::caused(Code::SpecUnreadable, "config.json", error))?;
    let annotations = probe.annotations.unwrap_or_default();
    if is_sandbox(|key| annotations.get(key).and_then(Option::as_deref)) {
        return Ok(false);
    }
    if !annotations.is_empty() && asks_by_annotation(&annotations, settings) {
        return Ok(true);
    }
    let mounts = probe.mounts.iter().flatten().filter_map(|mount| {
        let (source, place) = (mount.source.as_ref()?, mount.destination.as_ref()?);
        Some((Path::new(&*source.0), Path::new(&*place.0)))
    });
    if !MountList::of_mounts(mounts).is_empty() {
        return Ok(true);
    }
    let env = probe.process.and_then(|process| process.env).unwrap_or_default();
    let entries = || env.iter().map(|text| &*text.0);
    // A malformed request asks too: it is for the plan to refuse it.
    if Environment::of(entries(), &[]).request().map_or(true, |request| request.is_some()) {
        return Ok(true);
    }
    let swarm = settings.swarm_candidates();
    Ok(entries().any(|entry| {
        let name = entry.split_once('=').map_or(entry, |(name, _)| name);
        swarm.iter().any(|candidate| candidate == name)
    }))
}

/// Whether a key begins as those do whose values are CDI names.
fn asks_by_annotation(annotations: &Annotations<'_>, settings: &ConfigSource) -> bool {
    let begins = |prefix: &str| annotations.keys().any(|key| key.starts_with(prefix));
    let is_prefix = |word: &String| !word.is_empty() && begins(word);
    ANNOTATION_PREFIXES.iter().any(|prefix| begins(prefix))
        || settings.prefix_candidates().iter().any(is_prefix)
}

/// The part of a spec that tells whether anything is asked for.
#[derive(Deserialize)]
struct Probe<'a> {
    #[serde(borrow)]
    process: Option<Process<'a>>,
    #[serde(borrow)]
    mounts: Option<Vec<Mount<'a>>>,
    #[serde(borrow)]
    annotations: Option<Annotations<'a>>,
}

type Annotations<'a> = BTreeMap<Cow<'a, str>, Option<Cow<'a, str>>>;

#[derive(Deserialize)]
struct Process<'a> {
    #[serde(borrow)]
    env: Option<Vec<Text<'a>>>,
}

#[derive(Deserialize)]
struct Mount<'a> {
    #[serde(borrow)]
    source: Option<Text<'a>>,
    #[serde(borrow)]
    destination: Option<Text<'a>>,
}

/// A string, borrowed from the JSON where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{Config, Handler, Spec, policy};

    fn asks_by_default(json: &str) -> Result<bool> {
        asks(json.as_bytes(), &ConfigSource::default())
    }

    #[test]
    fn the_cheap_question_is_answered_from_bytes() {
        let all = r#"{"process":{"env":["A=\"","NVIDIA_VISIBLE_DEVICES=all"]},"x":[1]}"#;
        assert!(asks_by_default(all).unwrap());
        assert!(asks_by_default(r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES"]}}"#).unwrap());
        for nothing in ["{}", r#"{"process":null}"#, r#"{"process":{"env":null},"mounts":null}"#] {
            assert!(!asks_by_default(nothing).unwrap(), "{nothing}");
        }
        assert!(asks_by_default("{\n]").unwrap_err().to_string().contains("line 2 column 1"));
    }

    #[test]
    fn mounts_ask_too() {
        let place = "/var/run/nvidia-container-devices/0";
        let mounted = |source: &str| json!({"mounts": [{"source": source, "destination": place}]});
        assert!(asks_by_default(&mounted("/dev/null").to_string()).unwrap());
        assert!(!asks_by_default(&mounted("/dev/zero").to_string()).unwrap());
        let tmpfs = json!({"mounts": [{"destination": "/tmp", "type": "tmpfs", "source": null}]});
        assert!(!asks_by_default(&tmpfs.to_string()).unwrap());
    }

    #[test]
    fn the_pause_container_never_asks() {
        for key in super::super::CONTAINER_TYPE {
            let json = json!({
                "annotations": {key: "sandbox", "n": null},
                "process": {"env": ["NVIDIA_VISIBLE_DEVICES=all"]},
            });
            assert!(!asks_by_default(&json.to_string()).unwrap());
            let judgement =
                policy::judge(&Spec::new(json), &Config::default(), Handler::Nvidia).unwrap();
            assert_eq!(judgement.request, None);
        }
    }

    #[test]
    fn names_of_swarm_are_found_in_the_file_unless_they_are_a_comment() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let settings =
            ConfigSource { default_path: Some(file.path().to_owned()), ..ConfigSource::default() };
        let spec = json!({"process": {"env": ["DOCKER_RESOURCE_GPU=0", "PATH=/bin"]}}).to_string();
        for (toml, expected) in [
            ("", false),
            ("#swarm-resource = \"DOCKER_RESOURCE_GPU\"\n", false),
            ("  # swarm-resource = \"DOCKER_RESOURCE_GPU\"\nx = 1\n", false),
            ("swarm-resource = \"A, DOCKER_RESOURCE_GPU\"\n", true),
            ("'swarm-resource'='DOCKER_RESOURCE_GPU'", true),
            ("swarm-resource = \"\"\"\nDOCKER_RESOURCE_GPU\"\"\"\n", true),
            ("swarm-resource = \"OTHER\"\n[nvidia-container-cli]\npath = \"/x\"\n", false),
        ] {
            fs::write(file.path(), toml).unwrap();
            assert_eq!(asks(spec.as_bytes(), &settings).unwrap(), expected, "{toml}");
        }
        let set = vec![("swarm-resource".to_owned(), "X,DOCKER_RESOURCE_GPU".to_owned())];
        assert!(asks(spec.as_bytes(), &ConfigSource { set, ..Default::default() }).unwrap());
    }

    proptest! {
        /// Whatever the settings: who is given something, or refused it, was said to ask.
        #[test]
        fn the_cheap_answer_is_never_no_where_the_policy_has_something_to_say(
            value in "\\PC{0,20}|(all|none|void|0|,| ){0,5}",
            name in "NVIDIA_VISIBLE_DEVICES|CUDA_VERSION|A|B|NVIDIA_REQUIRE_CUDA",
            place in "(/|\\.\\.|nvidia-container-devices|0|cdi/a/b/c|imex/1){0,4}",
            annotation in "(nvidia\\.)?cdi\\.k8s\\.io/x|own/x|x",
            names in "(a/b=c|nvidia.com/gpu=0|0|,){0,3}",
            strict: bool, mounts: bool, unprivileged: bool, cdi: bool,
        ) {
            let json = json!({
                "annotations": {annotation: names},
                "process": { "env": [format!("{name}={value}")] },
                "mounts": [{"source": "/dev/null", "destination": format!("/var/run/{place}")}],
            });
            let yes = |yes: bool| if yes { "true" } else { "false" }.to_owned();
            let set = [
                ("swarm-resource", "A".to_owned()),
                ("policy", if strict { "strict" } else { "open" }.to_owned()),
                ("accept-nvidia-visible-devices-as-volume-mounts", yes(mounts)),
                ("accept-nvidia-visible-devices-envvar-when-unprivileged", yes(unprivileged)),
                ("on-denied", "fail".to_owned()),
                (
                    "nvidia-container-runtime.modes.cdi.annotation-prefixes",
                    if strict { "cdi.k8s.io/" } else { "own/,nvidia.cdi.k8s.io/" }.to_owned(),
                ),
            ];
            let handler = if cdi { Handler::NvidiaCdi } else { Handler::Nvidia };
            let set = set.map(|(key, value)| (key.to_owned(), value)).to_vec();
            let settings = ConfigSource { set, ..ConfigSource::default() };
            let (config, _) = Config::load(&settings).unwrap();
            let judged = policy::judge(&Spec::new(json.clone()), &config, handler);
            if judged.map_or(true, |judgement| judgement.request.is_some()) {
                prop_assert!(asks(json.to_string().as_bytes(), &settings).unwrap());
            }
        }
    }
}
