//! The inner shim: the stock `containerd-shim-runc-v2`, found, started and watched.
//!
//! It is started the way its own `start` would start its daemon: the listening socket on
//! descriptor 3, the working directory the bundle.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::{env, fs};

use nvidia_oci::{Code, Error, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::args::Args;

const NAME: &str = "containerd-shim-runc-v2";

/// Where installers put it when it is neither beside containerd nor in its `PATH`.
const USUAL: &[&str] = &[
    "/usr/bin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/sbin",
    "/opt/containerd/bin",
    "/opt/bin",
];

/// k3s and RKE2 unpack their programs below `NAME/data/current/bin`.
const RANCHER: &str = "/var/lib/rancher";

/// How much of what it wrote last is kept.
const WORDS: usize = 1024;

/// Finds the stock shim: the configured one, the one beside containerd, in `PATH`, in the usual
/// directories. Never this program under whatever name, nor another shim of ours.
///
/// # Errors
/// `InnerShim`, if there is none.
pub(crate) fn find(
    configured: Option<&Path>,
    containerd: &Path,
    path: Option<&OsStr>,
) -> Result<PathBuf> {
    let own = fs::metadata("/proc/self/exe").ok().map(|found| (found.dev(), found.ino()));
    let usable = |program: &Path| is_program(program) && is_foreign(program, own);
    if let Some(configured) = configured {
        if usable(configured) {
            return Ok(configured.to_owned());
        }
        log::warn!("inner-shim {} is not a stock shim, looking elsewhere", configured.display());
    }
    let beside = containerd.parent().map(Path::to_owned);
    let in_path = path.iter().flat_map(env::split_paths);
    let usual = USUAL.iter().map(PathBuf::from);
    beside
        .into_iter()
        .chain(in_path)
        .chain(usual)
        // What a relative directory means depends on where we were called.
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(NAME))
        .find(|program| usable(program))
        .or_else(|| of_rancher().find(|program| usable(program)))
        .ok_or_else(|| {
            let what = "containerd-shim-runc-v2 is neither beside containerd nor in its PATH";
            Error::new(Code::InnerShim, what)
        })
}

fn of_rancher() -> impl Iterator<Item = PathBuf> {
    let products = fs::read_dir(RANCHER).into_iter().flatten().flatten();
    products.map(|product| product.path().join("data/current/bin").join(NAME))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
}

fn is_foreign(path: &Path, own: Option<(u64, u64)>) -> bool {
    let Ok(found) = fs::metadata(path) else { return false };
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = real.file_name().and_then(OsStr::to_str).unwrap_or_default();
    Some((found.dev(), found.ino())) != own && !name.starts_with("containerd-shim-nvidia")
}

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
