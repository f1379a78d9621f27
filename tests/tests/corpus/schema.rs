//! The JSON schema of CDI specs (`schema/` of the CDI project, August 2026) as a table: which object
//! has which fields, of which type, and which must be there. Fields beside those are none of a spec.

use serde_json::Value;

/// What a field holds.
#[derive(Clone, Copy)]
enum Type {
    Text,
    Texts,
    Number,
    /// Not negative.
    Natural,
    Naturals,
    Bool,
    Map,
    Object(&'static [Field]),
    Objects(&'static [Field]),
}
use Type::{Bool, Map, Natural, Naturals, Number, Object, Objects, Text, Texts};

/// Name, type, and whether it must be there.
type Field = (&'static str, Type, bool);

const SPEC: &[Field] = &[
    ("cdiVersion", Text, true),
    ("kind", Text, true),
    ("annotations", Map, false),
    ("devices", Objects(DEVICE), true),
    ("containerEdits", Object(EDITS), false),
];
const DEVICE: &[Field] =
    &[("name", Text, true), ("annotations", Map, false), ("containerEdits", Object(EDITS), true)];
const EDITS: &[Field] = &[
    ("env", Texts, false),
    ("deviceNodes", Objects(NODE), false),
    ("netDevices", Objects(INTERFACE), false),
    ("mounts", Objects(MOUNT), false),
    ("hooks", Objects(HOOK), false),
    ("intelRdt", Object(RDT), false),
    ("additionalGids", Naturals, false),
];
const NODE: &[Field] = &[
    ("path", Text, true),
    ("hostPath", Text, false),
    ("type", Text, false),
    ("major", Number, false),
    ("minor", Number, false),
    // The schema forgets it, the specification has it.
    ("fileMode", Natural, false),
    ("permissions", Text, false),
    ("uid", Natural, false),
    ("gid", Natural, false),
];
const MOUNT: &[Field] = &[
    ("hostPath", Text, true),
    ("containerPath", Text, true),
    ("options", Texts, false),
    ("type", Text, false),
];
const HOOK: &[Field] = &[
    ("hookName", Text, true),
    ("path", Text, true),
    ("args", Texts, false),
    ("env", Texts, false),
    ("timeout", Natural, false),
];
const INTERFACE: &[Field] = &[("hostInterfaceName", Text, true), ("name", Text, true)];
const RDT: &[Field] = &[
    ("closID", Text, false),
    ("l3CacheSchema", Text, false),
    ("memBwSchema", Text, false),
    ("schemata", Texts, false),
    ("enableMonitoring", Bool, false),
];

/// Panics if `spec` does not fit the schema.
pub(crate) fn assert_fits(spec: &Value) {
    fits(spec, Object(SPEC), "");
}

fn fits(value: &Value, kind: Type, place: &str) {
    let all = |kind: Type| {
        let list = value.as_array().unwrap_or_else(|| panic!("{place} is no list: {value}"));
        list.iter().for_each(|item| fits(item, kind, place));
    };
    let natural = || value.as_u64().is_some_and(|number| u32::try_from(number).is_ok());
    match kind {
        Text => assert!(value.is_string(), "{place} is no text: {value}"),
        Number => assert!(value.is_i64() || value.is_u64(), "{place} is no number: {value}"),
        Natural => assert!(natural(), "{place} is no natural number: {value}"),
        Bool => assert!(value.is_boolean(), "{place} is neither true nor false: {value}"),
        Map => {
            let map = value.as_object().unwrap_or_else(|| panic!("{place} is no map: {value}"));
            assert!(map.values().all(Value::is_string), "{place} has more than texts: {value}");
        }
        Texts => all(Text),
        Naturals => all(Natural),
        Objects(fields) => all(Object(fields)),
        Object(fields) => {
            let object = value.as_object().unwrap_or_else(|| panic!("{place} is no object"));
            for (name, kind, required) in fields {
                match object.get(*name) {
                    Some(value) => fits(value, *kind, &format!("{place}/{name}")),
                    None => assert!(!required, "{place} has no {name}: {value}"),
                }
            }
            let known = |name: &String| fields.iter().any(|field| field.0 == name);
            assert!(object.keys().all(known), "{place} has more than it may: {value}");
        }
    }
}
