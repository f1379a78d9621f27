//! The keys that a `config.toml` may have: NVIDIA's, with NVIDIA's defaults, and ours, which stand
//! in `[nvidia-shim]`, in the handler's options table and after `--set`.

use std::path::{Path, PathBuf};

use super::nvcdi::{self, DISABLED_HOOKS, DisabledHooks, FEATURE_FLAGS};
use super::value::{Kind, Value};
use super::{
    ANNOTATION_PREFIXES, Config, DriverCapabilities, LibraryPath, LogLevel, MaskParams, Mode,
    NoDriver, OnDenied, Policy, Requirements, SPEC_DIRS, StaleSpec,
};

use Kind::{Bool, Choice, List, Text};

pub(super) const LOG_LEVEL: &str = "nvidia-container-runtime.log-level";
/// The table of our own keys.
pub(super) const OURS: &str = "nvidia-shim.";

/// A key, and what becomes of its value.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// With its tables: `nvidia-container-runtime.mode`.
    pub name: &'static str,
    pub(super) kind: Kind,
    pub(super) set: fn(&mut Config, &Value),
}

const fn key(name: &'static str, kind: Kind, set: fn(&mut Config, &Value)) -> Key {
    Key { name, kind, set }
}

/// For keys that other programs read, or that have no counterpart here.
fn nothing(_: &mut Config, _: &Value) {}

/// All keys. Where two mean the same the later one wins, so ours come last.
pub const KEYS: &[Key] = &[
    key("disable-require", Bool(Some(false)), |config, value| {
        config.disable_require = value.is_true();
    }),
    key("swarm-resource", Text(""), |config, value| config.swarm_resource = value.names()),
    key(
        "accept-nvidia-visible-devices-envvar-when-unprivileged",
        Bool(Some(true)),
        |config, value| config.accept_envvar_when_unprivileged = value.is_true(),
    ),
    key("accept-nvidia-visible-devices-as-volume-mounts", Bool(Some(false)), |config, value| {
        config.accept_volume_mounts = value.is_true();
    }),
    key(
        "supported-driver-capabilities",
        Kind::Capabilities("compat32,compute,display,graphics,ngx,utility,video"),
        |config, value| config.supported_capabilities = value.capabilities(),
    ),
    key("nvidia-container-cli.root", Kind::Path, |config, value| config.driver_root = value.path()),
    key("nvidia-container-cli.path", Text(""), nothing),
    key("nvidia-container-cli.environment", List(&[]), nothing),
    key("nvidia-container-cli.debug", Text(""), nothing),
    key("nvidia-container-cli.ldcache", Text(""), nothing),
    key("nvidia-container-cli.load-kmods", Bool(Some(true)), |config, value| {
        config.load_kmods = value.is_true();
    }),
    key("nvidia-container-cli.no-pivot", Bool(Some(false)), nothing),
    key("nvidia-container-cli.no-cgroups", Bool(Some(false)), nothing),
    key("nvidia-container-cli.user", Text(""), nothing),
    key("nvidia-container-cli.ldconfig", Text("@/sbin/ldconfig"), nothing),
    key("nvidia-ctk.path", Text("nvidia-ctk"), nothing),
    key("nvidia-container-runtime.debug", Text("/dev/null"), |config, value| {
        config.debug_log = value.path().filter(|path| path != Path::new("/dev/null"));
    }),
    key(LOG_LEVEL, Text("info"), |config, value| {
        config.log_level = LogLevel::parse(value.text()).unwrap_or(LogLevel::Info);
    }),
    key("nvidia-container-runtime.runtimes", List(&["runc", "crun"]), |config, value| {
        config.runtimes = value.list().to_vec();
    }),
    key(
        "nvidia-container-runtime.mode",
        Choice(&["auto", "legacy", "csv", "cdi", "jit-cdi"]),
        |config, value| {
            config.mode = match value.text() {
                "legacy" => Mode::Legacy,
                "csv" => Mode::Csv,
                "cdi" => Mode::Cdi,
                "jit-cdi" => Mode::JitCdi,
                _ => Mode::Auto,
            };
        },
    ),
    key(
        "nvidia-container-runtime.modes.csv.mount-spec-path",
        Text("/etc/nvidia-container-runtime/host-files-for-container.d"),
        nothing,
    ),
    key("nvidia-container-runtime.modes.csv.compat-container-root", Text(""), nothing),
    key("nvidia-container-runtime.modes.cdi.spec-dirs", List(&SPEC_DIRS), |config, value| {
        config.cdi_spec_dirs = value.list().iter().map(PathBuf::from).collect();
    }),
    key(
        "nvidia-container-runtime.modes.cdi.default-kind",
        Text("nvidia.com/gpu"),
        |config, value| config.cdi_default_kind = value.text().to_owned(),
    ),
    key(
        "nvidia-container-runtime.modes.cdi.annotation-prefixes",
        List(&ANNOTATION_PREFIXES),
        |config, value| config.cdi_annotation_prefixes = value.list().to_vec(),
    ),
    key(FEATURE_FLAGS, List(&[]), |config, value| {
        let has = |flag: &str| value.list().iter().any(|item| item == flag);
        config.sockets = !has(nvcdi::NO_SOCKETS);
        config.additional_gids &= !has(nvcdi::NO_GROUPS);
    }),
    key(DISABLED_HOOKS, List(&[]), |config, value| {
        config.disabled_hooks = DisabledHooks::of(value);
    }),
    key(
        "nvidia-container-runtime.modes.legacy.cuda-compat-mode",
        Choice(&["ldconfig", "disabled", "hook", "mount"]),
        nothing,
    ),
    key("nvidia-container-runtime-hook.path", Text("nvidia-container-runtime-hook"), nothing),
    key("nvidia-container-runtime-hook.skip-mode-detection", Bool(Some(false)), nothing),
    key("features.allow-cuda-compat-libs-from-container", Bool(None), nothing),
    key("features.allow-ldconfig-from-container", Bool(None), nothing),
    key("features.allow-unknown-oci-spec-fields", Bool(None), nothing),
    key("features.disable-cuda-compat-lib-hook", Bool(None), nothing),
    key("features.disable-imex-channel-creation", Bool(None), |config, value| {
        config.make_imex_channels = !value.is_true();
    }),
    key("features.ignore-imex-channel-requests", Bool(None), |config, value| {
        config.ignore_imex_channels = value.is_true();
    }),
    key("features.no-additional-gids-for-device-nodes", Bool(None), |config, value| {
        config.additional_gids &= !value.is_true();
    }),
    key("nvidia-shim.host-root", Kind::Path, |config, value| {
        config.host_root = value.path().unwrap_or_else(|| "/".into());
    }),
    key("nvidia-shim.driver-root", Kind::Path, |config, value| config.driver_root = value.path()),
    key("nvidia-shim.dev-root", Kind::Path, |config, value| config.dev_root = value.path()),
    key("nvidia-shim.inner-shim", Kind::Path, |config, value| config.inner_shim = value.path()),
    key("nvidia-shim.library-path", Choice(&["auto", "image", "host"]), |config, value| {
        config.library_path = match value.text() {
            "image" => LibraryPath::Image,
            "host" => LibraryPath::Host,
            _ => LibraryPath::Auto,
        };
    }),
    key("nvidia-shim.no-driver", Choice(&["refuse", "start"]), |config, value| {
        config.no_driver = match value.text() {
            "start" => NoDriver::Start,
            _ => NoDriver::Refuse,
        };
    }),
    key("nvidia-shim.driver-capabilities", Choice(&["auto", "honour", "all"]), |config, value| {
        config.driver_capabilities = match value.text() {
            "honour" => DriverCapabilities::Honour,
            "all" => DriverCapabilities::All,
            _ => DriverCapabilities::Auto,
        };
    }),
    key(
        "nvidia-shim.requirements",
        Choice(&["auto", "enforce", "warn", "off"]),
        |config, value| {
            config.requirements = match value.text() {
                "enforce" => Requirements::Enforce,
                "warn" => Requirements::Warn,
                "off" => Requirements::Off,
                _ => Requirements::Auto,
            };
        },
    ),
    key("nvidia-shim.load-kmods", Bool(None), |config, value| config.load_kmods = value.is_true()),
    key("nvidia-shim.policy", Choice(&["open", "strict"]), |config, value| {
        config.policy = match value.text() {
            "strict" => Policy::Strict,
            _ => Policy::Open,
        };
    }),
    key("nvidia-shim.on-denied", Choice(&["ignore", "fail"]), |config, value| {
        config.on_denied = match value.text() {
            "fail" => OnDenied::Fail,
            _ => OnDenied::Ignore,
        };
    }),
    key("nvidia-shim.stale-spec", Choice(&["heal", "fail"]), |config, value| {
        config.stale_spec = match value.text() {
            "fail" => StaleSpec::Fail,
            _ => StaleSpec::Heal,
        };
    }),
    key("nvidia-shim.just-in-time", Bool(Some(true)), |config, value| {
        config.just_in_time = value.is_true();
    }),
    key("nvidia-shim.mask-params", Choice(&["auto", "always", "never"]), |config, value| {
        config.mask_params = match value.text() {
            "always" => MaskParams::Always,
            "never" => MaskParams::Never,
            _ => MaskParams::Auto,
        };
    }),
    key("nvidia-shim.management-namespaces", List(&[]), |config, value| {
        config.management_namespaces = value.list().to_vec();
    }),
];

impl Key {
    /// One of ours, by its name without table. Case and dashes do not matter, so that `HostRoot`
    /// does as well in an options table.
    pub fn ours(name: &str) -> Option<&'static Self> {
        let plain = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
        KEYS.iter().find(|key| key.our_name().is_some_and(|ours| plain(ours) == plain(name)))
    }

    /// A key as it stands in a file, with its tables; of ours see [`Self::ours`].
    pub(super) fn in_file(name: &str) -> Option<&'static Self> {
        match name.strip_prefix(OURS) {
            Some(ours) => Self::ours(ours),
            None => KEYS.iter().find(|key| key.name == name),
        }
    }

    /// A key as it is typed after `--set`: as in a file, ours also without table.
    pub(super) fn typed(name: &str) -> Option<&'static Self> {
        Self::in_file(name).or_else(|| Self::ours(name))
    }

    /// Its name in `[nvidia-shim]`, if it is ours.
    pub fn our_name(&self) -> Option<&'static str> {
        self.name.strip_prefix(OURS)
    }

    /// The known name that is most like `name`: for a person who mistyped it, or put it into the
    /// wrong table.
    pub(super) fn nearest(name: &str) -> &'static str {
        let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
        let unlike =
            |known: &&str| distance(name, known).min(1 + distance(&last(name), &last(known)));
        KEYS.iter().map(|key| key.name).min_by_key(unlike).unwrap_or_default()
    }
}

/// How many characters must be changed, put in or left out to make one of the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, character) in one.chars().enumerate() {
        let mut diagonal = line;
        let mut left = line + 1;
        for (above, wanted) in
            row.iter_mut().zip(std::iter::once(None).chain(other.iter().map(Some)))
        {
            let cost = match wanted {
                None => line + 1,
                Some(wanted) => {
                    let changed = diagonal + usize::from(*wanted != character);
                    changed.min(*above + 1).min(left + 1)
                }
            };
            diagonal = std::mem::replace(above, cost);
            left = cost;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_that_of_the_fewest_changes() {
        for (one, other, count) in
            [("", "", 0), ("a", "", 1), ("", "ab", 2), ("kitten", "sitting", 3), ("é", "e", 1)]
        {
            assert_eq!(distance(one, other), count, "{one} {other}");
            assert_eq!(distance(other, one), count, "{one} {other}");
        }
        assert_eq!(Key::nearest("swarm-resources"), "swarm-resource");
        assert_eq!(Key::nearest("nvidia-shim.polcy"), "nvidia-shim.policy");
        assert_eq!(Key::nearest("nvidia-container-cli.roots"), "nvidia-container-cli.root");
        assert_eq!(Key::nearest("mode"), "nvidia-container-runtime.mode");
    }

    /// The table and the defaults of [`Config`] say the same.
    #[test]
    fn a_default_changes_nothing() {
        let mut config = Config::default();
        for key in KEYS {
            if let Some(value) = key.kind.default() {
                (key.set)(&mut config, &value);
                assert_eq!(config, Config::default(), "{}", key.name);
            }
        }
    }

    #[test]
    fn a_name_is_there_once() {
        let mut names: Vec<_> = KEYS.iter().map(|key| key.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KEYS.len());
    }
}
