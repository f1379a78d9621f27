//! How settings are read: files and the options table are TOML, and an error names the line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use toml::{Spanned, Value};

use super::{Config, ConfigSource, KEYS, Key};
use crate::{Code, Error, Result};

/// Far more than any real file has.
const LIMIT: u64 = 1 << 20;

type Table = BTreeMap<Spanned<String>, Spanned<Value>>;

/// What is read of a `config.toml`; keys that are not here mean nothing.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct ConfigFile {
    nvidia_shim: Table,
    nvidia_container_cli: Cli,
    nvidia_container_runtime: Runtime,
    supported_driver_capabilities: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Runtime {
    mode: Option<Spanned<String>>,
    runtimes: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Cli {
    root: Option<Spanned<String>>,
    load_kmods: Option<bool>,
}

/// A TOML text, what to call it, and how far it is trusted.
struct Text<'a> {
    toml: &'a str,
    place: String,
    code: Code,
    may_set_host_root: bool,
}

pub(super) fn load(source: &ConfigSource) -> Result<(Config, Vec<String>)> {
    let mut config = Config::default();
    let mut warnings = Vec::new();
    if let Some(path) = source.path.as_deref().or(source.default_path.as_deref())
        && let Some(toml) = read(path)?
    {
        let text = Text {
            toml: &toml,
            place: path.display().to_string(),
            code: Code::ConfigUnreadable,
            may_set_host_root: source.path.is_some(),
        };
        text.apply_file(&mut config, &mut warnings)?;
    }
    if let Some(toml) = &source.table {
        let text = Text {
            toml,
            place: "options table".to_owned(),
            code: Code::OptionsUnreadable,
            may_set_host_root: true,
        };
        let table = text.parse()?;
        text.apply_table(&table, &mut config, &mut warnings)?;
    }
    for (key, value) in &source.set {
        config.set(key, value).map_err(|what| {
            Error::new(Code::ConfigUnreadable, format!("--set {key}={value}: {what}"))
        })?;
    }
    Ok((config, warnings))
}

/// `None` if there is no such file.
fn read(path: &Path) -> Result<Option<String>> {
    let failed = |error| {
        Error::caused(Code::ConfigUnreadable, format!("{} cannot be read", path.display()), error)
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut text = String::new();
    file.take(LIMIT + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > LIMIT {
        return Err(failed(io::Error::other(format!("larger than {LIMIT} bytes"))));
    }
    Ok(Some(text))
}

impl Text<'_> {
    fn apply_file(&self, config: &mut Config, warnings: &mut Vec<String>) -> Result<()> {
        let file: ConfigFile = self.parse()?;
        // NVIDIA writes `root = ""` where it means that none is set.
        if let Some(root) = file.nvidia_container_cli.root.filter(|root| !root.as_ref().is_empty())
        {
            self.assign(config, Key::DriverRoot, root.as_ref(), root.span())?;
        }
        if let Some(load) = file.nvidia_container_cli.load_kmods {
            config.load_kmods = load;
        }
        if let Some(runtimes) = file.nvidia_container_runtime.runtimes {
            config.runtimes = runtimes;
        }
        for (key, value) in [
            (Key::SupportedCapabilities, file.supported_driver_capabilities),
            (Key::Mode, file.nvidia_container_runtime.mode),
        ] {
            if let Some(value) = value {
                self.assign(config, key, value.as_ref(), value.span())?;
            }
        }
        self.apply_table(&file.nvidia_shim, config, warnings)
    }

    fn apply_table(
        &self,
        table: &Table,
        config: &mut Config,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        for (name, value) in table {
            let warn = |what: String| format!("{}: {what}", self.at(&name.span()));
            let Some(key) = Key::ours(name.as_ref()) else {
                let what =
                    format!("unknown key {:?}; known are {}", name.as_ref(), KEYS.join(", "));
                warnings.push(warn(what));
                continue;
            };
            if key == Key::HostRoot && !self.may_set_host_root {
                let what = "host-root is ignored: only a file that the ConfigPath option names, \
                            or the options table, may set it";
                warnings.push(warn(what.to_owned()));
                continue;
            }
            match value.as_ref() {
                Value::String(text) => self.assign(config, key, text, value.span())?,
                Value::Boolean(yes) => {
                    self.assign(config, key, &yes.to_string(), value.span())?;
                }
                other => {
                    let what = format!("{} is a {}", name.as_ref(), other.type_str());
                    return Err(self.error(&value.span(), &what));
                }
            }
        }
        Ok(())
    }

    fn assign(&self, config: &mut Config, key: Key, value: &str, at: Range<usize>) -> Result<()> {
        config.assign(key, value).map_err(|what| self.error(&at, &what))
    }

    fn parse<T: for<'de> Deserialize<'de>>(&self) -> Result<T> {
        toml::from_str(self.toml)
            .map_err(|error| self.error(&error.span().unwrap_or(0..0), error.message()))
    }

    fn error(&self, at: &Range<usize>, what: &str) -> Error {
        Error::new(self.code, format!("{}: {what}", self.at(at)))
    }

    /// `file, line 3`
    fn at(&self, span: &Range<usize>) -> String {
        let before = self.toml.get(..span.start).unwrap_or_default();
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        format!("{}, line {line}", self.place)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::NoDriver;

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
            ("[nvidia-shim]\ndriver-root = 3\n", "line 2", "driver-root is a integer"),
            ("[nvidia-container-cli]\n\nroot = 'a'\n", "line 3", "absolute"),
            ("nvidia-shim = 1\n", "line 1", ""),
        ] {
            let error = load_file(toml).unwrap_err();
            assert_eq!(error.code(), Code::ConfigUnreadable);
            let text = error.to_string();
            assert!(text.contains(line) && text.contains(word), "{text}");
        }
    }

    #[test]
    fn an_unknown_key_of_ours_is_warned_of() {
        let (_, warnings) = load_file("[nvidia-shim]\nhost-rot = '/x'\n").unwrap();
        assert!(warnings.iter().any(|line| line.contains("line 2: unknown key \"host-rot\"")));
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
}
