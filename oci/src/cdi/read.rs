//! A spec file → a checked [`Spec`]: JSON or YAML, whichever it holds, within bounds.

use std::io;
use std::path::Path;

use super::{Problem, Spec, yaml};
use crate::Host;

/// The largest spec file. That of eight GPUs in 56 MIG devices, each named twice, has a tenth.
pub(super) const LIMIT: u64 = 1 << 20;

/// Reads and checks the spec file `path` of `host`.
///
/// # Errors
/// What is wrong with it.
pub fn read(host: &Host, path: &Path) -> Result<Spec, Problem> {
    let bytes = read_bytes(host, path).map_err(|error| Problem::Unreadable(error.to_string()))?;
    parse(&bytes)
}

/// All that is wrong with the spec file `path` of `host`; if it can be parsed, as a spec.
pub fn validate(host: &Host, path: &Path) -> (Option<Spec>, Vec<Problem>) {
    let parsed = read_bytes(host, path)
        .map_err(|error| Problem::Unreadable(error.to_string()))
        .and_then(|bytes| parse_unchecked(&bytes));
    match parsed {
        Ok(spec) => {
            let problems = spec.problems();
            (Some(spec), problems)
        }
        Err(problem) => (None, vec![problem]),
    }
}

/// The bytes of a regular file; opening a FIFO would wait for ever.
pub(super) fn read_bytes(host: &Host, path: &Path) -> io::Result<Vec<u8>> {
    let metadata = host.metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if metadata.len() > LIMIT {
        return Err(io::Error::other(format!("it has more than {LIMIT} bytes")));
    }
    host.read(path, LIMIT)
}

/// Reads and checks a spec.
///
/// # Errors
/// What is wrong with it.
pub fn parse(bytes: &[u8]) -> Result<Spec, Problem> {
    let spec = parse_unchecked(bytes)?;
    spec.check()?;
    Ok(spec)
}

fn parse_unchecked(bytes: &[u8]) -> Result<Spec, Problem> {
    let unparsable = |error: &dyn std::error::Error| Problem::Unparsable(error.to_string());
    let of_yaml = || {
        let text = std::str::from_utf8(bytes).map_err(|error| unparsable(&error))?;
        yaml::from_str(text).map_err(|error| unparsable(&error))
    };
    match is_json(bytes).then(|| serde_json::from_slice(bytes)) {
        Some(Ok(spec)) => Ok(spec),
        // The engines read all as YAML, which lets a comma stand last, a key without quotes, and a
        // number for a name.
        Some(Err(error)) => of_yaml().map_err(|_| unparsable(&error)),
        None => of_yaml(),
    }
}

/// Whether it looks like an object of JSON; YAML in that style is rare and looks different.
pub(super) fn is_json(bytes: &[u8]) -> bool {
    let mut bytes = bytes.iter().filter(|byte| !byte.is_ascii_whitespace());
    bytes.next() == Some(&b'{') && matches!(bytes.next(), Some(b'"' | b'}') | None)
}

#[cfg(test)]
mod tests;
