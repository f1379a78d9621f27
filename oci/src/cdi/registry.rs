//! The spec files of a host, and which of them describes a device.
//!
//! A later directory goes before an earlier one; a device that two files of the same directory
//! describe is of no use. What is wrong with one file is kept for whoever asks, and hides no other.

mod files;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::PathBuf;

use self::files::Wanted;
use super::{Device, Problem, QualifiedName, Spec};
use crate::Host;

/// Spec files, read once.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    /// In the order of their directories, then of their names.
    files: Vec<SpecFile>,
    problems: Vec<FileProblem>,
    /// Files that were not parsed, by their kind.
    others: BTreeMap<String, Vec<PathBuf>>,
    /// By kind, then by name.
    devices: HashMap<String, HashMap<String, Place>>,
}

/// A file that is a spec.
#[derive(Clone, Debug)]
pub struct SpecFile {
    /// As the host names it.
    pub path: PathBuf,
    /// That of its directory; a higher one goes before a lower one.
    pub rank: usize,
    pub spec: Spec,
}

/// What is wrong with a file, or a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProblem {
    /// As the host names it.
    pub path: PathBuf,
    pub problem: Problem,
}

/// A device, and the file that describes it.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    pub file: &'a SpecFile,
    pub device: &'a Device,
}

/// Where a device is described: by place in the lists, in more than one file if it is in conflict.
#[derive(Clone, Debug)]
struct Place {
    file: usize,
    device: usize,
    conflict: bool,
}

impl Registry {
    /// Reads all spec files in `directories` of `host`.
    pub fn read(host: &Host, directories: &[PathBuf]) -> Self {
        Self::of_files(files::read(host, directories, &Wanted::All))
    }

    /// Reads those whose devices are of one of `kinds`.
    pub fn of_kinds(host: &Host, directories: &[PathBuf], kinds: &[&str]) -> Self {
        Self::of_files(files::read(host, directories, &Wanted::Kinds(kinds)))
    }

    /// Reads those that may describe one of `devices`.
    pub fn of_devices(host: &Host, directories: &[PathBuf], devices: &[QualifiedName]) -> Self {
        Self::of_files(files::read(host, directories, &Wanted::Devices(devices)))
    }

    fn of_files(files: files::Files) -> Self {
        let files::Files { specs, problems, others } = files;
        let mut registry = Self { files: specs, problems, others, ..Self::default() };
        registry.enter_devices();
        registry
    }

    fn enter_devices(&mut self) {
        let mut conflicts: BTreeMap<(usize, usize), Vec<String>> = BTreeMap::new();
        for (at, file) in self.files.iter().enumerate() {
            let known = self.devices.entry(file.spec.kind.clone()).or_default();
            for (device, Device { name, .. }) in file.spec.devices.iter().enumerate() {
                let mut place = Place { file: at, device, conflict: false };
                if let Some(before) = known.get(name)
                    && self.files.get(before.file).is_some_and(|other| other.rank == file.rank)
                {
                    conflicts.entry((before.file, at)).or_default().push(name.clone());
                    place.conflict = true;
                }
                known.insert(name.clone(), place);
            }
        }
        let path = |at: usize| self.files.get(at).map(|file| file.path.clone()).unwrap_or_default();
        for ((one, other), devices) in conflicts {
            for (file, other) in [(one, other), (other, one)] {
                let problem = Problem::Conflict { devices: devices.clone(), other: path(other) };
                self.problems.push(FileProblem { path: path(file), problem });
            }
        }
    }

    /// The device of that name.
    pub fn find(&self, name: &QualifiedName) -> Option<Found<'_>> {
        let place = self.devices.get(&name.kind)?.get(&name.device)?;
        if place.conflict { None } else { self.found(place) }
    }

    /// Every device that can be asked for, in the order of files.
    pub fn devices(&self) -> impl Iterator<Item = Found<'_>> {
        let mut places: Vec<&Place> =
            self.devices.values().flat_map(HashMap::values).filter(|it| !it.conflict).collect();
        places.sort_by_key(|place| (place.file, place.device));
        places.into_iter().filter_map(|place| self.found(place))
    }

    pub fn files(&self) -> &[SpecFile] {
        &self.files
    }

    pub fn problems(&self) -> &[FileProblem] {
        &self.problems
    }

    /// The problem of a device that more than one file describes, neither going before the other.
    pub fn conflict(&self, name: &QualifiedName) -> Option<&FileProblem> {
        let place = self.devices.get(&name.kind)?.get(&name.device).filter(|it| it.conflict)?;
        let path = &self.files.get(place.file)?.path;
        let is_of = |problem: &Problem| matches!(problem, Problem::Conflict { devices, .. } if devices.contains(&name.device));
        self.problems.iter().find(|it| it.path == *path && is_of(&it.problem))
    }

    /// What a person needs to know whose device `name` was not found: which devices and files of
    /// its kind there are, or which kinds, and which files cannot be used.
    pub fn instead_of(&self, name: &QualifiedName) -> String {
        if let Some(FileProblem { path, problem }) = self.conflict(name) {
            return format!("{} {problem}", path.display());
        }
        let mut text = match self.files_of(&name.kind).peekable().peek() {
            Some(_) => self.devices_of(&name.kind),
            None => self.kinds(),
        };
        for FileProblem { path, problem } in self.problems.iter().take(MOST_PROBLEMS) {
            // Writing to a String cannot fail.
            let _ = write!(text, "; {} {problem}", path.display());
        }
        if let Some(more) = self.problems.len().checked_sub(MOST_PROBLEMS + 1) {
            let _ = write!(text, "; and {} more files have faults", more + 1);
        }
        text
    }

    fn files_of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a SpecFile> {
        self.files.iter().filter(move |file| file.spec.kind == kind)
    }

    fn devices_of(&self, kind: &str) -> String {
        let files: Vec<_> = self.files_of(kind).map(|it| it.path.display().to_string()).collect();
        let usable = self.devices().filter(|found| found.file.spec.kind == kind);
        let devices = listing(usable.map(|found| found.device.name.as_str()), "no device");
        format!("of {kind} {} has {devices}", files.join(" and "))
    }

    fn kinds(&self) -> String {
        let mut kinds: Vec<&str> = self.files.iter().map(|file| file.spec.kind.as_str()).collect();
        kinds.extend(self.others.keys().map(String::as_str));
        kinds.sort_unstable();
        kinds.dedup();
        format!("the CDI specs of this node have {}", listing(kinds.into_iter(), "no device"))
    }

    fn found(&self, place: &Place) -> Option<Found<'_>> {
        let file = self.files.get(place.file)?;
        Some(Found { file, device: file.spec.devices.get(place.device)? })
    }
}

/// A message is one line.
const MOST_NAMES: usize = 16;
const MOST_PROBLEMS: usize = 3;

fn listing<'a>(names: impl Iterator<Item = &'a str>, nothing: &str) -> String {
    let names: Vec<&str> = names.collect();
    let shown = names.get(..names.len().min(MOST_NAMES)).unwrap_or_default().join(", ");
    match names.len() {
        0 => nothing.to_owned(),
        count if count > MOST_NAMES => format!("{shown} and {} more", count - MOST_NAMES),
        _ => shown,
    }
}

impl Found<'_> {
    pub fn name(&self) -> QualifiedName {
        let (kind, device) = (self.file.spec.kind.clone(), self.device.name.clone());
        QualifiedName { kind, device }
    }
}

#[cfg(test)]
mod tests;
