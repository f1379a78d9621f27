//! `nvidia-shim config show`: the effective value of each setting, and where it came from.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use nvidia_oci::{Config, ConfigSource, Setting, Settings};
use serde_json::json;

/// Show the settings
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Show(Show),
}

/// Print the effective value of each key, and where it came from
///
/// The text is a config.toml that means the same.
#[derive(Debug, clap::Args)]
struct Show {
    /// config.toml; without it the node's own
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Setting that overrides config.toml, such as policy=strict; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = crate::setting)]
    set: Vec<(String, String)>,
    /// As JSON: a list of objects with key, value and origin
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Command::Show(show) = &args.command;
    let source = ConfigSource {
        path: show.config.clone(),
        default_path: Some(Config::default_file(|name| std::env::var(name).ok())),
        table: None,
        table_file: None,
        set: show.set.clone(),
    };
    let (settings, warnings) = Settings::load(&source)?;
    for warning in warnings {
        crate::complain(&anyhow::Error::msg(warning));
    }
    let settings: Vec<Setting> = settings.all().collect();
    let text = if show.json { as_json(&settings)? } else { as_toml(&settings) };
    match io::stdout().write_all(text.as_bytes()) {
        // Whoever reads no further has what they wanted.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written?,
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(settings: &[Setting]) -> anyhow::Result<String> {
    let objects: Vec<_> = settings
        .iter()
        .map(|Setting { name, value, origin }| {
            json!({"key": name, "value": value, "origin": origin.to_string()})
        })
        .collect();
    Ok(serde_json::to_string_pretty(&objects)? + "\n")
}

/// Each value with its origin as a comment; what is not set is a comment as a whole.
fn as_toml(settings: &[Setting]) -> String {
    let mut text = String::new();
    let mut table = "";
    for Setting { name, value, origin } in settings {
        let (its_table, key) = name.rsplit_once('.').unwrap_or(("", name));
        if its_table != table {
            table = its_table;
            // Writing to a String cannot fail.
            let _ = writeln!(text, "\n[{table}]");
        }
        let _ = match value {
            Some(value) => writeln!(text, "{:<50} # {origin}", format!("{key} = {value}")),
            None => writeln!(text, "{:<50} # {origin}", format!("# {key} is not set")),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_text_is_a_file_that_means_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = Some(dir.path().join("config.toml"));
        let set = [("policy", "strict"), ("swarm-resource", "A"), ("driver-root", "/d")];
        let set = set.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
        let source = ConfigSource { set, ..ConfigSource::default() };
        let (settings, _) = Settings::load(&source).unwrap();
        let text = as_toml(&settings.all().collect::<Vec<_>>());
        fs::write(path.as_ref().unwrap(), &text).unwrap();
        let again = ConfigSource { path, ..ConfigSource::default() };
        let (config, warnings) = Config::load(&again).unwrap();
        assert_eq!(warnings, Vec::<String>::new(), "{text}");
        assert_eq!(config, Config::of(&settings), "{text}");
        for line in ["policy = \"strict\"", "[nvidia-shim]", "# dev-root is not set"] {
            assert!(text.contains(line), "{text}");
        }
        let strict = text.lines().find(|line| line.starts_with("policy")).unwrap();
        assert!(strict.ends_with("# --set"), "{strict}");
    }

    #[test]
    fn the_json_has_every_key() {
        let settings: Vec<_> = Settings::default().all().collect();
        let json: serde_json::Value = serde_json::from_str(&as_json(&settings).unwrap()).unwrap();
        assert_eq!(json.as_array().unwrap().len(), settings.len());
        assert_eq!(json[0], json!({"key": "disable-require", "value": false, "origin": "default"}));
    }
}
