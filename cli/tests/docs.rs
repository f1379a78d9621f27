//! README.md and examples/ stay true: every snippet is parsed or run, every list compared.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nvidia_oci::{Config, ConfigSource};
use saphyr::{LoadableYamlNode, Yaml};

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(project(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The fenced blocks of a Markdown text in one language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(fence) = line.strip_prefix("```") {
            let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            if fence == language {
                found.push(block.join("\n"));
            }
        }
    }
    found
}

/// The cells of the table whose header begins so.
fn table<'a>(text: &'a str, header: &str) -> Vec<Vec<&'a str>> {
    let rows = text.lines().skip_while(|line| !line.starts_with(header)).skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

/// Runtime types by handler, of a containerd configuration.
fn handlers(text: &str) -> Vec<(String, String)> {
    let config: toml::Table = text.parse().unwrap();
    let plugin = match config["version"].as_integer() {
        Some(2) => "io.containerd.grpc.v1.cri",
        Some(3) => "io.containerd.cri.v1.runtime",
        other => panic!("config version {other:?}"),
    };
    let runtimes = config["plugins"][plugin]["containerd"]["runtimes"].as_table().unwrap();
    let kind = |runtime: &toml::Value| runtime["runtime_type"].as_str().unwrap().to_owned();
    runtimes.iter().map(|(name, runtime)| (name.clone(), kind(runtime))).collect()
}

fn yaml(text: &str) -> Vec<Yaml<'_>> {
    Yaml::load_from_str(text).unwrap()
}

#[test]
fn every_language_of_a_snippet_is_looked_at() {
    let readme = read("README.md");
    let fences = readme.lines().filter_map(|line| line.strip_prefix("```"));
    let languages: BTreeSet<&str> = fences.filter(|fence| !fence.is_empty()).collect();
    assert_eq!(languages, BTreeSet::from(["console", "toml", "yaml"]));
}

#[test]
fn commands_of_the_readme_work() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(
        project("examples").canonicalize().unwrap(),
        dir.path().join("examples"),
    )
    .unwrap();
    let makefile = read("Makefile");
    for line in blocks(&read("README.md"), "console").iter().flat_map(|block| block.lines()) {
        let words: Vec<&str> = line.strip_prefix("# ").unwrap().split(' ').collect();
        match words[0] {
            "make" => {
                let rule = format!("\n{}:", words[1]);
                assert!(makefile.contains(&rule), "{line}");
            }
            "nvidia-shim" => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_nvidia-shim"));
                let output = command.args(&words[1..]).current_dir(&dir).output().unwrap();
                assert!(output.status.success(), "{line}: {output:?}");
            }
            "install" => assert!(makefile.contains("/dist/bin\n"), "{line}"),
            _ => panic!("how is this tried? {line}"),
        }
    }
}

#[test]
fn targets_and_links_of_the_readme_exist() {
    let readme = read("README.md");
    let makefile = read("Makefile");
    for target in readme.split("`make ").skip(1).filter_map(|rest| rest.split('`').next()) {
        assert!(makefile.contains(&format!("\n{target}:")), "make {target}");
    }
    for link in readme.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(project(link).exists(), "{link}");
    }
}

#[test]
fn codes_of_the_readme_are_those_of_the_program() {
    let source = read("oci/src/error.rs").replace("\\\n", "");
    let literals: Vec<&str> = source.split('"').skip(1).step_by(2).collect();
    let codes: Vec<(&str, String)> = literals
        .windows(2)
        .filter(|pair| pair[0].len() == "NVS-000".len() && pair[0].starts_with("NVS-"))
        .map(|pair| (pair[0], pair[1].split_whitespace().collect::<Vec<_>>().join(" ")))
        .collect();
    let readme = read("README.md");
    let rows = table(&readme, "| code |");
    let documented: Vec<(&str, String)> =
        rows.iter().map(|row| (row[0], row[2].replace('`', ""))).collect();
    assert!(!codes.is_empty());
    assert_eq!(documented, codes);
}

#[test]
fn containerd_examples_name_our_shims() {
    let readme = read("README.md");
    let ours: Vec<String> = table(&readme, "| program |")
        .iter()
        .filter(|row| row[1].contains("io.containerd"))
        .map(|row| row[1].trim_matches('`').to_owned())
        .collect();
    assert_eq!(ours, ["io.containerd.nvidia.v2", "io.containerd.nvidia-cdi.v2"]);

    let mut texts = blocks(&readme, "toml");
    texts.extend(
        ["v2", "v3"].map(|version| read(&format!("examples/containerd/nvidia-{version}.toml"))),
    );
    assert_eq!(texts.len(), 3);
    for text in texts {
        for (name, kind) in handlers(&text) {
            let expected = match name.as_str() {
                "runc" => "io.containerd.runc.v2".to_owned(),
                name => format!("io.containerd.{name}.v2"),
            };
            assert_eq!(kind, expected);
            assert!(name == "runc" || ours.contains(&kind), "{kind}");
        }
    }
}

#[test]
fn kubernetes_examples_fit_the_containerd_ones() {
    let handlers: Vec<String> =
        handlers(&read("examples/containerd/nvidia-v3.toml")).into_iter().map(|h| h.0).collect();
    let mut names = Vec::new();
    let mut texts = blocks(&read("README.md"), "yaml");
    texts.push(read("examples/kubernetes/runtimeclass.yaml"));
    for text in &texts {
        for class in yaml(text) {
            assert_eq!(class["kind"].as_str(), Some("RuntimeClass"));
            assert_eq!(class["apiVersion"].as_str(), Some("node.k8s.io/v1"));
            assert!(handlers.iter().any(|name| Some(name.as_str()) == class["handler"].as_str()));
            names.push(class["metadata"]["name"].as_str().unwrap().to_owned());
        }
    }
    let text = read("examples/kubernetes/pod.yaml");
    let pod = &yaml(&text)[0];
    let class = pod["spec"]["runtimeClassName"].as_str().unwrap();
    assert!(names.iter().any(|name| name == class), "{class}");
    let variable = &pod["spec"]["containers"][0]["env"][0];
    assert_eq!(variable["name"].as_str(), Some("NVIDIA_VISIBLE_DEVICES"));
    assert_eq!(variable["value"].as_str(), Some("all"));
}

/// What is behind the program in the command line of an example.
fn assert_generates(words: &[String]) {
    let [cdi, generate, flags @ ..] = words else { panic!("{words:?}") };
    assert_eq!((cdi.as_str(), generate.as_str()), ("cdi", "generate"));
    nvidia_shim::cdi::parse_generate(flags).unwrap();
    assert!(flags.iter().any(|flag| flag == "--watch"));
}

/// The lines of a unit of systemd that say something, and its sections.
fn unit(path: &str) -> (Vec<String>, Vec<String>) {
    let says_something = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let lines: Vec<_> = read(path).lines().filter(says_something).map(str::to_owned).collect();
    let sections = lines.iter().filter(|line| line.starts_with('[')).cloned().collect();
    (lines, sections)
}

#[test]
fn the_path_unit_starts_the_service_beside_it() {
    let (lines, sections) = unit("examples/cdi/nvidia-cdi.path");
    assert_eq!(sections, ["[Unit]", "[Path]", "[Install]"]);
    assert!(lines.iter().any(|line| line == "PathExists=/dev/nvidiactl"));
    let started = lines.iter().find_map(|line| line.strip_prefix("Unit=")).unwrap();
    assert!(!unit(&format!("examples/cdi/{started}")).0.is_empty());
}

#[test]
fn cdi_examples_call_the_program_rightly() {
    let (lines, sections) = unit("examples/cdi/nvidia-cdi.service");
    assert_eq!(sections, ["[Unit]", "[Service]", "[Install]"]);
    let is_known = |line: &&String| {
        line.starts_with('[') || line.starts_with("    CAP_") || line.contains('=')
    };
    assert_eq!(lines.iter().filter(is_known).count(), lines.len());
    let command = lines.iter().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
    assert_eq!(words[0], "/usr/local/bin/nvidia-shim");
    assert_generates(&words[1..]);

    let text = read("examples/cdi/talos-service.yaml");
    let service = &yaml(&text)[0];
    assert_eq!(service["name"].as_str(), Some("nvidia-cdi"));
    let container = &service["container"];
    assert_eq!(container["entrypoint"].as_str(), Some("/nvidia-shim"));
    let words = container["args"].as_vec().unwrap().iter();
    let words: Vec<String> = words.map(|word| word.as_str().unwrap().to_owned()).collect();
    assert_generates(&words);
    let places: Vec<&str> = container["mounts"]
        .as_vec()
        .unwrap()
        .iter()
        .map(|mount| mount["destination"].as_str().unwrap())
        .collect();
    assert_eq!(places, ["/host", "/run"]);
}

/// Also with every setting that stands there as a comment.
#[test]
fn the_example_of_settings_is_understood() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    let example = read("examples/nvidia-shim.toml");
    let whole: Vec<String> = example
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(setting) if setting.contains(" = ") => setting.to_owned(),
            _ => line.to_owned(),
        })
        .collect();
    for (text, is_default) in [(example.clone(), true), (whole.join("\n"), false)] {
        fs::write(&path, text).unwrap();
        let source = ConfigSource { path: Some(path.clone()), ..ConfigSource::default() };
        let (config, warnings) = Config::load(&source).unwrap();
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(config == Config::default(), is_default, "{config:?}");
    }
}

#[test]
fn every_direct_dependency_has_its_line() {
    let text = read("docs/dependencies.md");
    let listed: BTreeSet<&str> = ["| crate | in |", "| crate | why |"]
        .into_iter()
        .flat_map(|header| table(&text, header))
        .flat_map(|row| row[0].split(", "))
        .collect();
    let mut used = BTreeSet::new();
    for member in ["oci", "hook", "shim", "cli", "tests"] {
        let manifest: toml::Table = read(&format!("{member}/Cargo.toml")).parse().unwrap();
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let names = manifest.get(kind).and_then(toml::Value::as_table).into_iter().flatten();
            used.extend(names.map(|(name, _)| name.clone()));
        }
    }
    used.retain(|name| !name.starts_with("nvidia-") && name != "containerd-shim-nvidia");
    assert_eq!(used.iter().map(String::as_str).collect::<BTreeSet<_>>(), listed);
}
