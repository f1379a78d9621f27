//! Simulated hosts of `tests/corpus/hosts.json`, built as directories.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{Gid, Uid, chown};
use nvidia_oci::Host;
use nvidia_oci::elf::{Class, Machine};
use nvidia_oci::ldcache::Cache;
use nvidia_shim::simulate::elf;
use serde::Deserialize;
use serde_json::Value;

/// A host as facts.
#[derive(Debug, Deserialize)]
pub struct Facts {
    pub driver_root: String,
    pub driver_version: Option<String>,
    /// Bind mounts, from and to: here a second copy.
    binds: Vec<(String, String)>,
    /// Path, kind and what belongs to the kind; `tests/corpus/README.md` has them.
    entries: Vec<Vec<Value>>,
    proc: Vec<Vec<Value>>,
}

/// The facts of every host.
pub fn hosts() -> BTreeMap<String, Facts> {
    serde_json::from_str(include_str!("../corpus/hosts.json")).expect("tests/corpus/hosts.json")
}

/// A host below a temporary directory.
#[derive(Debug)]
pub struct Tree {
    dir: tempfile::TempDir,
}

impl Tree {
    /// Builds a host. Character devices are real: root is needed.
    pub fn build(facts: &Facts) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("host-").tempdir()?;
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755))?;
        let mut caches = Vec::new();
        for entry in facts.entries.iter().chain(&facts.proc) {
            let path = text(entry, 0)?;
            let mut places = vec![PathBuf::from(path)];
            for (from, to) in &facts.binds {
                if let Ok(rest) = Path::new(path).strip_prefix(from) {
                    places.push(Path::new(to).join(rest));
                }
            }
            for place in places {
                let place = below(dir.path(), &place);
                make(&place, entry).with_context(|| format!("{entry:?}"))?;
                if text(entry, 1)? == "ldcache" {
                    caches.push(place);
                }
            }
        }
        for cache in caches {
            write_cache(&cache)?;
        }
        Ok(Self { dir })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn host(&self) -> Host {
        Host::new(self.path())
    }

    /// Writes a file of the host, whose path is that of the host.
    pub fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = below(self.path(), Path::new(path));
        fs::create_dir_all(path.parent().context("a file has a directory")?)?;
        Ok(fs::write(path, text)?)
    }
}

/// Where `path` of the host is, absolute links of its directories followed below `root`.
fn below(root: &Path, path: &Path) -> PathBuf {
    let host = Host::new(root);
    let mut done = PathBuf::from("/");
    for part in path.components().skip(1) {
        let next = done.join(part);
        // The file itself is not followed: it may be a link that is about to be made.
        done = match next == path {
            true => next,
            false => host.resolve(&next).unwrap_or(next),
        };
    }
    host.join(&done)
}

fn text(entry: &[Value], at: usize) -> Result<&str> {
    entry.get(at).and_then(Value::as_str).with_context(|| format!("entry {entry:?}"))
}

fn number<N: TryFrom<u64>>(entry: &[Value], at: usize) -> Result<N> {
    let number = entry.get(at).and_then(Value::as_u64);
    number.and_then(|number| N::try_from(number).ok()).with_context(|| format!("entry {entry:?}"))
}

fn mode(entry: &[Value], at: usize) -> Result<u32> {
    Ok(u32::from_str_radix(text(entry, at)?, 8)?)
}

fn make(path: &Path, entry: &[Value]) -> Result<()> {
    fs::create_dir_all(path.parent().context("a file has a directory")?)?;
    let file = |content: &[u8], mode| -> Result<()> {
        fs::write(path, content)?;
        Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
    };
    match text(entry, 1)? {
        "d" => fs::create_dir_all(path)?,
        "f" => file(text(entry, 3)?.as_bytes(), mode(entry, 2)?)?,
        "l" => symlink(text(entry, 2)?, path)?,
        "c" => {
            let device = makedev(number(entry, 2)?, number(entry, 3)?);
            mknod(path, SFlag::S_IFCHR, Mode::empty(), device)
                .context("mknod, which only root may")?;
            fs::set_permissions(path, Permissions::from_mode(mode(entry, 4)?))?;
            let (uid, gid) = (Uid::from_raw(number(entry, 5)?), Gid::from_raw(number(entry, 6)?));
            chown(path, Some(uid), Some(gid))?;
        }
        "s" => mknod(path, SFlag::S_IFSOCK, Mode::from_bits_truncate(0o777), 0)?,
        "so" => {
            let (class, machine) = match number::<u8>(entry, 3)? {
                64 => (Class::Elf64, Machine::X86_64),
                _ => (Class::Elf32, Machine::X86),
            };
            let soname = entry.get(2).and_then(Value::as_str);
            file(&elf::library(soname, class, machine), mode(entry, 4)?)?;
        }
        // Written when all libraries are there.
        "ldcache" => {}
        other => bail!("unknown kind {other}"),
    }
    Ok(())
}

/// An `ld.so.cache` of the libraries below the root that it belongs to.
fn write_cache(path: &Path) -> Result<()> {
    let root = path.ancestors().nth(2).context("etc is below a root")?;
    let mut cache = Cache::default();
    let mut dirs = vec![root.join("usr/lib"), root.join("usr/lib64"), root.join("usr/local/lib")];
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                dirs.push(entry.path());
            } else if entry.file_type()?.is_file()
                && let Ok(elf) = nvidia_oci::elf::Elf::read(&fs::File::open(entry.path())?)
                && let Some(soname) = elf.soname
            {
                let place = Path::new("/").join(dir.strip_prefix(root)?).join(&soname);
                cache.insert(&soname, &place, elf.class, elf.machine);
            }
        }
    }
    Ok(fs::write(path, cache.to_bytes()?)?)
}
