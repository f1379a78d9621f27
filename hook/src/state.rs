//! The state of a container as an OCI runtime tells it to a hook, on standard input: where the
//! root filesystem is.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use nvidia_oci::{Bundle, Code, Error, Result};
use serde_json::Value;

/// Annotations are a part of it.
const MAX_STATE: u64 = 4 << 20;

/// The root filesystem of the container whose state is in `file`, or, without a file, on standard
/// input: crun says it, for others it is in the bundle's `config.json`.
///
/// # Errors
/// [`Code::SpecUnreadable`]: the state or the spec is not what OCI says.
pub fn container_root(file: Option<&Path>) -> Result<PathBuf> {
    let place =
        file.map_or("state on standard input".to_owned(), |file| file.display().to_string());
    let unreadable = |error: io::Error| Error::caused(Code::SpecUnreadable, place.clone(), error);
    let state = match file {
        Some(file) => File::open(file).and_then(read),
        None => read(io::stdin()),
    };
    let state: Value = serde_json::from_slice(&state.map_err(unreadable)?)
        .map_err(|error| unreadable(error.into()))?;
    let text = |key: &str| state.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let absolute = |path: &str, key: &str| {
        let path = PathBuf::from(path);
        path.is_absolute().then_some(path).ok_or_else(|| {
            let what = format!("{place}: {key} is no absolute path");
            Error::new(Code::SpecUnreadable, what)
        })
    };
    if let Some(root) = text("root") {
        return absolute(root, "root");
    }
    let bundle = text("bundle").ok_or_else(|| {
        Error::new(Code::SpecUnreadable, format!("{place}: neither root nor bundle is there"))
    })?;
    let bundle = Bundle::open(absolute(bundle, "bundle")?)?;
    match bundle.spec().root_path().filter(|path| !path.as_os_str().is_empty()) {
        Some(root) => Ok(bundle.dir.join(root)),
        None => {
            let what = format!("config.json of {} has no root.path", bundle.dir.display());
            Err(Error::new(Code::SpecUnreadable, what))
        }
    }
}

fn read(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_STATE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_STATE {
        return Err(io::Error::other(format!("larger than {MAX_STATE} bytes")));
    }
    Ok(bytes)
}
