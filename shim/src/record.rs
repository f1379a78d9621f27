//! What the bundle of a group's leader keeps about the group's processes, for a `delete` that
//! comes after the relay was killed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::process::Process;
use crate::socket::Sockets;

const NAME: &str = "nvidia-shim.json";

/// More than any record is long.
const MAX: u64 = 64 << 10;

/// The processes and sockets of a group.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) relay: Process,
    /// None if the inner shim could not be started, or has ended at once.
    pub(crate) inner: Option<Process>,
    outer_socket: PathBuf,
    inner_socket: PathBuf,
}

impl Record {
    pub(crate) fn new(relay: Process, inner: Option<Process>, sockets: &Sockets) -> Self {
        let outer_socket = sockets.outer.clone();
        Self { relay, inner, outer_socket, inner_socket: sockets.inner.clone() }
    }

    pub(crate) fn sockets(&self) -> Sockets {
        Sockets { outer: self.outer_socket.clone(), inner: self.inner_socket.clone() }
    }

    pub(crate) fn write(&self, bundle: &Path) -> io::Result<()> {
        replace(&bundle.join(NAME), &serde_json::to_vec(self)?)
    }

    /// None if `bundle` is not a leader's.
    ///
    /// # Errors
    /// Those of the system, or that the file is not a record.
    pub(crate) fn read(bundle: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(bundle.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut text = Vec::new();
        file.take(MAX).read_to_end(&mut text)?;
        Ok(Some(serde_json::from_slice(&text)?))
    }
}

/// Puts `content` in place of the file `path`, whole or not at all, readable by its owner.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(content)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let bundle = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(bundle.path()).unwrap(), None);
        let own = Process::of(std::process::id()).unwrap();
        let sockets = Sockets { outer: "/run/o".into(), inner: "/run/i".into() };
        let record = Record::new(own, None, &sockets);
        record.write(bundle.path()).unwrap();
        assert_eq!(Record::read(bundle.path()).unwrap(), Some(record));
        std::fs::write(bundle.path().join(NAME), "{").unwrap();
        assert!(Record::read(bundle.path()).is_err());
        assert_eq!(std::fs::read_dir(bundle.path()).unwrap().count(), 1);
    }
}
