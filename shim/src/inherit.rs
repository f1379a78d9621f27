//! What a relay has from the `start` that made it: the outer listener as standard input, the inner
//! one as standard output. It takes them, starts the inner shim, and becomes a daemon.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;

use anyhow::{Context, Result, ensure};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::{close, dup2_stdin, dup2_stdout};

use crate::args::Args;
use crate::inner::{self, Inner};
use crate::process::Process;
use crate::record::Record;
use crate::socket::Served;

/// Where the inner shim expects its listener, and that of its profiler.
const INNER_FD: RawFd = 3;
const PROFILER_FD: RawFd = 4;

/// Everything that a relay works with.
#[derive(Debug)]
pub(crate) struct Inheritance {
    pub(crate) listener: UnixListener,
    pub(crate) served: Served,
    /// An inner shim that could not be started is the error of each Create.
    pub(crate) inner: nvidia_oci::Result<Inner>,
}

/// Takes over. Must be the first thing that the process does: descriptor numbers matter.
///
/// # Errors
/// Standard input or output is not a listening socket: nobody but `start` may call this.
pub(crate) fn take(args: &Args) -> Result<Inheritance> {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    for (name, fd) in [("input", stdin.as_fd()), ("output", stdout.as_fd())] {
        let listens = getsockopt(&fd, sockopt::AcceptConn).unwrap_or(false);
        ensure!(listens, "relay is for start to call: standard {name} is no listening socket");
    }
    let served = Served::adopt(&args.outer, &args.inner);
    take_over(args, stdin.as_fd(), stdout.as_fd(), &served)
        // Nobody answers on them any more.
        .inspect_err(|_| drop(served.remove()))
        .map(|(listener, inner)| Inheritance { listener, served, inner })
}

fn take_over(
    args: &Args,
    outer: BorrowedFd<'_>,
    inner: BorrowedFd<'_>,
    served: &Served,
) -> Result<(UnixListener, nvidia_oci::Result<Inner>)> {
    close_inherited()?;
    let inner = start_inner(args, inner)?;
    let listener = UnixListener::from(outer.try_clone_to_owned()?);
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;

    let process = inner.as_ref().ok().and_then(|inner| Process::of(inner.pid()).ok());
    let record = Record::new(Process::of(std::process::id())?, process, &served.sockets);
    if let Err(error) = record.write(&std::env::current_dir()?) {
        // Only a delete after our own death misses it.
        log::warn!("writing the record of the group: {error}");
    }
    Ok((listener, inner))
}

/// Closes what somebody before containerd left open: a daemon must not hold it for ever, and the
/// inner shim needs the numbers.
fn close_inherited() -> io::Result<()> {
    let open = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok())
        .filter(|fd| *fd > 2)
        .collect::<Vec<_>>();
    for fd in open {
        // Nothing of ours is open yet; the descriptor of the listing itself is closed already.
        let _ = close(fd);
    }
    Ok(())
}

fn start_inner(args: &Args, listener: impl AsFd) -> Result<nvidia_oci::Result<Inner>> {
    let fd = fcntl(&listener, FcntlArg::F_DUPFD(INNER_FD))?;
    ensure!(fd == INNER_FD, "descriptor {INNER_FD} is taken");
    let profiler = if args.debug { Some(profiler_listener()?) } else { None };
    let inner = inner::spawn(args);
    drop(profiler);
    close(INNER_FD)?;
    Ok(inner)
}

/// With `-debug` shims of containerd 2.x insist on a second listener for their profiler. Nobody
/// can connect to this one.
fn profiler_listener() -> Result<OwnedFd> {
    const NAME: &str = "nvidia-shim-profiler.sock";
    let listener = UnixListener::bind(NAME).context(NAME)?;
    fs::remove_file(NAME).context(NAME)?;
    ensure!(listener.as_raw_fd() == PROFILER_FD, "descriptor {PROFILER_FD} is taken");
    fcntl(&listener, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(listener.into())
}
