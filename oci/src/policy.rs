//! What a container may have of what it asks for: whose word counts, and who may manage GPUs.
//!
//! The scheduler's word (volume mounts) goes before that of the environment, which anybody who
//! builds an image can set. Privileged is who has `CAP_SYS_ADMIN` in the bounding set, as NVIDIA
//! has it.

use crate::request::{self, Environment, MountList, Selection};
use crate::{Code, Config, Error, OnDenied, Policy, Request, Result, Spec};

/// Kinds of CDI devices that manage GPUs rather than use them.
const MANAGEMENT_VENDOR: &str = "management.nvidia.com/";
/// Where containerd and CRI-O write the namespace of a pod.
const NAMESPACE: [&str; 2] = ["io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"];

/// What is left of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// `None`: nothing was asked for, or nothing of it counts.
    pub request: Option<Request>,
    /// What does not count, and why.
    pub warnings: Vec<String>,
}

/// Reads what the container of `spec` asks for, and drops what does not count.
///
/// # Errors
/// [`Code::InvalidRequest`] if the request cannot be read, [`Code::Denied`] if it does not count
/// and `on-denied` is `fail`.
pub fn judge(spec: &Spec, config: &Config) -> Result<Judgement> {
    if request::is_sandbox(|key| spec.annotation(key)) {
        return Ok(Judgement::default());
    }
    let environment = Environment::of(spec.env(), &config.swarm_resource);
    let mounts = MountList::of(spec);
    let mut warnings = Vec::new();
    let mounts_count = config.accept_volume_mounts || config.policy == Policy::Strict;
    if mounts_count {
        for place in &mounts.malformed {
            warnings.push(format!("mount at {} names no device", place.display()));
        }
        if !mounts.devices.is_empty() {
            let request = mounts.request(&environment);
            let request = request.map(|request| with_imex(request, &mounts, config));
            return Ok(Judgement { request, warnings });
        }
    } else if !mounts.is_empty() {
        let key = "accept-nvidia-visible-devices-as-volume-mounts";
        warnings.push(format!("devices asked for by volume mounts do not count: {key} is false"));
    }
    let Some(request) = environment.request()? else {
        return Ok(Judgement { request: None, warnings });
    };
    if let Some(rule) = denial(&request, spec, config) {
        let what =
            format!("{} does not count in an unprivileged container: {rule}", request.source);
        if config.on_denied == OnDenied::Fail {
            return Err(Error::new(Code::Denied, what));
        }
        warnings.push(format!("{what}; it starts without GPU"));
        return Ok(Judgement { request: None, warnings });
    }
    let request = if mounts_count { with_imex(request, &mounts, config) } else { request };
    Ok(Judgement { request: Some(request), warnings })
}

/// Why a request by environment does not count; `None` if it does.
fn denial(request: &Request, spec: &Spec, config: &Config) -> Option<&'static str> {
    // The driver alone gives no GPU away.
    if is_privileged(spec) || request.gpus == Selection::DriverOnly {
        return None;
    }
    if config.policy == Policy::Strict {
        return Some("policy is strict");
    }
    let rule = "accept-nvidia-visible-devices-envvar-when-unprivileged is false";
    (!config.accept_envvar_when_unprivileged).then_some(rule)
}

fn with_imex(mut request: Request, mounts: &MountList, config: &Config) -> Request {
    if !config.ignore_imex_channels {
        request.imex_channels.clone_from(&mounts.imex_channels);
    }
    request
}

/// Whether the container may make itself what it likes anyway.
pub(crate) fn is_privileged(spec: &Spec) -> bool {
    spec.may_have("CAP_SYS_ADMIN")
}

/// Whether `name`, a qualified CDI name, is of a kind that only some may have.
pub(crate) fn is_management(name: &str) -> bool {
    name.starts_with(MANAGEMENT_VENDOR)
}

/// Whether the container may have devices that manage GPUs; else why not.
///
/// # Errors
/// [`Code::Denied`]
pub(crate) fn check_management(name: &str, spec: &Spec, config: &Config) -> Result<()> {
    let namespace = NAMESPACE.iter().find_map(|key| spec.annotation(key));
    let listed = |namespace: &str| config.management_namespaces.iter().any(|one| one == namespace);
    if is_privileged(spec) || namespace.is_some_and(listed) {
        return Ok(());
    }
    let namespace = namespace.map_or_else(
        || "it is in no namespace".to_owned(),
        |namespace| format!("its namespace {namespace} is not in management-namespaces"),
    );
    let what = format!("{name} manages GPUs; the container has no CAP_SYS_ADMIN, and {namespace}");
    Err(Error::new(Code::Denied, what))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ENVVAR: &str = "accept-nvidia-visible-devices-envvar-when-unprivileged";
    const MOUNTS: &str = "accept-nvidia-visible-devices-as-volume-mounts";

    fn config(set: &[(&str, &str)]) -> Config {
        let mut config = Config::default();
        for (key, value) in set {
            config.set(key, value).unwrap();
        }
        config
    }

    fn spec(env: &[&str], places: &[&str], privileged: bool) -> Value {
        let mounts: Vec<_> = places
            .iter()
            .map(|place| {
                let place = format!("/var/run/nvidia-container-devices/{place}");
                json!({"source": "/dev/null", "destination": place})
            })
            .collect();
        let bounding = if privileged { vec!["CAP_SYS_ADMIN"] } else { vec!["CAP_KILL"] };
        json!({
            "process": {"env": env, "capabilities": {
                "bounding": bounding, "effective": ["CAP_SYS_ADMIN"],
            }},
            "mounts": mounts,
        })
    }

    fn judged(set: &[(&str, &str)], spec: Value) -> Judgement {
        judge(&Spec::new(spec), &config(set)).unwrap()
    }

    /// By what is asked after all, `-` if by nothing; and how many warnings there are.
    fn source(set: &[(&str, &str)], spec: Value) -> (String, usize) {
        let judgement = judged(set, spec);
        let source = judgement.request.map(|request| request.source.to_string());
        (source.unwrap_or("-".to_owned()), judgement.warnings.len())
    }

    const ENV: &str = "NVIDIA_VISIBLE_DEVICES=all";
    const BY_MOUNTS: &str = "volume mounts of 1 below /var/run/nvidia-container-devices";

    #[test]
    fn whose_word_counts() {
        let off = [(ENVVAR, "false")];
        let on = [(MOUNTS, "true")];
        let strict = [("policy", "strict")];
        let env = || spec(&[ENV], &[], false);
        let both = |privileged| spec(&[ENV], &["1"], privileged);
        for (set, spec, expected, warnings) in [
            (&[][..], env(), ENV, 0),
            (&[], both(false), ENV, 1),
            (&on, both(false), BY_MOUNTS, 0),
            (&on, both(true), BY_MOUNTS, 0),
            (&on, env(), ENV, 0),
            (&off, env(), "-", 1),
            (&off, spec_privileged(), ENV, 0),
            (&strict, env(), "-", 1),
            (&strict, both(false), BY_MOUNTS, 0),
            (&strict, both(true), BY_MOUNTS, 0),
            (&strict, spec_privileged(), ENV, 0),
            (&strict, spec(&["CUDA_VERSION=8"], &[], false), "-", 1),
            (&strict, spec(&["NVIDIA_VISIBLE_DEVICES=void"], &[], false), "-", 0),
            (
                &strict,
                spec(&["NVIDIA_VISIBLE_DEVICES=none"], &[], false),
                "NVIDIA_VISIBLE_DEVICES=none",
                0,
            ),
            (&strict, spec(&[ENV], &["void"], false), "-", 0),
            (&on, spec(&[ENV], &["cdi/nvidia.com/gpu"], false), ENV, 1),
        ] {
            let shown = format!("{set:?} {spec}");
            assert_eq!(source(set, spec), (expected.to_owned(), warnings), "{shown}");
        }
    }

    fn spec_privileged() -> Value {
        spec(&[ENV], &[], true)
    }

    #[test]
    fn a_denial_is_told_or_fails() {
        let set = [("policy", "strict"), ("on-denied", "fail")];
        let error = judge(&Spec::new(spec(&[ENV], &[], false)), &config(&set)).unwrap_err();
        assert_eq!(error.code(), Code::Denied);
        assert!(error.to_string().contains("NVIDIA_VISIBLE_DEVICES=all"), "{error}");
        assert!(error.to_string().contains("policy is strict"), "{error}");
        let warnings = judged(&set[..1], spec(&[ENV], &[], false)).warnings;
        assert!(warnings[0].ends_with("policy is strict; it starts without GPU"), "{warnings:?}");
    }

    #[test]
    fn imex_channels_go_with_gpus_only() {
        let on = [(MOUNTS, "true")];
        let channels = |set: &[(&str, &str)], env: &[&str], places: &[&str]| {
            judged(set, spec(env, places, false)).request.map(|request| request.imex_channels)
        };
        let one = Some(vec!["1".to_owned()]);
        assert_eq!(channels(&on, &[], &["0", "imex/1"]), one);
        assert_eq!(channels(&on, &[ENV], &["imex/1"]), one);
        assert_eq!(channels(&on, &[], &["imex/1"]), None);
        assert_eq!(channels(&[], &[ENV], &["imex/1"]), Some(Vec::new()));
        let ignored = [(MOUNTS, "true"), ("features.ignore-imex-channel-requests", "true")];
        assert_eq!(channels(&ignored, &[], &["0", "imex/1"]), Some(Vec::new()));
    }

    #[test]
    fn who_may_manage() {
        let name = "management.nvidia.com/gpu=all";
        assert!(is_management(name) && !is_management("nvidia.com/gpu=all"));
        let listed = config(&[("management-namespaces", "gpu-operator,kube-system")]);
        let in_namespace = |namespace: &str| {
            let mut spec = spec(&[], &[], false);
            spec["annotations"] = json!({"io.kubernetes.cri.sandbox-namespace": namespace});
            Spec::new(spec)
        };
        check_management(name, &Spec::new(spec_privileged()), &Config::default()).unwrap();
        check_management(name, &in_namespace("kube-system"), &listed).unwrap();
        let error = check_management(name, &in_namespace("team-a"), &listed).unwrap_err();
        assert!(error.to_string().contains("team-a"), "{error}");
        check_management(name, &Spec::new(spec(&[], &[], false)), &listed).unwrap_err();
    }
}
