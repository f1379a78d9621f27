//! How settings are read: files and the options table are TOML, and an error names the line.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::key::{Key, LOG_LEVEL, OURS};
use super::value::Value;
use super::{ConfigSource, LogLevel, Origin, Settings};
use crate::{Code, Error, Result};

/// Far more than any real file has.
const LIMIT: u64 = 1 << 20;
/// What only a source that is trusted as root may set.
const HOST_ROOT: &str = "nvidia-shim.host-root";
const LDCONFIG: &str = "nvidia-container-cli.ldconfig";
const ALLOW_LDCONFIG: &str = "features.allow-ldconfig-from-container";

/// A TOML text, what to call it, and how far it is trusted.
struct Text<'a> {
    toml: &'a str,
    place: String,
    /// Whether it is as a person wrote it, so that its lines can be told.
    has_lines: bool,
    code: Code,
    may_set_host_root: bool,
    warnings: &'a mut Vec<String>,
}

pub(super) fn load(source: &ConfigSource) -> Result<(Settings, Vec<String>)> {
    let mut settings = Settings::default();
    let mut warnings = Vec::new();
    if let Some(path) = source.file()
        && let Some(toml) = read(path)?
    {
        let mut text = Text {
            toml: &toml,
            place: path.display().to_string(),
            has_lines: true,
            code: Code::ConfigUnreadable,
            may_set_host_root: source.path.is_some(),
            warnings: &mut warnings,
        };
        let table = text.parse()?;
        text.take_file(table.get_ref(), "", &mut settings)?;
    }
    if let Some(toml) = &source.table {
        let (place, code) = match &source.table_file {
            Some(file) => (file.display().to_string(), Code::ConfigUnreadable),
            None => ("options table".to_owned(), Code::OptionsUnreadable),
        };
        let mut text = Text {
            toml,
            place,
            has_lines: false,
            code,
            may_set_host_root: true,
            warnings: &mut warnings,
        };
        let table = text.parse()?;
        text.take_table(table.get_ref(), &mut settings)?;
    }
    for (name, typed) in &source.set {
        let (key, value) = super::typed(name, typed).map_err(|what| {
            Error::new(Code::ConfigUnreadable, format!("--set {name}={typed}: {what}"))
        })?;
        settings.set(key, value, Origin::CommandLine);
    }
    check_ldconfig(&settings)?;
    warnings.extend(super::nvcdi::warnings(&settings));
    warnings.extend(check_log_level(&settings));
    Ok((settings, warnings))
}

/// NVIDIA's rule: the host's program (`@`), unless a program of the image is allowed.
fn check_ldconfig(settings: &Settings) -> Result<()> {
    let allowed = settings.value(ALLOW_LDCONFIG).is_some_and(Value::is_true);
    let Some(value) = settings.value(LDCONFIG) else { return Ok(()) };
    if allowed || value.text().starts_with('@') {
        return Ok(());
    }
    let what = format!(
        "{}: {LDCONFIG} is {value}, which is no program of the host: it does not start with @",
        settings.origin(LDCONFIG),
    );
    Err(Error::new(Code::ConfigUnreadable, what))
}

/// NVIDIA takes what it does not know for the default.
fn check_log_level(settings: &Settings) -> Option<String> {
    let value = settings.value(LOG_LEVEL)?;
    let origin = settings.origin(LOG_LEVEL);
    LogLevel::parse(value.text())
        .is_none()
        .then(|| format!("{origin}: {LOG_LEVEL} is {value}, which is no level: info is taken"))
}

/// `None` if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<String>> {
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

/// What the file may have as the value of `key`: words that stand after it, more than it has and
/// never less. TOML is not read, since every container of the node asks; and a broken file is no
/// reason to say no.
pub(super) fn words_after(key: &str, file: &Path) -> Vec<String> {
    let text = read(file).ok().flatten().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let after = lines.skip_while(|line| !line.contains(key));
    let is_separator = |character: char| character.is_whitespace() || ",=\"'".contains(character);
    after.flat_map(|line| line.split(is_separator)).map(str::to_owned).collect()
}

impl<'a> Text<'a> {
    /// Takes the keys of a file; `tables` are those that `table` is in, each with a point.
    fn take_file(
        &mut self,
        table: &DeTable<'a>,
        tables: &str,
        settings: &mut Settings,
    ) -> Result<()> {
        for (name, value) in table {
            let whole = format!("{tables}{}", name.get_ref());
            if let DeValue::Table(inner) = value.get_ref() {
                self.take_file(inner, &format!("{whole}."), settings)?;
                continue;
            }
            match Key::in_file(&whole) {
                Some(key) => self.take(key, value, settings)?,
                None if tables.is_empty() && self.is_of_runc(name.get_ref()) => {}
                None => self.unknown(&whole, &name.span()),
            }
        }
        Ok(())
    }

    /// Takes the keys of an options table: ours, without table.
    fn take_table(&mut self, table: &DeTable<'a>, settings: &mut Settings) -> Result<()> {
        for (name, value) in table {
            match Key::ours(name.get_ref()) {
                Some(key) => self.take(key, value, settings)?,
                None => self.unknown(&format!("{OURS}{}", name.get_ref()), &name.span()),
            }
        }
        Ok(())
    }

    /// A file that `ConfigPath` names may have options of runc, which are the shim's to read;
    /// unlike NVIDIA's keys they begin with a capital.
    fn is_of_runc(&self, name: &str) -> bool {
        self.may_set_host_root && name.starts_with(|first: char| first.is_ascii_uppercase())
    }

    fn take(
        &mut self,
        key: &'static Key,
        value: &Spanned<DeValue<'a>>,
        settings: &mut Settings,
    ) -> Result<()> {
        if key.name == HOST_ROOT && !self.may_set_host_root {
            let what = "host-root is ignored: only a file that the ConfigPath option names, or \
                        the options table, may set it";
            let warning = format!("{}: {what}", self.at(&value.span()));
            self.warnings.push(warning);
            return Ok(());
        }
        let checked = match value.get_ref() {
            DeValue::Boolean(value) => key.kind.check(Value::Bool(*value)),
            DeValue::String(text) => key.kind.check(Value::Text(text.to_string())),
            DeValue::Array(items) => {
                let texts: Option<_> =
                    items.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect();
                match texts {
                    Some(texts) => key.kind.check(Value::List(texts)),
                    None => Err("is a list of other things than strings".to_owned()),
                }
            }
            other => Err(format!("is of type {}", other.type_str())),
        };
        let value_at = value.span();
        let value =
            checked.map_err(|what| self.error(&value_at, &format!("{}: {what}", key.name)))?;
        settings.set(key, value, Origin::Text(self.at(&value_at)));
        Ok(())
    }

    fn unknown(&mut self, name: &str, at: &Range<usize>) {
        let nearest = Key::nearest(name);
        let what = format!("unknown key {name:?} is ignored; the nearest known one is {nearest}");
        let warning = format!("{}: {what}", self.at(at));
        self.warnings.push(warning);
    }

    fn parse(&self) -> Result<Spanned<DeTable<'a>>> {
        DeTable::parse(self.toml)
            .map_err(|error| self.error(&error.span().unwrap_or(0..0), error.message()))
    }

    fn error(&self, at: &Range<usize>, what: &str) -> Error {
        Error::new(self.code, format!("{}: {what}", self.at(at)))
    }

    /// `file, line 3`
    fn at(&self, span: &Range<usize>) -> String {
        if !self.has_lines {
            return self.place.clone();
        }
        let before = self.toml.get(..span.start).unwrap_or_default();
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        format!("{}, line {line}", self.place)
    }
}

#[cfg(test)]
mod tests;
