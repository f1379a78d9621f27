//! The real drivers of Debian, unpacked.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::scratch;

/// The directory of the drivers, one below each branch's name, which `fetch-drivers` fills.
pub fn drivers() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = scratch().with_file_name("drivers");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/fetch-drivers");
        let status = Command::new(script).arg(&dir).status().expect("fetch-drivers");
        assert!(status.success(), "fetch-drivers: {status}");
        dir
    })
}
