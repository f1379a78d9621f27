use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::json;

use super::*;

struct Scene {
    dir: tempfile::TempDir,
    directories: Vec<PathBuf>,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["etc/cdi", "run/cdi", "var"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        symlink("/run", dir.path().join("var/run")).unwrap();
        let directories = ["/etc/cdi", "/var/run/cdi", "/run/cdi", "/none"].map(PathBuf::from);
        Self { dir, directories: directories.to_vec() }
    }

    fn host(&self) -> Host {
        Host::new(self.dir.path())
    }

    fn write(&self, path: &str, text: &str) -> &Self {
        fs::write(self.dir.path().join(path), text).unwrap();
        self
    }

    fn spec(&self, path: &str, kind: &str, devices: &[&str]) -> &Self {
        let devices: Vec<_> = devices
            .iter()
            .map(|name| json!({"name": name, "containerEdits": {"env": [format!("FROM={path}")]}}))
            .collect();
        let spec = json!({"cdiVersion": "0.6.0", "kind": kind, "devices": devices});
        self.write(path, &spec.to_string())
    }

    fn read(&self) -> Registry {
        Registry::read(&self.host(), &self.directories)
    }
}

fn from<'a>(registry: &'a Registry, name: &str) -> Option<&'a str> {
    let found = registry.find(&QualifiedName::parse(name).unwrap())?;
    assert_eq!(found.name().to_string(), name);
    found.device.edits.env[0].strip_prefix("FROM=")
}

fn problems(registry: &Registry) -> Vec<String> {
    let shown = |it: &FileProblem| format!("{} {}", it.path.display(), it.problem);
    registry.problems().iter().map(shown).collect()
}

#[test]
fn of_a_device_in_two_files_both_are_named_and_no_other() {
    let scene = Scene::new();
    scene.spec("etc/cdi/a.json", "a.b/c", &["x", "y"]).spec("etc/cdi/b.json", "a.b/c", &["x"]);
    scene.spec("etc/cdi/c.json", "a.b/c", &["z", "y"]).write("etc/cdi/bad.json", "{");
    let instead = |name| scene.read().instead_of(&QualifiedName::parse(name).unwrap());
    let told =
        "/etc/cdi/b.json describes x as /etc/cdi/a.json does, in directories of the same rank";
    assert_eq!(instead("a.b/c=x"), told);
    assert!(instead("a.b/c=y").contains("/etc/cdi/c.json describes y as /etc/cdi/a.json does"));
}

#[test]
fn a_later_directory_goes_before_an_earlier_one() {
    let scene = Scene::new();
    scene.spec("etc/cdi/z.json", "a.b/c", &["x", "y"]).spec("run/cdi/a.yaml", "a.b/c", &["x"]);
    let registry = scene.read();
    assert_eq!(from(&registry, "a.b/c=x"), Some("run/cdi/a.yaml"));
    assert_eq!(from(&registry, "a.b/c=y"), Some("etc/cdi/z.json"));
    assert_eq!(from(&registry, "a.b/c=z"), None);
    assert_eq!(registry.devices().count(), 2);
    // /var/run/cdi is /run/cdi.
    assert_eq!((registry.files().len(), problems(&registry).len()), (2, 0));
}

#[test]
fn a_device_of_two_files_of_one_directory_is_of_no_use() {
    let scene = Scene::new();
    scene.spec("etc/cdi/1.json", "a.b/c", &["x", "y"]).spec("etc/cdi/2.json", "a.b/c", &["x"]);
    let registry = scene.read();
    assert_eq!(from(&registry, "a.b/c=x"), None);
    assert_eq!(from(&registry, "a.b/c=y"), Some("etc/cdi/1.json"));
    assert_eq!(
        problems(&registry),
        [
            "/etc/cdi/1.json describes x as /etc/cdi/2.json does, in directories of the same rank",
            "/etc/cdi/2.json describes x as /etc/cdi/1.json does, in directories of the same rank",
        ]
    );
    let name = QualifiedName::parse("a.b/c=x").unwrap();
    let instead = registry.instead_of(&name);
    assert!(instead.starts_with("/etc/cdi/2.json describes x as /etc/cdi/1.json"), "{instead}");
    // Unless a directory that goes before both says what it is.
    scene.spec("run/cdi/3.json", "a.b/c", &["x"]);
    assert_eq!(from(&scene.read(), "a.b/c=x"), Some("run/cdi/3.json"));
}

#[test]
fn a_bad_file_hides_no_other() {
    let scene = Scene::new();
    scene
        .spec("etc/cdi/good.json", "a.b/c", &["x"])
        .spec("etc/cdi/other.yml", "a.b/c", &["x"])
        .write("etc/cdi/broken.yaml", "kind: a.b/c\n\tx")
        .write("etc/cdi/new.json", r#"{"cdiVersion": "2.0.0", "kind": "a.b/c", "devices": []}"#)
        .write("etc/cdi/large.json", &" ".repeat(10 << 20));
    fs::create_dir(scene.dir.path().join("etc/cdi/dir.json")).unwrap();
    symlink("nowhere", scene.dir.path().join("etc/cdi/link.json")).unwrap();
    let registry = scene.read();
    assert_eq!(from(&registry, "a.b/c=x"), Some("etc/cdi/good.json"));
    let problems = problems(&registry);
    let told = |path: &str, word: &str| {
        problems.iter().any(|problem| problem.starts_with(path) && problem.contains(word))
    };
    assert!(told("/etc/cdi/broken.yaml", "line 1"), "{problems:?}");
    assert!(told("/etc/cdi/new.json", "2.0.0"), "{problems:?}");
    assert!(told("/etc/cdi/large.json", "more than 1048576 bytes"), "{problems:?}");
    assert!(told("/etc/cdi/link.json", "No such file"), "{problems:?}");
    assert_eq!(problems.len(), 4);
    let instead = registry.instead_of(&QualifiedName::parse("d.e/f=x").unwrap());
    assert!(instead.starts_with("the CDI specs of this node have a.b/c; "), "{instead}");
    assert!(instead.contains("broken.yaml") && instead.ends_with("1 more files have faults"));
}

#[test]
fn only_the_kinds_asked_for_are_parsed() {
    let scene = Scene::new();
    scene
        .spec("etc/cdi/1.json", "a.b/c", &["x"])
        .write("etc/cdi/2.yaml", "cdiVersion: x\nkind: d.e/f\nunknown: 1\n")
        .write("etc/cdi/3.json", "{}");
    let read = |kinds: &[&str]| Registry::of_kinds(&scene.host(), &scene.directories, kinds);
    let registry = read(&["a.b/c"]);
    assert_eq!(from(&registry, "a.b/c=x"), Some("etc/cdi/1.json"));
    assert_eq!(problems(&registry).len(), 1);
    assert_eq!(problems(&read(&["d.e/f"])).len(), 2);
    let instead = registry.instead_of(&QualifiedName::parse("g.h/i=x").unwrap());
    assert!(instead.starts_with("the CDI specs of this node have a.b/c, d.e/f; "), "{instead}");
}

#[test]
fn only_files_that_may_describe_a_device_are_parsed() {
    let scene = Scene::new();
    scene
        .spec("etc/cdi/1.json", "a.b/c", &["x", "y"])
        .spec("etc/cdi/2.json", "a.b/c", &["z"])
        .spec("etc/cdi/3.json", "d.e/f", &["x"])
        .write("etc/cdi/4.yaml", "kind: a.b/c\ncdiVersion: 0.6.0\ndevices:\n- name: \"\\x78\"\n  containerEdits: {env: [A=1]}\n")
        .write("etc/cdi/5.yaml", "kind: a.b/c\nbroken");
    let read = |name: &str| {
        let names = [QualifiedName::parse(name).unwrap()];
        Registry::of_devices(&scene.host(), &scene.directories, &names)
    };
    // In conflict with the one that is written in another way.
    assert_eq!(from(&read("a.b/c=x"), "a.b/c=x"), None);
    assert_eq!(read("a.b/c=x").files().len(), 2);
    assert_eq!(from(&read("a.b/c=z"), "a.b/c=z"), Some("etc/cdi/2.json"));
    assert_eq!(read("a.b/c=z").problems(), []);
    assert_eq!(from(&read("d.e/f=x"), "d.e/f=x"), Some("etc/cdi/3.json"));
    let close = "{\"cdiVersion\":0.6.0,\"kind\":g.h/i,\"devices\":[{\"name\":q,\"containerEdits\":{\"env\":[FROM=4]}}]}";
    scene.write("etc/cdi/4.yaml", close);
    assert_eq!(from(&read("g.h/i=q"), "g.h/i=q"), Some("4"));
}

#[test]
fn what_others_can_write_is_not_believed() {
    let scene = Scene::new();
    let mode = |path: &str, mode| {
        fs::set_permissions(scene.dir.path().join(path), Permissions::from_mode(mode)).unwrap();
    };
    scene.spec("etc/cdi/1.json", "a.b/c", &["x"]).spec("run/cdi/2.json", "a.b/c", &["y"]);
    mode("etc/cdi/1.json", 0o666);
    mode("run/cdi", 0o777);
    let registry = scene.read();
    assert_eq!(registry.devices().count(), 0);
    let problems = problems(&registry);
    assert!(problems[0].contains("/etc/cdi/1.json") && problems[0].contains("writable by others"));
    assert!(problems[1].contains("/run/cdi") && problems[1].contains("writable by others"));
    // A link leads to where the file is.
    mode("run/cdi", 0o755);
    fs::create_dir(scene.dir.path().join("home")).unwrap();
    scene.spec("home/3.json", "a.b/c", &["z"]);
    symlink("/home/3.json", scene.dir.path().join("run/cdi/3.json")).unwrap();
    assert_eq!(from(&scene.read(), "a.b/c=z"), Some("home/3.json"));
    mode("home", 0o777);
    assert_eq!(from(&scene.read(), "a.b/c=z"), None);
    assert!(!scene.read().files().iter().any(|file| file.path == Path::new("/run/cdi/3.json")));
}
