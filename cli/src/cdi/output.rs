//! Where a text goes: to standard output, or into a file that whoever reads it sees whole.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;

/// Everybody may read it, as with NVIDIA's program.
const MODE: u32 = 0o644;

/// Prints; whoever reads no further has what they wanted.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Puts `text` in the place of the file `path`, in one step, and says whether it differs from what
/// was there; the directory is made if it is missing.
pub(super) fn replace(path: &Path, text: &str) -> anyhow::Result<bool> {
    let context = || format!("writing {}", path.display());
    if fs::read(path).is_ok_and(|before| before == text.as_bytes()) {
        return Ok(false);
    }
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    fs::create_dir_all(directory).with_context(context)?;
    // No reader of specs takes a file of that name for one.
    let mut file = tempfile::Builder::new()
        .prefix(".nvidia-shim-")
        .permissions(Permissions::from_mode(MODE))
        .tempfile_in(directory)
        .with_context(context)?;
    file.write_all(text.as_bytes()).with_context(context)?;
    // What the umask took.
    file.as_file().set_permissions(Permissions::from_mode(MODE)).with_context(context)?;
    file.as_file().sync_all().with_context(context)?;
    file.persist(path).map_err(|error| error.error).with_context(context)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_only_if_it_differs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/nvidia.yaml");
        assert!(replace(&path, "one").unwrap());
        assert!(!replace(&path, "one").unwrap());
        let before = fs::File::open(&path).unwrap();
        assert!(replace(&path, "two").unwrap());
        assert_eq!(io::read_to_string(before).unwrap(), "one");
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
