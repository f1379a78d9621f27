//! The inner shim: the stock `containerd-shim-runc-v2`, found, started and watched.
//!
//! It is started the way its own `start` would start its daemon: the listening socket on
//! descriptor 3, the working directory the bundle.

use std::env;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

use nvidia_oci::{Code, Error, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::args::Args;

mod find;

pub(crate) use find::{configured, find};

/// The relay's heap: glibc gives each thread one of its own otherwise, 10 KB a thread for nothing.
/// Not for the inner shim and what it starts.
pub(crate) const ARENAS: &str = "MALLOC_ARENA_MAX";

/// How much of what it wrote last is kept.
const WORDS: usize = 1024;

/// A running inner shim, a child of this process.
#[derive(Debug)]
pub(crate) struct Inner {
    child: Child,
}

/// How an inner shim ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// The last of what it wrote to standard error, at most 1 KiB; often empty, for once it
    /// serves it writes to the log.
    pub(crate) words: String,
}

/// Starts the inner shim `args.shim`, which serves what listens on our descriptor 3 (and, with
/// `-debug`, its profiler on 4): both are open in our children until the caller closes them.
///
/// # Errors
/// `InnerShim` with the system's words.
pub(crate) fn spawn(args: &Args) -> Result<Inner> {
    let mut command = Command::new(&args.shim);
    command
        .args(["-namespace", &args.namespace, "-id", &args.id, "-address", &args.address])
        .args(args.debug.then_some("-debug"))
        .env_remove(ARENAS)
        .env("GOMAXPROCS", "4")
        .env("OTEL_SERVICE_NAME", format!("containerd-shim-{}", args.id))
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if env::var_os("TTRPC_ADDRESS").is_none() {
        command.env("TTRPC_ADDRESS", format!("{}.ttrpc", args.address));
    }
    let child = command.spawn().map_err(|error| {
        Error::caused(Code::InnerShim, format!("starting {}", args.shim.display()), error)
    })?;
    Ok(Inner { child })
}

impl Inner {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Blocks until the inner shim has ended, and reaps it.
    pub(crate) fn wait(mut self) -> io::Result<Ended> {
        let mut last = Tail::default();
        if let Some(mut stderr) = self.child.stderr.take() {
            // A process that it started may hold the pipe for longer than it lives itself, so the
            // end of the pipe is not waited for.
            if let Err(error) = self.listen(&mut stderr, &mut last) {
                log::warn!("listening to the inner shim: {error}");
            }
        }
        let status = self.child.wait()?;
        Ok(Ended { status, words: last.text() })
    }

    fn listen(&self, stderr: &mut ChildStderr, last: &mut Tail) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&*stderr, true)?;
        let pidfd = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        loop {
            let mut watched =
                [PollFd::new(&pidfd, PollFlags::IN), PollFd::new(&*stderr, PollFlags::IN)];
            poll(&mut watched, None)?;
            let [process, _] = &watched;
            let ended = !process.revents().is_empty();
            if last.fill(stderr)? || ended {
                return Ok(());
            }
        }
    }
}

/// The last bytes of a stream.
#[derive(Debug, Default)]
struct Tail {
    bytes: Vec<u8>,
}

impl Tail {
    /// Takes all that is there; true at the end of the stream.
    fn fill(&mut self, stream: &mut impl Read) -> io::Result<bool> {
        let mut piece = [0; WORDS];
        // Bounded: whoever never stops writing must not keep us from seeing the process end.
        for _ in 0..64 {
            match stream.read(&mut piece) {
                Ok(0) => return Ok(true),
                Ok(length) => {
                    self.bytes.extend(piece.iter().take(length));
                    let surplus = self.bytes.len().saturating_sub(WORDS);
                    self.bytes.drain(..surplus);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inner(script: &str) -> Inner {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stderr(Stdio::piped());
        Inner { child: command.spawn().unwrap() }
    }

    #[test]
    fn what_an_inner_shim_said_last_is_kept() {
        let ended = inner("echo before >&2; head -c 5000 /dev/zero >&2; echo boom >&2; exit 3");
        let ended = ended.wait().unwrap();
        assert_eq!(ended.status.code(), Some(3));
        assert!(ended.words.ends_with("boom") && ended.words.len() <= WORDS);
        assert!(!ended.words.contains("before"));
    }

    #[test]
    fn a_grandchild_that_keeps_standard_error_open_does_not_hide_the_end() {
        let pid = tempfile::NamedTempFile::new().unwrap();
        let path = pid.path().display();
        let ended = inner(&format!("sleep 600 & echo $! > {path}; echo bye >&2; exit 1"));
        let ended = ended.wait().unwrap();
        assert_eq!((ended.status.code(), ended.words.as_str()), (Some(1), "bye"));
        let sleeper = std::fs::read_to_string(pid.path()).unwrap();
        let sleeper = nix::unistd::Pid::from_raw(sleeper.trim().parse().unwrap());
        nix::sys::signal::kill(sleeper, nix::sys::signal::Signal::SIGTERM).unwrap();
    }
}
