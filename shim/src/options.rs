//! The runtime's options: whatever a client sends for a runtime that is not the stock one becomes
//! the `containerd.runc.v1.Options` that the stock shim reads; our own keys are kept for us.
//!
//! What comes (`reference/shim-protocol.md` 6): `runtimeoptions.v1.Options` with the options table
//! as TOML (1.7 and later), with the path of a file, or empty (1.6, which loses the table);
//! `containerd.linux.runc.CreateOptions` of 1.x clients with user namespaces; runc's own options,
//! where our program is the `runtime_path` of the stock runtime; or nothing.

use std::io;
use std::path::{Path, PathBuf};

use containerd_shim_protos::protobuf::rt::WireType;
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use containerd_shim_protos::protobuf::{self, CodedInputStream, Message};
use containerd_shim_protos::shim::oci::Options;
use nvidia_oci::{Code, ConfigSource, Error};
use serde::Deserialize;

mod binary;
mod table;

/// Type names, without the prefix that some clients put before them.
const RUNC: &str = "containerd.runc.v1.Options";
const RUNTIME: &str = "runtimeoptions.v1.Options";
const LINUX_RUNC: &str = "containerd.linux.runc.CreateOptions";
const PREFIX: &str = "type.googleapis.com/";

/// Options as they were meant.
#[derive(Debug, Default)]
pub(crate) struct Translation {
    /// What the inner shim gets; `None`: what came, or nothing.
    pub(crate) inner: Option<Any>,
    /// The same, understood; the default where nothing came or a type that is not known.
    pub(crate) runc: Options,
    /// Where our own settings are.
    pub(crate) source: ConfigSource,
    /// For a person, in the log.
    pub(crate) warnings: Vec<String>,
    /// What could not be read; everything else is what could.
    pub(crate) broken: Option<Error>,
}

/// Translates what came with a container whose `linux.cgroupsPath` is `cgroups_path`.
pub(crate) fn translate(any: Option<&Any>, cgroups_path: Option<&str>) -> Translation {
    let mut translation = Translation::default();
    let Some(any) = any.filter(|any| !any.type_url.is_empty()) else {
        // A stock shim without options takes cgroupfs for granted.
        if is_systemd(cgroups_path) {
            translation.runc.systemd_cgroup = true;
            translation.send_runc();
        }
        return translation;
    };
    let name = any.type_url.strip_prefix(PREFIX).unwrap_or(&any.type_url);
    let read = match name {
        RUNC => translation.of_runc(&any.value),
        RUNTIME => translation.of_runtime(&any.value, cgroups_path),
        LINUX_RUNC => translation.of_linux_runc(&any.value, cgroups_path),
        // The inner shim may know it.
        _ => return translation,
    };
    if let Err(error) = read {
        let what = format!("the runtime's options, {name}");
        translation.broken = Some(Error::caused(Code::OptionsUnreadable, what, error));
        translation.runc.systemd_cgroup = is_systemd(cgroups_path);
    }
    let dropped = translation.drop_binary();
    // runc's own options pass, even those that only the inner shim can read.
    if dropped || name != RUNC {
        translation.send_runc();
    }
    translation
}

type Read = Result<(), protobuf::Error>;

impl Translation {
    fn of_runc(&mut self, value: &[u8]) -> Read {
        self.runc = Options::parse_from_bytes(value)?;
        Ok(())
    }

    fn of_runtime(&mut self, value: &[u8], cgroups_path: Option<&str>) -> Read {
        let RuntimeOptions { config_path, config_body } = RuntimeOptions::parse(value)?;
        // A path comes without a body, and a body without a path.
        let read = if config_path.is_empty() {
            table::of_text(&config_body)
        } else {
            table::of_file(Path::new(&config_path))
        };
        self.source.table = Some(read.ours).filter(|ours| !ours.is_empty());
        self.source.table_file =
            Some(PathBuf::from(&config_path)).filter(|_| !config_path.is_empty());
        if read.has_tables {
            self.source.path = Some(config_path.into());
        } else {
            let ignored = |key| format!("option {key} is neither runc's nor ours and is ignored");
            self.warnings.extend(read.others.into_iter().map(ignored));
        }
        self.broken = read.broken;
        self.runc = read.runc;
        self.runc.systemd_cgroup = read.systemd_cgroup.unwrap_or_else(|| is_systemd(cgroups_path));
        Ok(())
    }

    fn of_linux_runc(&mut self, value: &[u8], cgroups_path: Option<&str>) -> Read {
        self.runc = linux_runc_options(value)?;
        self.runc.systemd_cgroup = is_systemd(cgroups_path);
        Ok(())
    }

    /// Leaves out a `BinaryName` that leads back to us.
    fn drop_binary(&mut self) -> bool {
        let dropped = binary::leads_back(&self.runc.binary_name);
        if dropped {
            let name = std::mem::take(&mut self.runc.binary_name);
            let what = "leads back to a runtime of NVIDIA's or to this one and is left out";
            self.warnings.push(format!("BinaryName {name} {what}"));
        }
        dropped
    }

    fn send_runc(&mut self) {
        // Encoding what was decoded cannot fail.
        let value = self.runc.write_to_bytes().unwrap_or_default();
        let type_url = RUNC.to_owned();
        self.inner = Some(Any { type_url, value, ..Any::default() });
    }
}

/// What is read of `runtimeoptions.v1.Options`; its first field is the type that the runtime
/// itself would call its options.
#[derive(Debug, Default)]
struct RuntimeOptions {
    config_path: String,
    config_body: String,
}

impl RuntimeOptions {
    fn parse(value: &[u8]) -> Result<Self, protobuf::Error> {
        let mut options = Self::default();
        let mut input = CodedInputStream::from_bytes(value);
        while let Some(tag) = input.read_raw_tag_or_eof()? {
            match tag >> 3 {
                2 => options.config_path = input.read_string()?,
                // `bytes`, and text all the same.
                3 => options.config_body = text(input.read_bytes()?)?,
                _ => skip(&mut input, tag)?,
            }
        }
        Ok(options)
    }
}

/// Reads `containerd.linux.runc.CreateOptions` (`runtime/linux/runctypes` of containerd 1.x); its
/// fields 2 to 7 are of checkpoints and mean nothing at a Create.
fn linux_runc_options(value: &[u8]) -> Result<Options, protobuf::Error> {
    let mut options = Options::new();
    let mut input = CodedInputStream::from_bytes(value);
    while let Some(tag) = input.read_raw_tag_or_eof()? {
        match tag >> 3 {
            1 => options.no_pivot_root = input.read_bool()?,
            8 => options.no_new_keyring = input.read_bool()?,
            9 => options.shim_cgroup = input.read_string()?,
            10 => options.io_uid = input.read_uint32()?,
            11 => options.io_gid = input.read_uint32()?,
            12 => options.criu_work_path = input.read_string()?,
            13 => options.criu_image_path = input.read_string()?,
            _ => skip(&mut input, tag)?,
        }
    }
    Ok(options)
}

fn skip(input: &mut CodedInputStream<'_>, tag: u32) -> Result<(), protobuf::Error> {
    let wire_type = WireType::new(tag & 7).ok_or_else(|| io::Error::other("wire type"))?;
    input.skip_field(wire_type)
}

fn text(bytes: Vec<u8>) -> Result<String, protobuf::Error> {
    Ok(String::from_utf8(bytes).map_err(io::Error::other)?)
}

/// Whether the path is one for systemd's cgroup driver, `slice:prefix:name`.
fn is_systemd(cgroups_path: Option<&str>) -> bool {
    cgroups_path.is_some_and(|path| !path.starts_with('/') && path.split(':').count() == 3)
}

/// `linux.cgroupsPath` of a spec, if it has one.
pub(crate) fn cgroups_path(config_json: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Spec {
        linux: Option<Linux>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Linux {
        cgroups_path: Option<String>,
    }
    // A spec that cannot be read is not for us to complain about here.
    serde_json::from_slice::<Spec>(config_json).ok()?.linux?.cgroups_path
}

#[cfg(test)]
mod tests;
