use proptest::prelude::{any as arbitrary, prop, prop_assert, proptest};

use super::*;

const SYSTEMD: Option<&str> = Some("kubepods-burstable.slice:cri-containerd:abc");
const CGROUPFS: Option<&str> = Some("/kubepods/burstable/abc");

fn any(name: &str, value: Vec<u8>) -> Any {
    Any { type_url: name.to_owned(), value, ..Any::default() }
}

/// `runtimeoptions.v1.Options` as containerd encodes it.
fn runtime(config_path: &str, config_body: &str) -> Any {
    let mut value = Vec::new();
    for (tag, text) in [(0x0a, "a.Type"), (0x12, config_path), (0x1a, config_body)] {
        if !text.is_empty() {
            value.push(tag);
            value.push(u8::try_from(text.len()).unwrap());
            value.extend_from_slice(text.as_bytes());
        }
    }
    any(RUNTIME, value)
}

/// What the inner shim gets.
fn sent(translation: &Translation) -> Options {
    let any = translation.inner.as_ref().expect("nothing is sent");
    assert_eq!(any.type_url, RUNC);
    Options::parse_from_bytes(&any.value).unwrap()
}

#[test]
fn without_options_the_cgroup_driver_is_told_by_the_path() {
    assert!(sent(&translate(None, SYSTEMD)).systemd_cgroup);
    assert!(sent(&translate(Some(&Any::default()), SYSTEMD)).systemd_cgroup);
    for path in [None, CGROUPFS, Some("/a:b:c"), Some("a:b"), Some("")] {
        assert_eq!(translate(None, path).inner, None, "{path:?}");
    }
}

#[test]
fn empty_options_of_1_6_become_runc_options() {
    assert!(sent(&translate(Some(&any(RUNTIME, Vec::new())), SYSTEMD)).systemd_cgroup);
    assert_eq!(sent(&translate(Some(&any(RUNTIME, Vec::new())), CGROUPFS)), Options::new());
}

#[test]
fn a_table_is_translated_whatever_its_quotes_and_case() {
    // As 1.7 writes it, and as 2.1 does.
    for body in [
        "BinaryName = \"/usr/sbin/runc\"\nIoUid = 7\nSystemdCgroup = false\n",
        "binaryname = '/usr/sbin/runc'\nIOUID = 7\nsystemdCgroup = false\n",
    ] {
        let translation = translate(Some(&runtime("", body)), SYSTEMD);
        let options = sent(&translation);
        assert_eq!((options.binary_name.as_str(), options.io_uid), ("/usr/sbin/runc", 7));
        assert!(!options.systemd_cgroup, "an explicit false stays");
        assert_eq!(translation.warnings, [] as [&str; 0]);
    }
    let prefixed = Any { type_url: format!("{PREFIX}{RUNTIME}"), ..runtime("", "Root = '/r'") };
    let options = sent(&translate(Some(&prefixed), SYSTEMD));
    assert_eq!(options.root, "/r");
    assert!(options.systemd_cgroup, "nothing said: the path tells");
}

#[test]
fn every_key_of_runc_is_known() {
    let body = "NoPivotRoot = true\nNoNewKeyring = true\nShimCgroup = '/s'\nIoGid = 8\n\
        CriuPath = '/p'\nCriuImagePath = '/i'\nCriuWorkPath = '/w'\n";
    let options = sent(&translate(Some(&runtime("", body)), CGROUPFS));
    assert!(options.no_pivot_root && options.no_new_keyring);
    assert_eq!((options.shim_cgroup.as_str(), options.io_gid), ("/s", 8));
    assert_eq!((options.criu_image_path.as_str(), options.criu_work_path.as_str()), ("/i", "/w"));
    // criu_path is field 8, of which the typed message knows nothing.
    assert!(options.write_to_bytes().unwrap().windows(4).any(|bytes| bytes == b"\x42\x02/p"));
}

#[test]
fn our_keys_are_kept_for_us_and_unknown_ones_reach_nobody() {
    let body = "SystemdCgroup = true\nhost-root = '/h\"x'\nLoadKmods = false\nNonsense = 1\n";
    let translation = translate(Some(&runtime("", body)), CGROUPFS);
    let ours = translation.source.table.clone().unwrap();
    let table: toml::Table = ours.parse().unwrap();
    assert_eq!(table["host-root"].as_str(), Some("/h\"x"));
    assert_eq!(table["LoadKmods"].as_bool(), Some(false));
    assert_eq!(table.len(), 2);
    assert_eq!(sent(&translation).write_to_bytes().unwrap(), [0x48, 1]);
    assert_eq!(translation.warnings.len(), 1);
    assert!(translation.warnings[0].contains("Nonsense"));
}

#[test]
fn a_file_is_one_of_runc_options_or_our_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    let name = path.to_str().unwrap();
    std::fs::write(&path, "SystemdCgroup = true\n").unwrap();
    let translation = translate(Some(&runtime(name, "")), CGROUPFS);
    assert!(sent(&translation).systemd_cgroup);
    assert_eq!(translation.source.path, None);

    let text = "disable-require = false\nBinaryName = 'crun'\n[nvidia-shim]\nhost-root = '/h'\n";
    std::fs::write(&path, text).unwrap();
    let translation = translate(Some(&runtime(name, "")), SYSTEMD);
    assert_eq!(translation.source.path.as_deref(), Some(path.as_path()));
    let options = sent(&translation);
    assert_eq!((options.binary_name.as_str(), options.systemd_cgroup), ("crun", true));
    assert_eq!(translation.warnings, [] as [&str; 0]);

    let translation = translate(Some(&runtime("/nonexistent.toml", "")), SYSTEMD);
    assert!(translation.broken.unwrap().to_string().contains("/nonexistent.toml"));
}

#[test]
fn broken_toml_is_told_with_its_line_and_the_rest_is_used() {
    let translation = translate(Some(&runtime("", "Root = '/r'\nBinaryName = \n")), SYSTEMD);
    assert!(sent(&translation).systemd_cgroup);
    let message = translation.broken.unwrap().to_string();
    assert!(message.starts_with("NVS-003: the options table, line 2: "), "{message}");

    let translation = translate(Some(&runtime("", "IoUid = -1\nRoot = '/r'\n")), SYSTEMD);
    assert_eq!(sent(&translation).root, "/r");
    assert!(translation.broken.unwrap().to_string().contains("IoUid"));

    let translation = translate(Some(&any(RUNTIME, vec![0xff; 3])), SYSTEMD);
    assert!(translation.broken.is_some());
    assert!(sent(&translation).systemd_cgroup);
}

#[test]
fn options_of_1_x_clients_with_user_namespaces_are_translated() {
    let value = vec![
        0x08, 1, // no_pivot_root
        0x10, 1, // open_tcp
        0x32, 3, b'n', b'e', b't', // empty_namespaces
        0x40, 1, // no_new_keyring
        0x50, 5, // io_uid
        0x58, 6, // io_gid
    ];
    let options = sent(&translate(Some(&any(LINUX_RUNC, value)), SYSTEMD));
    assert!(options.no_pivot_root && options.no_new_keyring && options.systemd_cgroup);
    assert_eq!((options.io_uid, options.io_gid), (5, 6));
}

#[test]
fn runc_options_and_unknown_types_pass() {
    let mut options = Options { root: "/r".to_owned(), ..Options::default() };
    let passed = any(RUNC, options.write_to_bytes().unwrap());
    assert_eq!(translate(Some(&passed), SYSTEMD).inner, None);
    assert_eq!(translate(Some(&passed), SYSTEMD).runc.root, "/r");
    assert_eq!(translate(Some(&any("of.the.future", vec![0xff])), SYSTEMD).inner, None);

    // What leads back to us is left out, the rest kept, that of a later version too.
    options.binary_name = "/usr/bin/nvidia-container-runtime".to_owned();
    options.special_fields.mut_unknown_fields().add_length_delimited(99, b"later".to_vec());
    let translation = translate(Some(&any(RUNC, options.write_to_bytes().unwrap())), SYSTEMD);
    options.binary_name.clear();
    assert_eq!(sent(&translation), options);
    assert_eq!(translation.warnings.len(), 1);
}

#[test]
fn the_cgroups_path_is_read_of_a_spec() {
    let spec = br#"{"linux":{"cgroupsPath":"a.slice:b:c","x":1},"y":[]}"#;
    assert_eq!(cgroups_path(spec).as_deref(), Some("a.slice:b:c"));
    assert_eq!(cgroups_path(b"{}"), None);
    assert_eq!(cgroups_path(b"{"), None);
}

proptest! {
    #[test]
    fn options_of_any_kind_are_translated(
        name in prop::sample::select(vec![RUNC, RUNTIME, LINUX_RUNC, "other", ""]),
        value in prop::collection::vec(arbitrary::<u8>(), 0..120),
        body in "([a-zA-Z\\[\\]=\"'{}., \n0-9-]{0,60}|(BinaryName|Root|IoUid|host-root|no-driver) ?= ?(1|'/x'|true|\\[)\n){0,3}",
        cgroups in prop::option::of("\\PC{0,12}"),
    ) {
        let with_body = [vec![3 << 3 | 2, u8::try_from(body.len()).unwrap()], body.clone().into_bytes()].concat();
        for value in [value, with_body] {
            let translation = translate(Some(&any(name, value)), cgroups.as_deref());
            prop_assert!(![RUNTIME, LINUX_RUNC].contains(&name) || translation.inner.is_some());
        }
    }

    #[test]
    fn a_spec_of_any_bytes_has_a_path_of_cgroups_or_none(bytes in prop::collection::vec(arbitrary::<u8>(), 0..60)) {
        let _ = cgroups_path(&bytes);
    }
}

#[test]
fn nested_options_are_an_error_not_the_end_of_the_stack() {
    for nested in
        ["a = ".to_owned() + &"[".repeat(1 << 20), "[a.".to_owned() + &"b.".repeat(1 << 18)]
    {
        let translated = std::thread::Builder::new()
            .stack_size(1 << 20)
            .spawn(move || table::of_text(&nested).broken.is_some())
            .unwrap();
        assert!(translated.join().unwrap());
    }
}
