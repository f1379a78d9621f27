//! NVIDIA's switches for its generator of CDI specs, which are switches for what comes of the same
//! here: hooks that are not wanted, and feature flags.

use super::Settings;
use super::value::Value;

pub(super) const DISABLED_HOOKS: &str =
    "nvidia-container-runtime.modes.jit-cdi.nvcdi-disable-hooks";
pub(super) const FEATURE_FLAGS: &str = "nvidia-container-runtime.modes.jit-cdi.nvcdi-feature-flags";

/// NVIDIA's hooks, of which we do the work without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NvcdiHook {
    CreateSymlinks,
    UpdateLdcache,
    EnableCudaCompat,
    DisableDeviceNodeModification,
    UpdateApplicationProfile,
    /// Off in any case: it follows links of the image.
    Chmod,
}

const HOOKS: [(&str, NvcdiHook); 6] = [
    ("create-symlinks", NvcdiHook::CreateSymlinks),
    ("update-ldcache", NvcdiHook::UpdateLdcache),
    ("enable-cuda-compat", NvcdiHook::EnableCudaCompat),
    ("disable-device-node-modification", NvcdiHook::DisableDeviceNodeModification),
    ("update-application-profile", NvcdiHook::UpdateApplicationProfile),
    ("chmod", NvcdiHook::Chmod),
];
const EVERY_HOOK: &str = "all";
pub(super) const NO_SOCKETS: &str = "disable-ipc-discoverer";
pub(super) const NO_GROUPS: &str = "no-additional-gids-for-device-nodes";
/// Flags that mean something, and what is said of those that do not.
const FLAGS: [(&str, Option<&str>); 7] = [
    (NO_SOCKETS, None),
    (NO_GROUPS, None),
    // What they switch is not there.
    ("disable-nvsandboxutils", None),
    ("disable-nvsandbox-utils", None),
    ("enable-coherent-annotations", None),
    ("disable-multiple-csv-devices", None),
    (
        "enable-explicit-driver-libraries",
        Some("is not honoured: only NVIDIA's own files are given, and those are not"),
    ),
];

/// The hooks whose work is not done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DisabledHooks(Vec<NvcdiHook>);

impl DisabledHooks {
    pub(super) fn of(value: &Value) -> Self {
        let is_named = |name: &str| value.list().iter().any(|item| item == name);
        let named = HOOKS.iter().filter(|(name, _)| is_named(name) || is_named(EVERY_HOOK));
        Self(named.map(|(_, hook)| *hook).collect())
    }

    pub fn contains(&self, hook: NvcdiHook) -> bool {
        self.0.contains(&hook)
    }
}

/// What in the lists is not known, or has no meaning here.
pub(super) fn warnings(settings: &Settings) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |key: &str, item: &str, what: &str| {
        warnings.push(format!("{}: {key} has {item:?}, which {what}", settings.origin(key)));
    };
    let items = |key| settings.value(key).map(Value::list).unwrap_or_default();
    let hooks = HOOKS.map(|(name, _)| name);
    for item in items(DISABLED_HOOKS).iter().filter(|item| *item != EVERY_HOOK) {
        if !hooks.contains(&item.as_str()) {
            let known = hooks.join(", ");
            warn(DISABLED_HOOKS, item, &format!("is none of {known}, {EVERY_HOOK}"));
        }
    }
    for item in items(FEATURE_FLAGS) {
        match FLAGS.iter().find(|(name, _)| name == item) {
            Some((_, None)) => {}
            Some((_, Some(what))) => warn(FEATURE_FLAGS, item, what),
            None => {
                let known = FLAGS.map(|(name, _)| name).join(", ");
                warn(FEATURE_FLAGS, item, &format!("is none of {known}"));
            }
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, ConfigSource};

    fn load(key: &str, items: &str) -> (Config, Vec<String>) {
        let set = vec![(key.to_owned(), items.to_owned())];
        Config::load(&ConfigSource { set, ..ConfigSource::default() }).unwrap()
    }

    #[test]
    fn hooks_are_disabled_by_name() {
        let (config, warnings) = load(DISABLED_HOOKS, "update-ldcache,enable-cuda-compat");
        assert!(config.disabled_hooks.contains(NvcdiHook::UpdateLdcache));
        assert!(!config.disabled_hooks.contains(NvcdiHook::CreateSymlinks));
        assert_eq!(warnings, [""; 0]);
        let (config, _) = load(DISABLED_HOOKS, "all");
        assert!(HOOKS.iter().all(|(_, hook)| config.disabled_hooks.contains(*hook)));
        let (config, warnings) = load(DISABLED_HOOKS, "update-ldcach");
        assert_eq!(config.disabled_hooks, DisabledHooks::default());
        assert!(warnings[0].contains("\"update-ldcach\", which is none of"), "{warnings:?}");
    }

    #[test]
    fn flags_that_mean_nothing_here_are_told() {
        let (config, warnings) = load(FEATURE_FLAGS, "disable-ipc-discoverer");
        assert!(!config.sockets && config.additional_gids && warnings.is_empty());
        let (config, _) = load(FEATURE_FLAGS, "no-additional-gids-for-device-nodes");
        assert!(config.sockets && !config.additional_gids);
        let (_, warnings) = load(FEATURE_FLAGS, "enable-explicit-driver-libraries,x");
        assert_eq!(warnings.len(), 2, "{warnings:?}");
    }
}
