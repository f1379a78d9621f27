//! An OCI runtime spec, carried as the JSON that it was read as, behind a few typed verbs.
//!
//! A typed carrier would lose the fields that it does not know and refuse the values that it has
//! never heard of; here what is not touched stays as it was, key order included. Readers are
//! lenient, as whoever asks for nothing must not fail here; writers report the place of a value
//! that is not what the OCI spec says.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::{Code, Error, Result};

/// An OCI runtime spec, carried as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec(Value);

/// `process.user`, as far as device nodes need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

/// An entry of `linux.uidMappings` or `linux.gidMappings`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMapping {
    pub container_id: u32,
    pub host_id: u32,
    pub size: u32,
}

/// An entry of `linux.devices`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecDevice<'a> {
    pub path: &'a Path,
    /// Major and minor.
    pub numbers: (u64, u64),
}

/// An entry of `mounts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecMount<'a> {
    pub destination: &'a Path,
    pub source: Option<&'a Path>,
    /// `type`, such as `bind` or `tmpfs`; often absent for bind mounts.
    pub kind: Option<&'a str>,
    pub options: Vec<&'a str>,
}

impl Spec {
    /// A spec made of JSON that is already at hand.
    pub fn new(value: Value) -> Self {
        Self(value)
    }

    /// Reads a spec; `place` is what errors call it.
    ///
    /// # Errors
    /// [`Code::SpecUnreadable`] with line and column if it is not one JSON object.
    pub fn parse(json: &[u8], place: &Path) -> Result<Self> {
        let value: Value = serde_json::from_slice(json).map_err(|error| {
            Error::caused(Code::SpecUnreadable, format!("{} is not JSON", place.display()), error)
        })?;
        if !value.is_object() {
            let what = format!("{}: line 1: not a JSON object", place.display());
            return Err(Error::new(Code::SpecUnreadable, what));
        }
        Ok(Self(value))
    }

    /// The spec as compact JSON with a final newline, as containerd writes it.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = self.0.to_string().into_bytes();
        json.push(b'\n');
        json
    }

    /// The spec as JSON.
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// `process.env`, entry by entry.
    pub fn env(&self) -> impl Iterator<Item = &str> {
        self.list("/process/env").filter_map(Value::as_str)
    }

    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.0.get("annotations")?.get(key)?.as_str()
    }

    /// Those that are text.
    pub fn annotations(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        let map = self.0.get("annotations").and_then(Value::as_object);
        map.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    }

    pub fn mounts(&self) -> impl Iterator<Item = SpecMount<'_>> {
        self.list("/mounts").filter_map(|mount| {
            let text = |key: &str| mount.get(key).and_then(Value::as_str);
            let options = mount.get("options").and_then(Value::as_array);
            Some(SpecMount {
                destination: Path::new(text("destination")?),
                source: text("source").map(Path::new),
                kind: text("type"),
                options: options.into_iter().flatten().filter_map(Value::as_str).collect(),
            })
        })
    }

    pub fn devices(&self) -> impl Iterator<Item = SpecDevice<'_>> {
        self.list("/linux/devices").filter_map(|device| {
            let number = |key: &str| device.get(key).and_then(Value::as_u64).unwrap_or_default();
            let path = Path::new(device.get("path")?.as_str()?);
            Some(SpecDevice { path, numbers: (number("major"), number("minor")) })
        })
    }

    /// Programs of the hooks of a stage, such as `prestart`.
    pub fn hook_paths(&self, stage: &str) -> impl Iterator<Item = &str> {
        let hooks =
            self.0.get("hooks").and_then(|hooks| hooks.get(stage)).and_then(Value::as_array);
        hooks.into_iter().flatten().filter_map(|hook| hook.get("path")?.as_str())
    }

    /// Whether the bounding set of the process has `capability`, such as `CAP_SYS_ADMIN`.
    pub fn may_have(&self, capability: &str) -> bool {
        self.list("/process/capabilities/bounding").any(|held| held == capability)
    }

    /// `process.user`; root where it is not said.
    pub fn user(&self) -> User {
        let id = |pointer| self.0.pointer(pointer).and_then(as_u32).unwrap_or_default();
        User { uid: id("/process/user/uid"), gid: id("/process/user/gid") }
    }

    pub fn uid_mappings(&self) -> Vec<IdMapping> {
        self.mappings("/linux/uidMappings")
    }

    pub fn gid_mappings(&self) -> Vec<IdMapping> {
        self.mappings("/linux/gidMappings")
    }

    /// Whether the container has a user namespace of its own or joins one.
    pub fn in_user_namespace(&self) -> bool {
        let named = |namespace: &Value| namespace.get("type").is_some_and(|kind| kind == "user");
        self.list("/linux/uidMappings").next().is_some()
            || self.list("/linux/namespaces").any(named)
    }

    /// `root.path`, absolute or relative to the bundle.
    pub fn root_path(&self) -> Option<PathBuf> {
        Some(PathBuf::from(self.0.pointer("/root/path")?.as_str()?))
    }

    pub fn root_readonly(&self) -> bool {
        self.0.pointer("/root/readonly").and_then(Value::as_bool).unwrap_or_default()
    }

    /// The list at `path`; it and the objects above it are made where they are absent or null.
    pub(crate) fn list_mut(&mut self, path: &[&str]) -> Result<&mut Vec<Value>> {
        let mut value = &mut self.0;
        for key in path {
            value = object_at(value, path)?.entry(*key).or_insert(Value::Null);
        }
        if value.is_null() {
            *value = Value::Array(Vec::new());
        }
        value.as_array_mut().ok_or_else(|| misshapen(path, "a list"))
    }

    /// The object at `path`; it and those above it are made where they are absent or null.
    pub(crate) fn object_mut(&mut self, path: &[&str]) -> Result<&mut Map<String, Value>> {
        let mut value = &mut self.0;
        for key in path {
            value = object_at(value, path)?.entry(*key).or_insert(Value::Null);
        }
        object_at(value, path)
    }

    /// The list at `path` if there is one; nothing is made.
    pub(crate) fn existing_list_mut(&mut self, pointer: &str) -> Option<&mut Vec<Value>> {
        self.0.pointer_mut(pointer)?.as_array_mut()
    }

    fn list(&self, pointer: &str) -> impl Iterator<Item = &Value> {
        self.0.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
    }

    fn mappings(&self, pointer: &str) -> Vec<IdMapping> {
        let mapping = |value: &Value| {
            let number = |key| value.get(key).and_then(as_u32);
            Some(IdMapping {
                container_id: number("containerID")?,
                host_id: number("hostID")?,
                size: number("size")?,
            })
        };
        self.list(pointer).filter_map(mapping).collect()
    }
}

fn object_at<'a>(value: &'a mut Value, path: &[&str]) -> Result<&'a mut Map<String, Value>> {
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().ok_or_else(|| misshapen(path, "in an object, or none"))
}

fn misshapen(path: &[&str], expected: &str) -> Error {
    let what = format!("config.json: {} is not {expected}", path.join("."));
    Error::new(Code::SpecUnreadable, what)
}

fn as_u32(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: &str) -> Spec {
        Spec::parse(json.as_bytes(), Path::new("/b/config.json")).unwrap()
    }

    #[test]
    fn what_is_not_touched_stays_as_it_was() {
        let json = r#"{"z":1,"a":{"future":[18446744073709551615,-9223372036854775808,null]},"m":"\u003c"}"#;
        let json_again = String::from_utf8(spec(json).to_json()).unwrap();
        assert_eq!(json_again, json.replace(r"\u003c", "<") + "\n");
    }

    #[test]
    fn an_error_names_file_line_and_column() {
        let error = Spec::parse(b"{\n \"a\": ]", Path::new("/b/config.json")).unwrap_err();
        assert_eq!(error.code(), Code::SpecUnreadable);
        assert!(error.to_string().contains("/b/config.json"), "{error}");
        assert!(error.to_string().contains("line 2 column 7"), "{error}");
    }

    #[test]
    fn readers_take_what_is_there() {
        let spec = spec(
            r#"{"process":{"env":["A=1",3],"user":{"uid":1000},"capabilities":{"bounding":["CAP_KILL"]}},
                "mounts":[{"destination":"/proc"},{"source":"/x"}],
                "linux":{"uidMappings":[{"containerID":0,"hostID":65536,"size":10}]},
                "root":{"path":"rootfs","readonly":true}}"#,
        );
        assert_eq!(spec.env().collect::<Vec<_>>(), ["A=1"]);
        assert_eq!(spec.user(), User { uid: 1000, gid: 0 });
        assert!(spec.may_have("CAP_KILL") && !spec.may_have("CAP_SYS_ADMIN"));
        assert_eq!(spec.mounts().count(), 1);
        assert!(spec.in_user_namespace() && spec.root_readonly());
        let mapping = IdMapping { container_id: 0, host_id: 65536, size: 10 };
        assert_eq!(spec.uid_mappings(), [mapping]);
    }

    #[test]
    fn nothing_is_assumed_of_the_shape() {
        let spec = spec(r#"{"process":[],"mounts":{},"linux":null}"#);
        assert_eq!(spec.env().count() + spec.mounts().count(), 0);
        assert_eq!(spec.user(), User::default());
        assert!(!spec.in_user_namespace());
    }

    #[test]
    fn a_list_is_made_where_absent_and_refused_where_it_is_something_else() {
        let mut spec = spec(r#"{"linux":null,"mounts":{}}"#);
        spec.list_mut(&["linux", "resources", "devices"]).unwrap().push(Value::from(1));
        assert_eq!(spec.value()["linux"]["resources"]["devices"][0], 1);
        let error = spec.list_mut(&["mounts"]).unwrap_err();
        assert!(error.to_string().contains("mounts is not a list"), "{error}");
    }
}
