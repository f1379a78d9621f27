//! What the loader of a container must know of libraries in directories that a CDI spec names:
//! what `ldconfig` would find there of those that are mounted.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use super::{LibraryEntry, Link, Plan};
use crate::Host;
use crate::elf::{Elf, ObjectKind};
use crate::report::{Item, ItemKind};

/// Enters the libraries that are mounted in `folders`, each with a link by its SONAME.
pub(super) fn give(host: &Host, folders: &[PathBuf], plan: &mut Plan) {
    for folder in folders {
        if !plan.fixups.library_dirs.contains(folder) {
            plan.fixups.library_dirs.push(folder.clone());
        }
    }
    let mut taken: HashSet<PathBuf> =
        plan.edits.mounts.iter().map(|mount| mount.destination.clone()).collect();
    taken.extend(plan.fixups.links.iter().map(|link| link.link.clone()));
    let mut entered: HashSet<PathBuf> =
        plan.fixups.libraries.iter().map(|entry| entry.path.clone()).collect();
    for mount in &plan.edits.mounts {
        let place = &mount.destination;
        let folder = place.parent().filter(|folder| folders.iter().any(|it| it == folder));
        let (Some(folder), Some(file)) = (folder, place.file_name()) else { continue };
        let Some(elf) = is_library(place).then(|| read(host, &mount.source)).flatten() else {
            continue;
        };
        let soname = elf.soname.unwrap_or_else(|| file.to_string_lossy().into_owned());
        let path = folder.join(&soname);
        if taken.insert(path.clone()) {
            let shown = format!("{} -> {}", path.display(), file.display());
            plan.report.given.push(Item::new(ItemKind::Link, shown, "name of a library"));
            plan.fixups.links.push(Link { link: path.clone(), target: file.into() });
        }
        if entered.insert(path.clone()) {
            let (class, machine) = (elf.class, elf.machine);
            plan.fixups.libraries.push(LibraryEntry { soname, path, class, machine });
        }
    }
}

/// By ldconfig's own rule.
pub(super) fn is_library(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    (name.starts_with("lib") || name.starts_with("ld-")) && name.contains(".so")
}

/// The library `path` of the host, if it is one.
fn read(host: &Host, path: &Path) -> Option<Elf> {
    if !host.metadata(path).ok()?.is_file() {
        return None;
    }
    let file: File = host.open(path).ok()?;
    let elf = Elf::read(&file).ok()?;
    let named = elf.soname.as_deref().is_none_or(|soname| !soname.contains('/'));
    (elf.kind == ObjectKind::Shared && named).then_some(elf)
}
