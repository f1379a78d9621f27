//! What a person and containerd hear from the front: errors as runc tells them, in the file that
//! `--log` names and on standard error; what was decided, in containerd's log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use log::{Level, Log, Metadata, Record};
use nvidia_oci::{Config, LogLevel};

use super::command_line::CommandLine;
use super::log_file::LogFile;
use crate::log::{self as shim_log, FifoLog};

/// Marks the error by which we end.
const FATAL: &str = "fatal";

/// Where errors go.
#[derive(Clone, Debug)]
pub(super) struct Reporter {
    file: Option<PathBuf>,
    json: bool,
    id: String,
}

impl Reporter {
    pub(super) fn of(command_line: &CommandLine<'_>) -> Self {
        Self {
            file: command_line.log().map(Path::to_owned),
            json: command_line.log_is_json(),
            id: command_line.id(),
        }
    }

    /// Sends what is logged from here on to containerd, by way of the stock shim, and warnings to
    /// where runc's are, too.
    pub(super) fn install(&self, program: &str, debug: bool, config: &Config) {
        let fields = [("runtime", program), ("id", &self.id)];
        // The stock shim runs in the bundle that it was started for, and so do we; the bundles of
        // a pod's other containers have no reader.
        let containerd = FifoLog::new(Path::new("."), &fields);
        let (file, wrong) = match LogFile::of(config, &fields) {
            Ok(file) => (file, None),
            Err(what) => (None, Some(what)),
        };
        let debug = debug || file.is_some() && config.log_level == LogLevel::Debug;
        shim_log::install(FrontLog { containerd, file, reporter: self.clone() }, debug);
        shim_log::panics();
        if let Some(what) = wrong {
            log::warn!("{what}");
        }
    }

    /// Says why we end, as runc does: in its log, and if that is a file, on standard error too.
    pub(super) fn fatal(&self, message: &str) {
        self.write(Level::Error, message);
        log::error!(target: FATAL, "{message}");
        if self.file.is_some() {
            // Nobody is left to tell if even this fails.
            let _ = writeln!(io::stderr(), "{message}");
        }
    }

    /// A line as runc writes it. What cannot be written is lost.
    fn write(&self, level: Level, message: &str) {
        let line = self.line(level, message);
        let mut file = self.file.as_deref().and_then(|path| append(path).ok());
        let _ = match &mut file {
            Some(file) => file.write_all(line.as_bytes()),
            None => io::stderr().write_all(line.as_bytes()),
        };
    }

    fn line(&self, level: Level, message: &str) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if !self.json {
            return shim_log::line(now, level, message, "");
        }
        json(now, level, message)
    }
}

/// logrus's JSON, in which containerd looks for the last error.
fn json(now: Duration, level: Level, message: &str) -> String {
    let level = if level == Level::Warn { "warning" } else { "error" };
    let time = shim_log::rfc3339(now);
    format!("{}\n", serde_json::json!({"level": level, "msg": message, "time": time}))
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

struct FrontLog {
    containerd: FifoLog,
    file: Option<LogFile>,
    reporter: Reporter,
}

impl Log for FrontLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.containerd.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if let Some(file) = &self.file {
            file.log(record);
        }
        // Told by other means, which containerd has from the stock shim.
        if record.target() == FATAL {
            return;
        }
        self.containerd.log(record);
        if record.level() <= Level::Warn {
            self.reporter.write(record.level(), &record.args().to_string());
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;

    use serde_json::Value;

    use super::*;

    #[test]
    fn errors_are_appended_to_the_file_in_the_format_that_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log.json");
        fs::write(&file, "{}\n").unwrap();
        for (format, wanted) in [("json", true), ("text", false)] {
            let words = ["--log", file.to_str().unwrap(), "--log-format", format, "create", "c1"];
            let words = words.map(OsString::from);
            Reporter::of(&CommandLine::parse(&words)).write(Level::Error, "a \"quoted\"\nmessage");
            let text = fs::read_to_string(&file).unwrap();
            let last = text.lines().last().unwrap();
            match serde_json::from_str::<Value>(last) {
                Ok(entry) => {
                    assert!(wanted);
                    assert_eq!(entry["msg"], "a \"quoted\"\nmessage");
                    assert_eq!(entry["level"], "error");
                    assert!(entry["time"].as_str().unwrap().ends_with('Z'));
                }
                Err(_) => {
                    assert!(!wanted);
                    let ends = "level=error msg=\"a \\\"quoted\\\"\\nmessage\"";
                    assert!(last.starts_with("time=") && last.ends_with(ends), "{last}");
                }
            }
        }
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 3);
    }
}
