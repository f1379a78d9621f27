//! The daemon between containerd and the inner shim: it accepts containerd's connections, opens
//! one to the inner shim for each, and lives as long as the inner shim does, with or without
//! containerd.
//!
//! Threads block and there is no timer: the main thread waits for the inner shim, one accepts,
//! and each connection has one for either direction ([`connection`]).

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{self, Shutdown, sockopt};
use nix::unistd::{getegid, geteuid};
use nvidia_oci::{Code, Error, Result};

use crate::args::Args;
use crate::create::Creator;
use crate::frame::answer::Refusal;
use crate::inherit::Inheritance;
use crate::inner::Inner;
use crate::program::Program;

mod connection;
mod life;
mod probe;

use life::Life;
use probe::Api;

/// Stacks are small, and their untouched pages cost nothing.
const STACK: usize = 128 << 10;
/// How long containerd may take to come for the reason why its container cannot be created.
const LINGER: Duration = Duration::from_secs(5);
/// How long the last answers may take to be delivered.
const DRAIN: Duration = Duration::from_secs(2);
/// Pause after a failure to accept, such as too many open files.
const BREATH: Duration = Duration::from_millis(100);

/// What the threads of a relay share.
struct Relay {
    /// The inner shim's socket.
    inner: PathBuf,
    creator: Creator,
    life: Life,
    /// What the inner shim speaks, once it was asked.
    api: Mutex<Option<Api>>,
}

/// Serves the listener until the inner shim has ended, then removes the sockets. The process is set
/// up already: log and panic hook installed, working directory the bundle of the group's leader,
/// standard streams `/dev/null`, single thread. An inner shim that could not be started is the
/// answer to the Create that comes.
pub(crate) fn run(program: &Program, args: &Args, inheritance: Inheritance) -> ExitCode {
    let Inheritance { listener, served, inner } = inheritance;
    let creator = Creator::new(program);
    let remove = || {
        if let Err(error) = served.remove() {
            log::warn!("{error}");
        }
    };
    let inner_ended = || last_words(inner, &args.shim);
    match serve(listener, &served.sockets.inner, creator, inner_ended, remove) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("relay of {}: {error}", served.sockets.outer.display());
            ExitCode::FAILURE
        }
    }
}

/// Waits for the end of the inner shim; what it said is why containers cannot be created.
fn last_words(inner: Result<Inner>, program: &Path) -> Error {
    let program = program.display();
    match inner.map(Inner::wait) {
        Err(error) => error,
        Ok(Err(error)) => Error::caused(Code::InnerShim, format!("waiting for {program}"), error),
        Ok(Ok(ended)) => {
            let mut what = format!("{program} ended with {}", ended.status);
            if !ended.words.is_empty() {
                what = format!("{what}: {}", ended.words);
            }
            Error::new(Code::InnerShim, what)
        }
    }
}

/// As [`run`]; `inner_ended` blocks until the inner shim has ended and says why, `remove_sockets`
/// is called when the last connection that can be answered was accepted.
fn serve(
    listener: UnixListener,
    inner: &Path,
    creator: Creator,
    inner_ended: impl FnOnce() -> Error,
    remove_sockets: impl FnOnce(),
) -> io::Result<()> {
    let relay = Arc::new(Relay {
        inner: inner.to_owned(),
        creator,
        life: Life::default(),
        api: Mutex::default(),
    });
    let listener = Arc::new(listener);
    thread::Builder::new().name("accept".into()).stack_size(STACK).spawn({
        let (relay, listener) = (Arc::clone(&relay), Arc::clone(&listener));
        move || accept(&relay, &listener)
    })?;
    let error = inner_ended();
    let silent = relay.life.end(Refusal::precondition(&error));
    if silent {
        log::error!("{error}");
        relay.life.wait_until_told(LINGER);
    } else {
        log::debug!("the inner shim has ended");
    }
    remove_sockets();
    // Ends the accepting thread; the listener itself lives as long as that.
    socket::shutdown(std::os::fd::AsRawFd::as_raw_fd(&*listener), Shutdown::Both)?;
    relay.life.wait_until_alone(DRAIN);
    Ok(())
}

fn accept(relay: &Arc<Relay>, listener: &UnixListener) {
    loop {
        match listener.accept() {
            Ok((outer, _)) => open(relay, outer),
            // The listener was shut down: the inner shim has ended.
            Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => return,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                log::warn!("accepting a connection: {error}");
                thread::sleep(BREATH);
            }
        }
    }
}

fn open(relay: &Arc<Relay>, outer: UnixStream) {
    match is_ours(&outer) {
        Ok(true) => {}
        Ok(false) => return log::warn!("a connection of another user was closed"),
        Err(error) => return log::warn!("whose connection is this: {error}"),
    }
    let guest = relay.life.enter();
    let relay = Arc::clone(relay);
    let spawned =
        thread::Builder::new().name("requests".into()).stack_size(STACK).spawn(move || {
            connection::serve(&relay, &outer);
            drop(guest);
        });
    if let Err(error) = spawned {
        log::error!("a thread for a connection: {error}");
    }
}

/// Whether the peer runs as the user and group that we do, which is what the stock shim asks too.
fn is_ours(outer: &UnixStream) -> nix::Result<bool> {
    let peer = socket::getsockopt(outer, sockopt::PeerCredentials)?;
    Ok(peer.uid() == geteuid().as_raw() && peer.gid() == getegid().as_raw())
}

impl Relay {
    /// The version of the task service that the inner shim serves; asked once.
    fn api(&self) -> io::Result<Api> {
        let mut api = self.api.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(api) = *api {
            return Ok(api);
        }
        let found = probe::ask(&self.inner)?;
        self.life.answered();
        *api = Some(found);
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
