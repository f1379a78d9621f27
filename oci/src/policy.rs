//! What a container may have of what it asks for: whose word counts, and who may manage GPUs.
//!
//! The scheduler's word (annotations, volume mounts) goes before that of the environment, which
//! anybody who builds an image can set. Privileged is who has `CAP_SYS_ADMIN` in the bounding set,
//! as NVIDIA has it.

use crate::config::ANNOTATION_PREFIXES;
use crate::request::{
    self, Annotations, Environment, ImexChannels, ImexRequest, MountList, Selection,
};
use crate::{Code, Config, Error, Handler, Mode, OnDenied, Policy, Request, Result, Spec};

/// Kinds of CDI devices that manage GPUs rather than use them.
const MANAGEMENT_VENDOR: &str = "management.nvidia.com";
const NVIDIA: &str = "nvidia.com";
/// Where containerd and CRI-O write the namespace of a pod.
const NAMESPACE: [&str; 2] = ["io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"];

/// What is left of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// `None`: nothing was asked for, or nothing of it counts.
    pub request: Option<Request>,
    /// What was asked and does not count.
    pub denied: Option<Denied>,
    /// What does not count, and why.
    pub warnings: Vec<String>,
}

/// A request that does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// What was asked, and by what.
    pub source: String,
    /// The rule that says so.
    pub rule: &'static str,
}

/// Reads what the container of `spec` asks for, and drops what does not count.
///
/// # Errors
/// [`Code::InvalidRequest`] if the request cannot be read, [`Code::Denied`] if it does not count
/// and `on-denied` is `fail`.
pub fn judge(spec: &Spec, config: &Config, handler: Handler) -> Result<Judgement> {
    if request::is_sandbox(|key| spec.annotation(key)) {
        return Ok(Judgement::default());
    }
    let environment = Environment::of(spec.env(), &config.swarm_resource);
    let mounts = MountList::of(spec);
    let mut judgement = Judgement::default();
    let annotations = Annotations::of(spec.annotations(), &config.cdi_annotation_prefixes);
    if !annotations.is_empty() {
        let Some(reason) = ignored(&annotations, config, handler) else {
            let request = annotations.request(&environment);
            environment.check_size()?;
            let trust = "annotations are the scheduler's";
            judgement.request = request.map(|request| Request { trust, ..request });
            return Ok(judgement);
        };
        judgement.warnings.push(format!("CDI annotations do not count: {reason}"));
    }
    let mounts_trust = trust_of_mounts(config);
    if mounts_trust.is_some() {
        if let Some((first, others)) = mounts.malformed.split_first() {
            let more = match others.len() {
                0 => String::new(),
                count => format!(" (and {count} others)"),
            };
            let what = format!("mount at {}{more} names no device", first.display());
            judgement.warnings.push(what);
        }
    } else if !mounts.is_empty() {
        let key = "accept-nvidia-visible-devices-as-volume-mounts";
        let what = format!("devices asked for by volume mounts do not count: {key} is false");
        judgement.warnings.push(what);
    }
    let environment_trust = trust_of_environment(spec, config);
    let (mut request, trust) = match mounts_trust {
        Some(trust) if !mounts.devices.is_empty() => match mounts.request(&environment) {
            Some(request) => (request, trust),
            None => return Ok(judgement),
        },
        _ => match (environment.request()?, environment_trust) {
            (None, _) => return Ok(judgement),
            (Some(request), Ok(trust)) => (request, trust),
            (Some(request), Err(_)) if request.gpus == Selection::DriverOnly => {
                (request, "the driver alone gives no GPU away")
            }
            (Some(request), Err(rule)) => {
                let source = request.source.to_string();
                judgement.deny(&source, rule, "; it starts without GPU", config)?;
                judgement.denied = Some(Denied { source, rule });
                return Ok(judgement);
            }
        },
    };
    environment.check_size()?;
    request.trust = trust;
    if !config.ignore_imex_channels {
        let by_mounts = mounts_trust.map(|_| mounts.imex()).transpose()?.flatten();
        request.imex = match by_mounts {
            Some(asked) => Some(asked),
            None => judgement.imex_of(&environment, environment_trust, config)?,
        };
    }
    judgement.request = Some(request);
    Ok(judgement)
}

/// What asks for GPUs, for a refusal where the settings cannot be read that say whether it counts.
pub fn asker(spec: &Spec) -> Option<String> {
    let environment = Environment::of(spec.env(), &[]);
    let annotations = Annotations::of(spec.annotations(), &ANNOTATION_PREFIXES.map(str::to_owned));
    let request = annotations.request(&environment);
    let request = request.or_else(|| environment.request().ok().flatten());
    let request = request.or_else(|| MountList::of(spec).request(&environment))?;
    Some(request.source.to_string())
}

impl Judgement {
    /// Notes what does not count, or refuses the container for it.
    fn deny(&mut self, source: &str, rule: &str, so: &str, config: &Config) -> Result<()> {
        let what = format!("{source} does not count in an unprivileged container: {rule}");
        if config.on_denied == OnDenied::Fail {
            return Err(Error::new(Code::Denied, what));
        }
        self.warnings.push(format!("{what}{so}"));
        Ok(())
    }

    /// The IMEX channels that the environment asks for, if its word counts.
    fn imex_of(
        &mut self,
        environment: &Environment<'_>,
        trust: Result<&'static str, &'static str>,
        config: &Config,
    ) -> Result<Option<ImexRequest>> {
        let Some(asked) = environment.imex()? else { return Ok(None) };
        if let Err(rule) = trust {
            self.deny(&asked.source, rule, "", config)?;
            return Ok(None);
        }
        // As NVIDIA has it: an image does not take every channel of a node.
        if asked.channels == ImexChannels::All {
            let what = "does not count: only volume mounts may ask for all channels";
            self.warnings.push(format!("{} {what}", asked.source));
            return Ok(None);
        }
        Ok(Some(asked))
    }
}

/// Why annotations do not count; `None` if they do. They are part of CDI's contract, not of the
/// environment's; where NVIDIA finds out by itself which of them is meant, they mean CDI if they
/// are CDI names.
fn ignored(
    annotations: &Annotations<'_>,
    config: &Config,
    handler: Handler,
) -> Option<&'static str> {
    match (handler, config.mode) {
        (Handler::NvidiaCdi, _) | (_, Mode::Cdi) => None,
        (_, Mode::Auto) if annotations.are_qualified() => None,
        (_, Mode::Auto) => Some("not all are vendor/class=device"),
        (_, Mode::Legacy | Mode::Csv | Mode::JitCdi) => {
            Some("the mode in config.toml is not CDI's")
        }
    }
}

/// Why volume mounts count; `None` if they do not.
fn trust_of_mounts(config: &Config) -> Option<&'static str> {
    if config.policy == Policy::Strict {
        return Some("volume mounts are the scheduler's");
    }
    config.accept_volume_mounts.then_some("accept-nvidia-visible-devices-as-volume-mounts is true")
}

/// Why the environment of the container counts, or the rule by which it does not.
fn trust_of_environment(spec: &Spec, config: &Config) -> Result<&'static str, &'static str> {
    if config.policy == Policy::Open && config.accept_envvar_when_unprivileged {
        return Ok("policy is open: the environment of every container counts");
    }
    if is_privileged(spec) {
        return Ok("the container is privileged: it has CAP_SYS_ADMIN");
    }
    Err(match config.policy {
        Policy::Strict => "policy is strict",
        Policy::Open => "accept-nvidia-visible-devices-envvar-when-unprivileged is false",
    })
}

/// Whether the container may make itself what it likes anyway.
pub(crate) fn is_privileged(spec: &Spec) -> bool {
    spec.may_have("CAP_SYS_ADMIN")
}

/// Whether `name`, a kind or a qualified CDI name, is of those that only some may have.
pub(crate) fn is_management(name: &str) -> bool {
    name.split_once('/').is_some_and(|(vendor, _)| vendor == MANAGEMENT_VENDOR)
}

/// Whether CDI devices of `vendor` are NVIDIA's.
pub(crate) fn is_nvidia(vendor: &str) -> bool {
    vendor.strip_suffix(NVIDIA).is_some_and(|above| above.is_empty() || above.ends_with('.'))
}

/// Whether the container may have devices that manage GPUs; else why not.
///
/// # Errors
/// [`Code::Denied`]
pub(crate) fn check_management(name: &str, spec: &Spec, config: &Config) -> Result<()> {
    // Each engine writes its own; that of the other may be an annotation of the pod's author.
    let mut namespaces = NAMESPACE.iter().filter_map(|key| spec.annotation(key)).peekable();
    let is_in_any = namespaces.peek().is_some();
    let listed = |namespace: &&str| config.management_namespaces.iter().any(|one| one == namespace);
    let foreign = namespaces.find(|namespace| !listed(namespace));
    if is_privileged(spec) || (is_in_any && foreign.is_none()) {
        return Ok(());
    }
    let namespace = foreign.map_or_else(
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
        judge(&Spec::new(spec), &config(set), Handler::Nvidia).unwrap()
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
        let spec_of = Spec::new(spec(&[ENV], &[], false));
        let error = judge(&spec_of, &config(&set), Handler::Nvidia).unwrap_err();
        assert_eq!(error.code(), Code::Denied);
        assert!(error.to_string().contains("NVIDIA_VISIBLE_DEVICES=all"), "{error}");
        assert!(error.to_string().contains("policy is strict"), "{error}");
        let warnings = judged(&set[..1], spec(&[ENV], &[], false)).warnings;
        assert!(warnings[0].ends_with("policy is strict; it starts without GPU"), "{warnings:?}");
    }

    #[test]
    fn who_asks_is_known_without_settings() {
        let asker = |env: &[&str], places: &[&str]| asker(&Spec::new(spec(env, places, false)));
        assert_eq!(asker(&[ENV], &["1"]).as_deref(), Some(ENV));
        assert_eq!(asker(&[], &["1"]).as_deref(), Some(BY_MOUNTS));
        assert_eq!(asker(&["NVIDIA_VISIBLE_DEVICES"], &["void"]), None);
    }

    #[test]
    fn imex_channels_go_with_gpus_only() {
        let on = [(MOUNTS, "true")];
        let channels = |set: &[(&str, &str)], env: &[&str], places: &[&str]| {
            let request = judged(set, spec(env, places, false)).request?;
            Some(request.imex.map(|asked| asked.channels))
        };
        let listed = |ids: &[u32]| Some(Some(ImexChannels::Listed(ids.iter().copied().collect())));
        const NONE: Option<Option<ImexChannels>> = Some(None);
        assert_eq!(channels(&on, &[], &["0", "imex/1"]), listed(&[1]));
        assert_eq!(channels(&on, &[ENV], &["imex/1"]), listed(&[1]));
        assert_eq!(channels(&on, &[], &["imex/1"]), None);
        assert_eq!(channels(&on, &[], &["0", "imex/all"]), Some(Some(ImexChannels::All)));
        assert_eq!(channels(&[], &[ENV], &["imex/1"]), NONE);
        // What does not count cannot be wrong.
        assert_eq!(channels(&[], &[ENV], &["imex/x"]), NONE);
        let ignored = [(MOUNTS, "true"), ("features.ignore-imex-channel-requests", "true")];
        assert_eq!(channels(&ignored, &[], &["0", "imex/1"]), NONE);
        // By the environment, which mounts go before.
        const BY_ENV: &str = "NVIDIA_IMEX_CHANNELS=0,2";
        assert_eq!(channels(&[], &[ENV, BY_ENV], &[]), listed(&[0, 2]));
        assert_eq!(channels(&[], &[BY_ENV], &[]), None);
        assert_eq!(channels(&[], &[ENV, BY_ENV, "NVIDIA_IMEX_CHANNELS=none"], &[]), NONE);
        assert_eq!(channels(&[], &[ENV, "NVIDIA_IMEX_CHANNELS=all"], &[]), NONE);
        assert_eq!(channels(&on, &[ENV, BY_ENV], &["imex/1"]), listed(&[1]));
        assert_eq!(channels(&on, &[BY_ENV], &["0"]), listed(&[0, 2]));
        assert_eq!(channels(&ignored, &[ENV, BY_ENV], &[]), NONE);
        let strict = [("policy", "strict")];
        assert_eq!(channels(&strict, &[BY_ENV], &["0"]), NONE);
        let none = "NVIDIA_VISIBLE_DEVICES=none";
        assert_eq!(channels(&strict, &[none, BY_ENV], &[]), NONE);
        let fail = [("policy", "strict"), ("on-denied", "fail")];
        let of_env = Spec::new(spec(&[BY_ENV], &["0"], false));
        let error = judge(&of_env, &config(&fail), Handler::Nvidia).unwrap_err();
        assert_eq!(error.code(), Code::Denied);
        assert!(error.to_string().contains(BY_ENV), "{error}");
    }

    #[test]
    fn annotations_count_where_cdi_does() {
        let asked = |value: &str, mode: &str, handler| {
            let spec = json!({"annotations": {"cdi.k8s.io/x": value}, "process": {"env": [ENV]}});
            let config = config(&[("nvidia-container-runtime.mode", mode)]);
            let judgement = judge(&Spec::new(spec), &config, handler).unwrap();
            judgement.request.unwrap().source.to_string().starts_with("annotation cdi.k8s.io/x=")
        };
        let (env, cdi) = (Handler::Nvidia, Handler::NvidiaCdi);
        for (value, mode, handler, counts) in [
            ("nvidia.com/gpu=0", "auto", env, true),
            ("nvidia.com/gpu=0,a.b/c=d", "auto", env, true),
            ("nvidia.com/gpu=0,0", "auto", env, false),
            ("nvidia.com/gpu=0,", "auto", env, false),
            ("nvidia.com/gpu=0, a.b/c=d", "auto", env, false),
            ("", "auto", env, false),
            ("nvidia.com/gpu=0", "jit-cdi", env, false),
            ("nvidia.com/gpu=0", "legacy", env, false),
            ("0", "cdi", env, true),
            ("0", "auto", cdi, true),
            ("0", "jit-cdi", cdi, true),
            ("nvidia.com/gpu=", "auto", cdi, true),
        ] {
            assert_eq!(asked(value, mode, handler), counts, "{value} {mode} {handler}");
        }
    }

    #[test]
    fn who_may_manage() {
        let name = "management.nvidia.com/gpu=all";
        assert!(is_management(name) && !is_management("nvidia.com/gpu=all"));
        assert!(is_nvidia("nvidia.com") && is_nvidia("k8s.gpu.nvidia.com"));
        assert!(!is_nvidia("notnvidia.com") && !is_nvidia("nvidia.com.example"));
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
        // The pod's author writes what another engine would.
        for (cri, pod) in [("kube-system", "team-a"), ("team-a", "kube-system")] {
            let mut spec = spec(&[], &[], false);
            spec["annotations"] = json!({NAMESPACE[0]: cri, NAMESPACE[1]: pod});
            let error = check_management(name, &Spec::new(spec), &listed).unwrap_err();
            assert!(error.to_string().contains("team-a"), "{error}");
        }
    }
}
