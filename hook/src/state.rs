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
    // crun says it as the spec does: below the bundle, if it does not begin with a slash.
    if let Some(root) = text("root") {
        return match text("bundle") {
            Some(bundle) if !root.starts_with('/') => Ok(absolute(bundle, "bundle")?.join(root)),
            _ => absolute(root, "root"),
        };
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

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// The answer for a state and a `config.json`; `DIR` stands for the bundle.
    fn root(state: &str, config: &str) -> Result<String> {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().display().to_string();
        let file = dir.path().join("state");
        fs::write(&file, state.replace("DIR", &place)).unwrap();
        fs::write(dir.path().join("config.json"), config).unwrap();
        container_root(Some(&file)).map(|root| root.display().to_string().replace(&place, "DIR"))
    }

    #[test]
    fn the_states_own_root_goes_before_that_of_the_bundle() {
        let config = r#"{"root": {"path": "rootfs"}}"#;
        assert_eq!(root(r#"{"bundle": "DIR", "x": [1]}"#, config).unwrap(), "DIR/rootfs");
        assert_eq!(root(r#"{"bundle": "DIR", "root": ""}"#, config).unwrap(), "DIR/rootfs");
        assert_eq!(root(r#"{"bundle": "DIR", "root": "/r"}"#, config).unwrap(), "/r");
        assert_eq!(root(r#"{"bundle": "DIR", "root": "r"}"#, config).unwrap(), "DIR/r");
        let absolute = r#"{"root": {"path": "/elsewhere"}}"#;
        assert_eq!(root(r#"{"bundle": "DIR"}"#, absolute).unwrap(), "/elsewhere");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (state, config, words) in [
            ("", "{}", "state: EOF"),
            ("{}", "{}", "neither root nor bundle"),
            (r#"{"bundle": "b"}"#, "{}", "bundle is no absolute path"),
            (r#"{"root": "r"}"#, "{}", "root is no absolute path"),
            (r#"{"bundle": "DIR"}"#, "{}", "has no root.path"),
            (r#"{"bundle": "DIR"}"#, "[", "config.json is not JSON"),
            (r#"{"bundle": "/none/such"}"#, "{}", "/none/such/config.json"),
        ] {
            let error = root(state, config).unwrap_err().to_string();
            assert!(error.starts_with("NVS-001") && error.contains(words), "{error}");
        }
        let large = json!({"root": "/r", "annotations": "x".repeat(5 << 20)}).to_string();
        assert!(root(&large, "{}").unwrap_err().to_string().contains("larger than"));
    }

    proptest! {
        #[test]
        fn a_state_of_any_kind_is_read_or_refused(state in "[{}\\[\\]\":,/a-z0-9]{0,40}") {
            let _ = root(&state, "{}");
        }
    }
}
