//! Words of strangers, changed at random: CDI specs, names, annotations, and the OCI specs that are
//! edited by them. As tests they run for a second each; `cargo bolero test -p nvidia-oci --test fuzz NAME`
//! lets a fuzzer run for as long as one likes.

use std::fs;

use bolero::check;
use nvidia_oci::cdi::{self, QualifiedName};
use nvidia_oci::{Config, ConfigSource, Handler, Host, Image, Outcome, Spec, plan, request};

const JSON: &str = r#"{"cdiVersion":"0.7.0","kind":"vendor.com/net","annotations":{"a.b/c":"d"},
"devices":[{"name":"0","containerEdits":{"env":["A=1"],"deviceNodes":[{"path":"/dev/x","type":"c",
"major":240,"minor":1,"permissions":"rw"}],"hooks":[{"hookName":"startContainer","path":"/h"}]}}],
"containerEdits":{"mounts":[{"hostPath":"/a","containerPath":"/b","options":["ro","bind"]}],
"additionalGids":[5]}}"#;
const YAML: &str = "---\ncdiVersion: 0.5.0\nkind: vendor.com/net\ndevices:\n- name: 0\n  \
containerEdits: &e\n    env: [\"A=1\"]\n    deviceNodes:\n    - path: /dev/x\n      type: c\n      \
major: 0xf0\n      fileMode: 0666\n- name: b\n  containerEdits: *e\n";
const BUNDLE: &str = r#"{"ociVersion":"1.1.0","process":{"env":["A=2","NVIDIA_VISIBLE_DEVICES=vendor.com/net=0"],
"user":{"uid":1,"gid":2,"additionalGids":[5]}},"mounts":[{"destination":"/b","source":"/c"}],
"linux":{"devices":[{"path":"/dev/x","type":"c","major":1,"minor":3}],
"resources":{"devices":[{"allow":false,"access":"rwm"}]}},"hooks":{},
"annotations":{"cdi.k8s.io/a":"vendor.com/net=0"}}"#;

/// Characters that take the place of others; few, so that much of what is behind them is reached.
type Changes = Vec<(u16, u8)>;

fn changed(text: &str, changes: &Changes) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for (at, byte) in changes.iter().take(2) {
        let at = usize::from(*at) % bytes.len();
        bytes[at] = b' ' + byte % 95;
    }
    bytes
}

#[test]
fn bytes_as_a_spec() {
    check!().with_type::<Vec<u8>>().for_each(|bytes| drop(cdi::parse(bytes)));
}

#[test]
fn a_spec_that_is_read_is_read_again_as_it_was() {
    check!().with_type::<(bool, Changes)>().for_each(|(yaml, changes)| {
        if let Ok(spec) = cdi::parse(&changed(if *yaml { YAML } else { JSON }, changes)) {
            let written = serde_json::to_vec(&spec).unwrap();
            assert_eq!(cdi::parse(&written).unwrap(), spec);
        }
    });
}

#[test]
fn a_name_that_is_one_is_shown_as_it_was_read() {
    check!().with_type::<(String, Changes)>().for_each(|(text, changes)| {
        let changed = changed("vendor.com/class=device:0", changes);
        for text in [text.as_str(), &String::from_utf8_lossy(&changed)] {
            if let Ok(name) = QualifiedName::parse(text) {
                assert_eq!(name.to_string(), text);
            }
        }
    });
}

#[test]
fn annotations_and_variables() {
    check!().with_type::<Changes>().for_each(|changes| {
        let _ = request::asks(&changed(BUNDLE, changes), &ConfigSource::default());
    });
}

#[test]
fn edits_applied_twice_are_applied_once() {
    let dir = tempfile::tempdir().unwrap();
    let specs = dir.path().join("etc/cdi");
    fs::create_dir_all(&specs).unwrap();
    let none = Changes::new();
    check!().with_type::<(bool, bool, Changes)>().for_each(|(yaml, in_file, changes)| {
        let (of_file, of_bundle) = if *in_file { (changes, &none) } else { (&none, changes) };
        let text = changed(if *yaml { YAML } else { JSON }, of_file);
        fs::write(specs.join("vendor.yaml"), text).unwrap();
        let Ok(value) = serde_json::from_slice(&changed(BUNDLE, of_bundle)) else { return };
        let spec = Spec::new(value);
        let host = Host::new(dir.path());
        let config = Config::default();
        let planned = plan(&host, &config, Handler::NvidiaCdi, &Image::default(), &spec);
        let Ok(Outcome::Edited(plan)) = planned else { return };
        let mut once = spec.clone();
        if plan.edits.apply(&mut once).is_ok() {
            let mut twice = once.clone();
            plan.edits.apply(&mut twice).unwrap();
            assert_eq!(twice.value(), once.value());
        }
    });
}
