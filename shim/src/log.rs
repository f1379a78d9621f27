//! Log lines in containerd's format, to the `log` fifo of a bundle.
//!
//! Use the macros of the `log` crate. Nothing here ever blocks or fails: a line that the fifo does
//! not take at once, or that nobody reads while containerd is away, is dropped.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use log::{Level, LevelFilter, Log, Metadata, Record};
use rustix::fs::{Mode, OFlags};

/// What a pipe takes in one piece (`PIPE_BUF`), so that lines of several writers do not mix.
const LINE_MAX: usize = 4096;

/// Sends what is logged from here on to `bundle/log`; each line ends with `fields`, in logfmt.
pub(crate) fn init(bundle: &Path, debug: bool, fields: &[(&str, &str)]) {
    install(FifoLog::new(bundle, fields), debug);
}

/// Sends what is logged from here on to `logger`.
pub(crate) fn install(logger: impl Log + 'static, debug: bool) {
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(if debug { LevelFilter::Debug } else { LevelFilter::Info });
    }
}

/// Logs panics from here on, instead of writing them to standard error.
pub(crate) fn panics() {
    std::panic::set_hook(Box::new(|panic| log::error!("panic: {panic}")));
}

/// The log of a bundle.
pub(crate) struct FifoLog {
    path: PathBuf,
    fields: String,
    fifo: Mutex<Option<File>>,
}

impl FifoLog {
    pub(crate) fn new(bundle: &Path, fields: &[(&str, &str)]) -> Self {
        let fields = fields.iter().fold(String::new(), |mut text, (key, value)| {
            // Writing to a String cannot fail.
            let _ = write!(text, " {key}={value:?}");
            text
        });
        Self { path: bundle.join("log"), fields, fifo: Mutex::new(None) }
    }

    /// The fifo, unless it is missing, is something else or has no reader.
    fn open(&self) -> Option<File> {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(&self.path, flags, Mode::empty()).ok()?);
        file.metadata().ok()?.file_type().is_fifo().then_some(file)
    }
}

impl Log for FifoLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = line(now, record.level(), &record.args().to_string(), &self.fields);
        // A thread that panicked while it held the lock left nothing half done.
        let mut fifo = self.fifo.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if fifo.is_none() {
            *fifo = self.open();
        }
        if let Some(file) = fifo.as_mut()
            && let Err(error) = file.write_all(line.as_bytes())
            && error.kind() != std::io::ErrorKind::WouldBlock
        {
            // No reader any more; a restarted containerd opens the same fifo again.
            *fifo = None;
        }
    }

    fn flush(&self) {}
}

/// One line of logfmt as containerd's own logger, and runc's, writes it.
pub(crate) fn line(now: Duration, level: Level, message: &str, fields: &str) -> String {
    let level = match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    };
    let mut room = LINE_MAX.saturating_sub(fields.len() + 128);
    let mut quoted = String::new();
    for character in message.chars() {
        let escaped =
            if character == '\'' { "'".to_owned() } else { character.escape_debug().to_string() };
        if escaped.len() > room {
            break;
        }
        room -= escaped.len();
        quoted.push_str(&escaped);
    }
    format!("time=\"{}\" level={level} msg=\"{quoted}\"{fields}\n", rfc3339(now))
}

/// The time in UTC with nanoseconds, e.g. `2026-08-22T10:09:08.000000007Z`.
pub(crate) fn rfc3339(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let nanos = since_epoch.subsec_nanos();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

/// Year, month and day of the Gregorian calendar, `days` after 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    loop {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let length = if leap { 366 } else { 365 };
        if days >= length {
            days -= length;
            year += 1;
            continue;
        }
        let february = if leap { 29 } else { 28 };
        let mut month = 1;
        for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
            if days < length {
                break;
            }
            days -= length;
            month += 1;
        }
        return (year, month, days + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (951_868_800, "2000-03-01T00:00:00.000000000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000000Z"),
        ] {
            assert_eq!(rfc3339(Duration::from_secs(seconds)), date);
        }
        assert_eq!(rfc3339(Duration::new(1, 7)), "1970-01-01T00:00:01.000000007Z");
    }

    #[test]
    fn a_message_is_one_quoted_line() {
        let line =
            line(Duration::ZERO, Level::Warn, "it's \"bad\"\nand \u{1b}[31mred", " id=\"a b\"");
        assert_eq!(
            line,
            "time=\"1970-01-01T00:00:00.000000000Z\" level=warning \
             msg=\"it's \\\"bad\\\"\\nand \\u{1b}[31mred\" id=\"a b\"\n"
        );
    }

    #[test]
    fn a_long_message_is_cut_to_what_a_pipe_takes_at_once() {
        let line = line(Duration::ZERO, Level::Info, &"\u{1b}".repeat(5000), "");
        assert!(line.len() <= LINE_MAX, "{}", line.len());
        assert!(line.ends_with("\"\n"));
    }

    #[test]
    fn without_a_reader_or_a_fifo_lines_are_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let logger = |name: &str| FifoLog {
            path: dir.path().join(name),
            fields: String::new(),
            fifo: Mutex::new(None),
        };
        assert!(logger("missing").open().is_none());
        assert!(!dir.path().join("missing").exists());
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(logger("file").open().is_none());
        let mode = nix::sys::stat::Mode::S_IRWXU;
        nix::unistd::mkfifo(&dir.path().join("log"), mode).unwrap();
        assert!(logger("log").open().is_none());
        let both = std::fs::OpenOptions::new();
        let reader = both.clone().read(true).write(true).open(dir.path().join("log")).unwrap();
        assert!(logger("log").open().is_some());
        drop(reader);
    }
}
