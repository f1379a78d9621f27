//! The log file of `[nvidia-container-runtime] debug`, as NVIDIA's runtime has one.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use log::{Level, Log, Metadata, Record};
use nvidia_oci::{Config, LogLevel};
use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;

use crate::log as shim_log;

/// Writes what is logged, one line in one piece.
pub(super) struct LogFile {
    file: File,
    level: LogLevel,
    fields: String,
}

impl LogFile {
    /// The file that the settings name, if any; else what is wrong with it, in words. Others may
    /// have put something into the directory, such as /tmp: only a regular file of our own user,
    /// which no link leads to, is written.
    pub(super) fn of(config: &Config, fields: &[(&str, &str)]) -> Result<Option<Self>, String> {
        let Some(path) = &config.debug_log else { return Ok(None) };
        let file = open(path).map_err(|what| format!("log file {}: {what}", path.display()))?;
        let fields = fields.iter().map(|(key, value)| format!(" {key}={value:?}")).collect();
        Ok(Some(Self { file, level: config.log_level, fields }))
    }
}

fn open(path: &Path) -> Result<File, String> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    let safely = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags | safely, Mode::from_raw_mode(0o644));
    let file = File::from(file.map_err(|error| error.to_string())?);
    let found = file.metadata().map_err(|error| error.to_string())?;
    if !found.is_file() || found.nlink() > 1 || found.uid() != geteuid().as_raw() {
        return Err("not written, as it is no file of our own user's, or has another name".into());
    }
    Ok(file)
}

impl Log for LogFile {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let level = match metadata.level() {
            Level::Error => LogLevel::Error,
            Level::Warn => LogLevel::Warning,
            Level::Info => LogLevel::Info,
            Level::Debug | Level::Trace => LogLevel::Debug,
        };
        level <= self.level
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let message = record.args().to_string();
            let line = shim_log::line(now, record.level(), &message, &self.fields);
            // A full disk stops no container.
            let _ = (&self.file).write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{chown, symlink};
    use std::path::PathBuf;

    use super::*;

    fn of(path: PathBuf) -> Result<Option<LogFile>, String> {
        LogFile::of(&Config { debug_log: Some(path), ..Config::default() }, &[("id", "c1")])
    }

    #[test]
    fn lines_are_appended_down_to_the_level() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, "before\n").unwrap();
        let log = of(path.clone()).unwrap().unwrap();
        for level in [Level::Warn, Level::Info, Level::Debug] {
            let record = Record::builder().level(level).args(format_args!("it is so")).build();
            log.log(&record);
        }
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].ends_with("level=warning msg=\"it is so\" id=\"c1\""), "{text}");
        assert!(LogFile::of(&Config::default(), &[]).unwrap().is_none());
    }

    #[test]
    fn what_others_put_there_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| dir.path().join(name);
        fs::write(place("file"), "").unwrap();
        symlink("file", place("link")).unwrap();
        fs::write(place("twice"), "").unwrap();
        fs::hard_link(place("twice"), place("name")).unwrap();
        fs::write(place("theirs"), "").unwrap();
        chown(place("theirs"), Some(1000), None).unwrap();
        nix::unistd::mkfifo(&place("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for name in ["link", "twice", "theirs", "pipe", "", "none/log"] {
            let Err(what) = of(place(name)) else { panic!("{name} is written") };
            assert!(what.starts_with("log file /"), "{what}");
        }
    }
}
