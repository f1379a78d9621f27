//! Options as TOML: the body that containerd makes of the handler's options table, or a file that
//! `ConfigPath` names. Keys of runc's options are matched in any case, as containerd matches them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use containerd_shim_protos::shim::oci::Options;
use nvidia_oci::{Code, Error, Key as OurKey};
use serde_json::json;
use toml::{Table, Value};

const LIMIT: u64 = 1 << 20;
/// `criu_path` of containerd 1.x's runc options; 2.0 has retired the number.
const CRIU_PATH: u32 = 8;

/// Options as they were typed.
#[derive(Debug, Default)]
pub(super) struct Typed {
    pub(super) runc: Options,
    /// `SystemdCgroup`, if it was there.
    pub(super) systemd_cgroup: Option<bool>,
    /// Our own keys, as TOML.
    pub(super) ours: String,
    /// Whether there were tables: then it is NVIDIA's `config.toml`.
    pub(super) has_tables: bool,
    /// Keys that are neither runc's nor ours.
    pub(super) others: Vec<String>,
    pub(super) broken: Option<Error>,
}

/// Reads a file, which may just as well be NVIDIA's `config.toml`.
pub(super) fn of_file(path: &Path) -> Typed {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LIMIT + 1).read_to_string(&mut text));
    let read = match read {
        Ok(length) if length as u64 > LIMIT => Err(io::Error::other("larger than 1 MiB")),
        other => other,
    };
    match read {
        Ok(_) => parse(&text, &path.display().to_string(), Code::ConfigUnreadable),
        Err(error) => {
            let what = format!("ConfigPath {}", path.display());
            let broken = Some(Error::caused(Code::ConfigUnreadable, what, error));
            Typed { broken, ..Typed::default() }
        }
    }
}

/// Reads the text of the handler's options table.
pub(super) fn of_text(text: &str) -> Typed {
    parse(text, "the options table", Code::OptionsUnreadable)
}

/// `place` is what errors call the text, `code` what they are.
fn parse(text: &str, place: &str, code: Code) -> Typed {
    let mut read = Typed::default();
    match text.parse::<Table>() {
        Ok(table) => {
            for (key, value) in table {
                read.take(&key, &value, place, code);
            }
        }
        Err(error) => {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let what = format!("{place}, line {line}: {}", error.message());
            read.broken = Some(Error::new(code, what));
        }
    }
    read
}

impl Typed {
    fn take(&mut self, key: &str, value: &Value, place: &str, code: Code) {
        match self.set_runc(key, value) {
            Key::Runc => {}
            Key::WrongType => {
                let what = format!("{place}: {key} cannot be of type {}", value.type_str());
                self.broken = Some(Error::new(code, what));
            }
            Key::Foreign if OurKey::ours(key).is_some() => {
                // Strings and booleans of JSON are those of TOML; whatever else it is, is refused
                // by whoever reads it.
                self.ours.push_str(&format!("{} = {}\n", json!(key), json!(value)));
            }
            Key::Foreign if value.is_table() => self.has_tables = true,
            Key::Foreign => self.others.push(key.to_owned()),
        }
    }

    fn set_runc(&mut self, key: &str, value: &Value) -> Key {
        let runc = &mut self.runc;
        let yes = value.as_bool();
        let text = value.as_str().map(str::to_owned);
        let id = value.as_integer().and_then(|id| u32::try_from(id).ok());
        let set = match key.to_ascii_lowercase().as_str() {
            "nopivotroot" => yes.map(|yes| runc.no_pivot_root = yes),
            "nonewkeyring" => yes.map(|yes| runc.no_new_keyring = yes),
            "shimcgroup" => text.map(|text| runc.shim_cgroup = text),
            "iouid" => id.map(|id| runc.io_uid = id),
            "iogid" => id.map(|id| runc.io_gid = id),
            "binaryname" => text.map(|text| runc.binary_name = text),
            "root" => text.map(|text| runc.root = text),
            "systemdcgroup" => yes.map(|yes| self.systemd_cgroup = Some(yes)),
            "criupath" => text.map(|text| {
                let unknown = runc.special_fields.mut_unknown_fields();
                unknown.add_length_delimited(CRIU_PATH, text.into_bytes());
            }),
            "criuimagepath" => text.map(|text| runc.criu_image_path = text),
            "criuworkpath" => text.map(|text| runc.criu_work_path = text),
            _ => return Key::Foreign,
        };
        set.map_or(Key::WrongType, |()| Key::Runc)
    }
}

/// Whose key it is.
enum Key {
    Runc,
    /// runc's, with a value that it cannot have.
    WrongType,
    Foreign,
}
