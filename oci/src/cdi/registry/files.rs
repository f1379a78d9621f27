//! From directories to specs: which files are looked at, and which of them are parsed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{FileProblem, SpecFile};
use crate::cdi::read::{LIMIT, read_bytes};
use crate::cdi::{Problem, parse, peek};
use crate::{Host, trust};

/// What lies in the directories.
#[derive(Default)]
pub(super) struct Files {
    pub(super) specs: Vec<SpecFile>,
    pub(super) problems: Vec<FileProblem>,
    pub(super) others: BTreeMap<String, Vec<PathBuf>>,
}

/// Reads the files in `directories` whose kind is wanted.
pub(super) fn read(host: &Host, directories: &[PathBuf], wanted: impl Fn(&str) -> bool) -> Files {
    let mut files = Files::default();
    for (rank, directory) in distinct(host, directories).into_iter().enumerate() {
        files.take_directory(host, directory, rank, &wanted);
    }
    files
}

/// Those that exist, each once, where it stands last: `/var/run` is `/run` on most hosts.
fn distinct<'a>(host: &Host, directories: &'a [PathBuf]) -> Vec<&'a Path> {
    let mut distinct: Vec<((u64, u64), &Path)> = Vec::new();
    for directory in directories {
        let Ok(metadata) = host.metadata(directory) else { continue };
        let identity = (metadata.dev(), metadata.ino());
        distinct.retain(|(known, _)| *known != identity);
        distinct.push((identity, directory));
    }
    distinct.into_iter().map(|(_, directory)| directory).collect()
}

impl Files {
    fn take_directory(
        &mut self,
        host: &Host,
        directory: &Path,
        rank: usize,
        wanted: &impl Fn(&str) -> bool,
    ) {
        if let Err(error) = trust::check(host, directory, "CDI spec directory") {
            self.note(directory, Problem::Untrusted(error.what().to_owned()));
            return;
        }
        let names = match host.read_dir(directory) {
            Ok(names) => names,
            Err(error) => {
                self.note(directory, Problem::Unreadable(error.to_string()));
                return;
            }
        };
        let is_spec = |path: &Path| {
            path.extension().is_some_and(|extension| extension == "json" || extension == "yaml")
        };
        for path in names.iter().map(|name| directory.join(name)).filter(|path| is_spec(path)) {
            match self.take_file(host, &path, rank, wanted) {
                Ok(()) => {}
                Err(problem) => self.note(&path, problem),
            }
        }
    }

    fn take_file(
        &mut self,
        host: &Host,
        path: &Path,
        rank: usize,
        wanted: &impl Fn(&str) -> bool,
    ) -> Result<(), Problem> {
        let unreadable = |error: io::Error| Problem::Unreadable(error.to_string());
        if host.metadata(path).map_err(unreadable)?.is_dir() {
            return Ok(());
        }
        if let Some(kind) = look(host, path).map_err(unreadable)?
            && !wanted(&kind)
        {
            self.others.entry(kind).or_default().push(path.to_owned());
            return Ok(());
        }
        trust::check_file(host, path, "CDI spec")
            .map_err(|error| Problem::Untrusted(error.what().to_owned()))?;
        let spec = parse(&read_bytes(host, path).map_err(unreadable)?)?;
        if wanted(&spec.kind) {
            self.specs.push(SpecFile { path: path.to_owned(), rank, spec });
        } else {
            self.others.entry(spec.kind).or_default().push(path.to_owned());
        }
        Ok(())
    }

    fn note(&mut self, path: &Path, problem: Problem) {
        self.problems.push(FileProblem { path: path.to_owned(), problem });
    }
}

/// The kind of the spec in a file, if its ends tell.
fn look(host: &Host, path: &Path) -> io::Result<Option<String>> {
    let metadata = host.metadata(path)?;
    if !metadata.is_file() || metadata.len() > LIMIT {
        return Ok(None);
    }
    let file = host.open(path)?;
    let length = usize::try_from(metadata.len()).unwrap_or(usize::MAX).min(peek::LENGTH);
    let head = read_at(&file, length, 0)?;
    let tail = read_at(&file, length, metadata.len().saturating_sub(length as u64))?;
    Ok(peek::kind(&head, &tail))
}

fn read_at(file: &File, length: usize, offset: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let read = file.read_at(&mut bytes, offset)?;
    bytes.truncate(read);
    Ok(bytes)
}
