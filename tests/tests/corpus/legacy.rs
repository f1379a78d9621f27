//! What a case of mode `legacy` should get. NVIDIA decides there in a hook that was not recorded:
//! so it is what the other mode gave who asked for the same, of that what the driver capabilities
//! leave by the reference's tables.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use tests::corpus::{Added, Case, Corpus};
use tests::reference;

/// Cases whose twin has another name.
const TWINS: [(&str, &str); 5] = [
    ("caps/bogus.legacy", "nvd/idx0.jit"),
    ("caps/graphics-all.legacy", "nvd/all.jit"),
    ("caps/graphics-uuid.legacy", "nvd/twice-last-wins.jit"),
    ("caps/graphics.legacy", "nvd/idx0.jit"),
    ("host/rhel-580-graphics-0.legacy", "host/rhel-580-idx0.jit"),
];

/// What the hosts of the corpus have for graphics beyond the drivers that the reference's tables
/// were held against.
const GRAPHICS: &str = "libnvidia-egl-xcb libnvidia-egl-xlib 20_nvidia_xcb.json \
    20_nvidia_xlib.json nvidia_drv.so libglxserver_nvidia 10-nvidia.conf \
    nvidia-drm-outputclass.conf nvidia-xconfig nvidia_icd.x86_64.json";

/// Which case asked for the same in another mode.
pub(crate) fn twin<'a>(corpus: &'a Corpus, case: &Case) -> Option<&'a Case> {
    let named = |name: &str| corpus.cases.iter().find(|case| case.name == name);
    if let Some((_, name)) = TWINS.iter().find(|(name, _)| *name == case.name) {
        return named(name);
    }
    let beginning = case.name.strip_suffix(".legacy")?;
    ["jit", "auto"].iter().find_map(|mode| named(&format!("{beginning}.{mode}")))
}

/// What a container with these capabilities gets of what was added for all.
pub(crate) fn of_capabilities(added: &Added, spec: &Value) -> Added {
    let Some(capabilities) = capabilities(spec) else { return added.clone() };
    let mut names = reference::names(&capabilities);
    let draws = capabilities.contains(&"graphics");
    if draws {
        names.extend(GRAPHICS.split_whitespace());
    }
    let given = |path: &str| is_given(path, &names, draws);
    let mut added = added.clone();
    added.devices.retain(|(path, ..)| given(path));
    let devices: BTreeSet<(i64, i64)> =
        added.devices.iter().map(|(_, major, minor, ..)| (*major, *minor)).collect();
    added.rules.retain(|(_, major, minor, _)| devices.contains(&(*major, *minor)));
    added.mounts.retain(|(_, destination, _)| given(destination));
    added.links.retain(|(link, target)| {
        let target = Path::new(link).parent().unwrap_or(Path::new("/")).join(target);
        link.contains("/dev/dri/by-path/") && draws || given(&target.display().to_string())
    });
    let directory = |path: &str| Path::new(path).parent().map(Path::to_owned);
    let used: BTreeSet<_> = added
        .mounts
        .iter()
        .filter(|(_, destination, _)| destination.contains(".so."))
        .filter(|(_, destination, _)| !destination.contains("/xorg/"))
        .filter_map(|(_, destination, _)| directory(destination))
        .collect();
    added.folders.retain(|folder| used.contains(Path::new(folder)));
    if used.is_empty() {
        added.env.remove("NVIDIA_CTK_LIBCUDA_DIR");
    }
    if !draws {
        added.gids.clear();
    }
    added
}

/// The capabilities that the container of `spec` asks for, with what they rest on; `None`: all.
fn capabilities(spec: &Value) -> Option<Vec<&str>> {
    let entries = spec["process"]["env"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let value = |name: &str| {
        let mut values = entries.clone().filter_map(move |entry| entry.split_once('='));
        values.rfind(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let is_legacy_image = value("CUDA_VERSION").is_some_and(|version| !version.is_empty())
        && value("NVIDIA_REQUIRE_CUDA").unwrap_or_default().is_empty();
    let list = match value("NVIDIA_DRIVER_CAPABILITIES") {
        None if is_legacy_image => return None,
        None | Some("") => "compute,utility",
        Some(list) => list,
    };
    let mut names: Vec<&str> = list.split(',').collect();
    for (one, other) in [("video", "compute"), ("display", "graphics")] {
        if names.contains(&one) {
            names.push(other);
        }
    }
    (!names.contains(&"all")).then_some(names)
}

fn is_given(path: &str, names: &BTreeSet<&str>, draws: bool) -> bool {
    let name = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let base = name.split_once(".so.").map_or(name, |(base, _)| base);
    let is_gpu = name.strip_prefix("nvidia").is_some_and(|minor| minor.parse::<u32>().is_ok());
    let is_channel = path.starts_with("/dev/nvidia-caps-imex-channels/");
    is_gpu || is_channel || names.contains(base) || draws && path.starts_with("/dev/dri/")
}
