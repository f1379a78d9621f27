//! From directories to specs: which files are looked at, and which of them are parsed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{FileProblem, SpecFile};
use crate::cdi::read::{LIMIT, read_bytes};
use crate::cdi::{Problem, QualifiedName, parse, peek};
use crate::host::Found;
use crate::{Error, Host, trust};

/// What lies in the directories.
#[derive(Default)]
pub(super) struct Files {
    pub(super) specs: Vec<SpecFile>,
    pub(super) problems: Vec<FileProblem>,
    pub(super) others: BTreeMap<String, Vec<PathBuf>>,
}

/// Which files are parsed.
pub(super) enum Wanted<'a> {
    All,
    /// Those of devices of these kinds.
    Kinds(&'a [&'a str]),
    /// Those that may describe one of these devices.
    Devices(&'a [QualifiedName]),
}

impl Wanted<'_> {
    fn kind(&self, kind: &str) -> bool {
        match self {
            Self::All => true,
            Self::Kinds(kinds) => kinds.contains(&kind),
            Self::Devices(names) => names.iter().any(|name| name.kind == kind),
        }
    }

    /// Whether a file with this text may describe what is wanted.
    fn text(&self, text: &[u8]) -> bool {
        match self {
            Self::All | Self::Kinds(_) => true,
            Self::Devices(names) => match std::str::from_utf8(text) {
                // With a backslash a name can be written in other letters.
                Ok(text) if !text.contains('\\') => {
                    names.iter().any(|name| has_word(text, &name.device))
                }
                _ => true,
            },
        }
    }
}

/// Whether `text` has `word`, and neither before nor behind it what could be part of a name.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(byte);
    text.match_indices(word).any(|(at, _)| {
        let before = text.as_bytes().get(..at).and_then(<[u8]>::last);
        let behind = text.as_bytes().get(at + word.len());
        // Behind a key in quotes the colon may stand right before its value.
        !before.is_some_and(|byte| is_part(byte) && *byte != b':') && !behind.is_some_and(is_part)
    })
}

/// Reads the files in `directories` that are wanted.
pub(super) fn read(host: &Host, directories: &[PathBuf], wanted: &Wanted<'_>) -> Files {
    let mut files = Files::default();
    for (rank, directory) in distinct(host, directories).into_iter().enumerate() {
        files.take_directory(host, directory, rank, wanted);
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

/// Without the name of what is at `path`: a problem is shown behind it.
fn untrusted(error: &Error, name: &str, path: &Path) -> Problem {
    let what = error.what();
    let named = format!("{name} {} ", path.display());
    Problem::Untrusted(what.strip_prefix(&named).unwrap_or(what).to_owned())
}

impl Files {
    fn take_directory(&mut self, host: &Host, directory: &Path, rank: usize, wanted: &Wanted<'_>) {
        const DIRECTORY: &str = "CDI spec directory";
        if let Err(error) = trust::check(host, directory, DIRECTORY) {
            self.note(directory, untrusted(&error, DIRECTORY, directory));
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
        wanted: &Wanted<'_>,
    ) -> Result<(), Problem> {
        let unreadable = |error: io::Error| Problem::Unreadable(error.to_string());
        let found = host.find(path).map_err(unreadable)?;
        if found.metadata.is_dir() {
            return Ok(());
        }
        let looked = look(host, &found).map_err(unreadable)?;
        if let Some(kind) = looked.filter(|kind| !wanted.kind(kind)) {
            self.others.entry(kind).or_default().push(path.to_owned());
            return Ok(());
        }
        trust::check_file(host, path, "CDI spec")
            .map_err(|error| untrusted(&error, "CDI spec", path))?;
        let text = read_bytes(host, path).map_err(unreadable)?;
        if !wanted.text(&text) {
            return Ok(());
        }
        let spec = parse(&text)?;
        if wanted.kind(&spec.kind) {
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
fn look(host: &Host, found: &Found) -> io::Result<Option<String>> {
    let size = found.metadata.len();
    if !found.metadata.is_file() || size > LIMIT {
        return Ok(None);
    }
    let file = File::open(host.join(&found.path))?;
    let length = usize::try_from(size).unwrap_or(usize::MAX).min(peek::LENGTH);
    let head = read_at(&file, length, 0)?;
    Ok(peek::kind(&head, || read_at(&file, length, size.saturating_sub(length as u64)).ok()))
}

fn read_at(file: &File, length: usize, offset: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let read = file.read_at(&mut bytes, offset)?;
    bytes.truncate(read);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_word() {
        for (text, has) in [
            (r#"{"name":"0"}"#, true),
            ("name: 0\n", true),
            ("- {name: 0}", true),
            ("minor: 0", true),
            ("name: 10", false),
            ("name: 0:1", false),
            ("name: a-0", false),
            ("x: 0.5, y: 0", true),
            ("", false),
        ] {
            assert_eq!(has_word(text, "0"), has, "{text}");
        }
    }
}
