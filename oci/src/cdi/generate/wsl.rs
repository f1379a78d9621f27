//! Windows' GPUs in its subsystem for Linux: one device, and the driver that Windows shows there.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::part::Part;
use super::{ALL, Described, Draft};
use crate::plan::Parts;
use crate::{Code, Config, Error, Host, Link, Result, gpu};

const NODE: &str = "/dev/dxg";
const DXCORE: &str = "/usr/lib/wsl/lib/libdxcore.so";
/// What Windows has of drivers; each in a directory of its own.
const STORE: &str = "/usr/lib/wsl/drivers";
/// What tells NVIDIA's.
const LIBCUDA: &str = "libcuda.so.1.1";
const SMI: &str = "nvidia-smi";

pub(super) fn describe(host: &Host, config: &Config) -> Result<Draft> {
    let root = config.dev_root.clone().unwrap_or_else(|| PathBuf::from("/"));
    let node = gpu::node(host, &root, Path::new(NODE))?.ok_or_else(|| {
        let what = format!("{NODE} is not there: this is no WSL 2, or it has no GPU");
        Error::new(Code::NodeMissing, what)
    })?;
    let mut draft = Draft::default();
    let store = store(host, &mut draft.warnings)?;
    let common = &mut draft.common;
    let dxcore = Path::new(DXCORE);
    for name in host.read_dir(&store).unwrap_or_default() {
        let path = store.join(&name);
        let is_file = host.metadata(&path).is_ok_and(|found| found.is_file());
        if is_file && is_of_driver(&name.to_string_lossy()) {
            common.mount(&path, &path);
        }
    }
    common.folders.push(store.clone());
    if host.exists(dxcore) {
        common.mount(dxcore, dxcore);
        common.folders.extend(dxcore.parent().map(Path::to_path_buf));
    }
    if host.exists(&store.join(SMI)) {
        let link = Path::new("/usr/bin").join(SMI);
        common.links.push(Link { link, target: store.join(SMI) });
    }
    let part = Part::of(Parts::without_driver(host, config).given(&[node])?);
    draft.devices.push(Described { names: vec![ALL.to_owned()], part });
    Ok(draft)
}

/// The directory of NVIDIA's driver. Of several, as an update may leave them, the newest: which of
/// them is in use only Windows could be asked.
fn store(host: &Host, warnings: &mut Vec<String>) -> Result<PathBuf> {
    let names = host.read_dir(Path::new(STORE)).unwrap_or_default();
    let dirs = names.into_iter().map(|name| Path::new(STORE).join(name));
    let mut found: Vec<(SystemTime, PathBuf)> = dirs
        .filter_map(|dir| {
            let metadata = host.metadata(&dir.join(LIBCUDA)).ok()?;
            Some((metadata.modified().ok()?, dir))
        })
        .collect();
    found.sort();
    let several = found.len() > 1;
    let (_, newest) = found.pop().ok_or_else(|| {
        Error::new(Code::NoDriverFiles, format!("no directory in {STORE} has {LIBCUDA}"))
    })?;
    if several {
        let what =
            format!("of several drivers in {STORE}, the newest is taken: {}", newest.display());
        warnings.push(what);
    }
    Ok(newest)
}

/// Whether a file of the store is for Linux programs.
fn is_of_driver(name: &str) -> bool {
    name == SMI || name.contains(".so") || name.ends_with(".bin") || name.ends_with(".dll")
}
