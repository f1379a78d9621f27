//! Settings from files, tables and the command line.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::{Config, NoDriver};

fn load(source: &ConfigSource) -> Result<(Config, Vec<String>)> {
    let (settings, warnings) = super::load(source)?;
    Ok((Config::of(&settings), warnings))
}

fn load_file(toml: &str) -> Result<(Config, Vec<String>)> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), toml).unwrap();
    load(&ConfigSource { path: Some(file.path().to_path_buf()), ..Default::default() })
}

#[test]
fn no_file_is_all_defaults() {
    let missing = Some(PathBuf::from("/nonexistent/config.toml"));
    let source = ConfigSource { default_path: missing, ..Default::default() };
    assert_eq!(load(&source).unwrap(), (Config::default(), Vec::new()));
}

#[test]
fn our_table_is_laid_over_nvidias_keys() {
    let toml = "disable-require = false\n[nvidia-container-cli]\nroot = \"/a\"\nload-kmods = false\n\
                [nvidia-shim]\nNo-Driver = \"start\"\n";
    let (config, warnings) = load_file(toml).unwrap();
    assert_eq!(config.driver_root.as_deref(), Some(Path::new("/a")));
    assert_eq!((config.no_driver, config.load_kmods), (NoDriver::Start, false));
    assert!(warnings.is_empty(), "{warnings:?}");
    let (config, _) = load_file(&format!("{toml}driver-root = '/b'\n")).unwrap();
    assert_eq!(config.driver_root.as_deref(), Some(Path::new("/b")));
    assert_eq!(load_file("[nvidia-container-cli]\nroot = ''").unwrap().0, Config::default());
}

#[test]
fn an_error_names_file_and_line() {
    for (toml, line, word) in [
        ("a = 1\n[x\n", "line 2", ""),
        ("\n\n[nvidia-shim]\nno-driver = 'maybe'\n", "line 4", "\"refuse\" or \"start\""),
        ("[nvidia-shim]\ndriver-root = 3\n", "line 2", "driver-root: is of type integer"),
        ("[nvidia-container-cli]\n\nroot = 'a'\n", "line 3", "absolute"),
        ("a = [\n", "line", ""),
        ("[nvidia-container-runtime]\nmode = 'bogus'\n", "line 2", "\"jit-cdi\""),
        ("\nswarm-resource = ['A']\n", "line 2", "a string belongs"),
        ("disable-require = 'no'\n", "line 1", "a boolean belongs"),
        ("[nvidia-container-runtime]\nruntimes = ['a', 1]\n", "line 2", "than strings"),
        ("[nvidia-container-cli]\nldconfig = '/sbin/ldconfig'\n", "line 2", "start with @"),
    ] {
        let error = load_file(toml).unwrap_err();
        assert_eq!(error.code(), Code::ConfigUnreadable);
        let text = error.to_string();
        assert!(text.contains(line) && text.contains(word), "{text}");
    }
}

#[test]
fn an_unknown_key_is_warned_of_with_the_nearest_known_one() {
    let toml = "swarm-resources = 'A'\n[nvidia-shim]\nhost-rot = '/x'\n\
                [nvidia-container-runtime.modes.cdi]\ndefault-king = 'a/b'\n[x.y]\nz = 1\n";
    let (config, warnings) = load_file(toml).unwrap();
    assert_eq!(config, Config::default());
    assert_eq!(warnings.len(), 4, "{warnings:?}");
    for (line, name, nearest) in [
        (1, "swarm-resources", "swarm-resource"),
        (3, "nvidia-shim.host-rot", "nvidia-shim.host-root"),
        (
            5,
            "nvidia-container-runtime.modes.cdi.default-king",
            "nvidia-container-runtime.modes.cdi.default-kind",
        ),
    ] {
        let warning = format!(
            "line {line}: unknown key \"{name}\" is ignored; the nearest known one is {nearest}"
        );
        assert!(warnings.iter().any(|line| line.ends_with(&warning)), "{warning}: {warnings:?}");
    }
}

#[test]
fn options_of_runc_may_stand_in_a_file_that_an_option_names() {
    let toml = "BinaryName = '/usr/bin/runc'\nSystemdCgroup = true\n[nvidia-shim]\nX = 1\n";
    assert_eq!(load_file(toml).unwrap().1.len(), 1);
}

#[test]
fn a_program_of_the_image_is_a_loader_only_where_allowed() {
    let allowed = "[features]\nallow-ldconfig-from-container = true\n";
    load_file(&format!("{allowed}[nvidia-container-cli]\nldconfig = '/sbin/ldconfig'\n")).unwrap();
    load_file("[nvidia-container-cli]\nldconfig = '@/sbin/ldconfig.real'\n").unwrap();
}

#[test]
fn each_key_tells_where_its_value_came_from() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "\nswarm-resource = 'A,B'\n[nvidia-shim]\nPolicy = 'strict'\n").unwrap();
    let source = ConfigSource {
        path: Some(file.path().to_path_buf()),
        table: Some("\nno-driver = 'start'".to_owned()),
        set: vec![("mode".to_owned(), "cdi".to_owned())],
        ..Default::default()
    };
    assert!(
        super::load(&source).unwrap_err().to_string().contains("nvidia-container-runtime.mode")
    );
    let set = vec![("nvidia-container-runtime.mode".to_owned(), "cdi".to_owned())];
    let (settings, _) = super::load(&ConfigSource { set, ..source }).unwrap();
    let all: Vec<_> = settings.all().collect();
    assert_eq!(all.len(), super::super::KEYS.len());
    let show = |name: &str| {
        let setting = all.iter().find(|setting| setting.name == name).unwrap();
        let value = setting.value.as_ref().map(ToString::to_string);
        (value.unwrap_or_default(), setting.origin.to_string())
    };
    let text = |text: &str| text.to_owned();
    let place = |line| format!("{}, line {line}", file.path().display());
    assert_eq!(show("swarm-resource"), (text("\"A,B\""), place(2)));
    assert_eq!(show("nvidia-shim.policy"), (text("\"strict\""), place(4)));
    assert_eq!(show("nvidia-shim.no-driver"), (text("\"start\""), text("options table")));
    assert_eq!(show("nvidia-container-runtime.mode"), (text("\"cdi\""), text("--set")));
    assert_eq!(show("nvidia-container-cli.load-kmods"), (text("true"), text("default")));
    assert_eq!(show("nvidia-shim.dev-root"), (String::new(), text("default")));
}

#[test]
fn the_host_root_is_set_by_trusted_sources_only() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "[nvidia-shim]\nhost-root = '/x'\n").unwrap();
    let default_path = Some(file.path().to_path_buf());
    let source = ConfigSource { default_path: default_path.clone(), ..Default::default() };
    let (config, warnings) = load(&source).unwrap();
    assert_eq!(config.host_root, Path::new("/"));
    assert!(warnings.iter().any(|line| line.contains("host-root is ignored")));
    let source = ConfigSource { path: default_path, ..Default::default() };
    assert_eq!(load(&source).unwrap().0.host_root, Path::new("/x"));
}

#[test]
fn later_sources_win() {
    let source = ConfigSource {
        table: Some("HostRoot = '/t'\nLoad-Kmods = false\n".to_owned()),
        set: vec![("load-kmods".to_owned(), "true".to_owned())],
        ..Default::default()
    };
    let (config, _) = load(&source).unwrap();
    assert_eq!((config.host_root.as_path(), config.load_kmods), (Path::new("/t"), true));
    let source = ConfigSource { table: Some("no-driver = 1.5".to_owned()), ..source };
    assert_eq!(load(&source).unwrap_err().code(), Code::OptionsUnreadable);
}

#[test]
fn an_error_in_the_options_names_the_key_and_the_file_that_they_are_in() {
    let table = Some("no-driver = 'perhaps'\n".to_owned());
    let source = ConfigSource { table, ..Default::default() };
    let told = load(&source).unwrap_err().to_string();
    assert!(told.starts_with("NVS-003: options table: nvidia-shim.no-driver: "), "{told}");
    let source = ConfigSource { table_file: Some("/etc/o.toml".into()), ..source };
    let told = load(&source).unwrap_err().to_string();
    assert!(told.starts_with("NVS-002: /etc/o.toml: nvidia-shim.no-driver: "), "{told}");
}
