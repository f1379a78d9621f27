//! The runtime behind us: found by the list `runtimes` of `config.toml`, and never ourselves.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nvidia_oci::{Code, Error, Result};

use crate::executable::{is_executable, leads_back};

/// Where a runtime is looked for that `PATH` does not lead to; those of NVIDIA's runtime.
const USUAL: &[&str] =
    &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The first of `candidates` that is there: a plain name in `path` or a usual directory, or an
/// absolute path.
///
/// # Errors
/// [`Code::LowLevelRuntime`], if there is none, with what is wrong with each.
pub(super) fn find(candidates: &[String], path: Option<&OsStr>) -> Result<PathBuf> {
    let mut wrong = Vec::new();
    for candidate in candidates {
        match look(candidate, path) {
            Ok(runtime) => return Ok(runtime),
            Err(what) => wrong.push(format!("{candidate:?} {what}")),
        }
    }
    let what = format!("no OCI runtime to call: {}", wrong.join(", "));
    Err(Error::new(Code::LowLevelRuntime, what))
}

fn look(candidate: &str, path: Option<&OsStr>) -> Result<PathBuf, &'static str> {
    let places: Vec<PathBuf> = if candidate.contains('/') {
        vec![PathBuf::from(candidate)]
    } else {
        let dirs = path.into_iter().flat_map(env::split_paths);
        dirs.chain(USUAL.iter().map(PathBuf::from)).map(|dir| dir.join(candidate)).collect()
    };
    // What a relative path means depends on where we were called.
    let mut found = places.iter().filter(|place| place.is_absolute() && is_executable(place));
    match found.clone().find(|place| !leads_back(place)) {
        Some(runtime) => Ok(runtime.clone()),
        None if found.next().is_some() => Err("is this program or does the same"),
        None if candidate.contains('/') => Err("is no program"),
        None => Err("is neither in PATH nor in the usual directories"),
    }
}

/// Becomes `runtime`, with all words and the environment as they are.
pub(super) fn become_it(runtime: &Path, words: &[OsString]) -> Error {
    let error = Command::new(runtime).args(words).exec();
    Error::caused(Code::LowLevelRuntime, format!("executing {}", runtime.display()), error)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A directory with a program of each name.
    fn dir_with(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            let program = dir.path().join(name);
            fs::write(&program, "").unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        dir
    }

    fn found(candidates: &[&str], dirs: &[&Path]) -> Result<PathBuf> {
        let candidates: Vec<String> = candidates.iter().map(|&name| name.to_owned()).collect();
        find(&candidates, Some(&env::join_paths(dirs).unwrap()))
    }

    #[test]
    fn the_first_candidate_that_is_there_is_taken() {
        let [both, one] = [dir_with(&["nvs-a", "nvs-b"]), dir_with(&["nvs-b"])];
        let (both, one) = (both.path(), one.path());
        assert_eq!(found(&["nvs-a", "nvs-b"], &[one, both]).unwrap(), both.join("nvs-a"));
        assert_eq!(found(&["nvs-c", "nvs-b"], &[one, both]).unwrap(), one.join("nvs-b"));
        let path = both.join("nvs-a");
        assert_eq!(found(&[path.to_str().unwrap(), "nvs-b"], &[one]).unwrap(), path);
        assert_eq!(found(&["sh"], &[]).unwrap().file_name(), Some(OsStr::new("sh")));
    }

    #[test]
    fn what_leads_back_is_passed_over() {
        let ours = dir_with(&["nvidia-container-runtime.real"]);
        let theirs = dir_with(&["nvs-runc"]);
        symlink(env::current_exe().unwrap(), ours.path().join("nvs-runc")).unwrap();
        let dirs = [ours.path(), theirs.path()];
        assert_eq!(found(&["nvs-runc"], &dirs).unwrap(), theirs.path().join("nvs-runc"));
        let text = found(&["nvidia-container-runtime.real", "nvs-runc"], &dirs[..1]).unwrap_err();
        assert_eq!(text.to_string().matches("is this program or does the same").count(), 2);
    }

    #[test]
    fn an_error_names_each_candidate_and_what_is_wrong_with_it() {
        let dir = dir_with(&[]);
        fs::write(dir.path().join("nvs-file"), "").unwrap();
        let file = dir.path().join("nvs-file");
        let error = found(&["nvs-file", file.to_str().unwrap(), "./nvs-file"], &[dir.path()]);
        let error = error.unwrap_err();
        assert_eq!(error.code(), Code::LowLevelRuntime);
        let text = error.to_string();
        assert!(text.contains("\"nvs-file\" is neither in PATH"), "{text}");
        assert_eq!(text.matches("is no program").count(), 2, "{text}");
        assert!(found(&[], &[]).is_err());
    }
}
