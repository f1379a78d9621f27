//! The loader's configuration and cache, as `ldconfig` would make it of the directories.

use std::path::Path;

use anyhow::{Context, Result};
use nvidia_oci::Host;
use nvidia_oci::elf::Elf;
use nvidia_oci::ldcache::Cache;

use super::layout::Directories;
use crate::simulate::tree::Tree;

/// Writes `etc/ld.so.conf` and `etc/ld.so.cache`.
pub(super) fn write(root: &Tree, directories: &Directories) -> Result<()> {
    let folders = [Some(directories.libraries.as_str()), directories.libraries_32];
    let folders: Vec<String> = folders.into_iter().flatten().map(|f| format!("/{f}")).collect();
    root.file("etc/ld.so.conf", 0o644, folders.join("\n") + "\n")?;

    let host = Host::new(root.path());
    let mut cache = Cache::default();
    for folder in &folders {
        add(&mut cache, &host, Path::new(folder))?;
    }
    let bytes = cache.to_bytes().context("cannot make ld.so.cache")?;
    root.file("etc/ld.so.cache", 0o644, bytes)
}

/// The libraries of `folder` under their SONAMEs and the names of their bare links: what
/// ldconfig(8) takes when the links by SONAME are there already.
fn add(cache: &mut Cache, host: &Host, folder: &Path) -> Result<()> {
    for name in host.read_dir(folder)? {
        let Some(name) = name.to_str() else { continue };
        let path = folder.join(name);
        if !name.starts_with("lib") || !host.metadata(&path)?.is_file() {
            continue;
        }
        let library = Elf::read(&host.open(&path)?)
            .with_context(|| format!("cannot read {}", path.display()))?;
        if library.soname.as_deref() == Some(name) || name.ends_with(".so") {
            cache.insert(name, &path, library.class, library.machine);
        }
    }
    Ok(())
}
