//! One connection of containerd and the one to the inner shim that belongs to it.
//!
//! Frames pass as they are, in both directions independently: a `Wait` is answered hours after
//! requests that came later. Stream ids are never changed, which is why connections are never
//! merged. Only a Create is opened; while it is worked on, later requests of the same connection
//! wait, since stream ids must reach the inner shim in rising order.

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::probe::Api;
use super::{Relay, STACK};
use crate::create::Verdict;
use crate::frame::answer::Refusal;
use crate::frame::request::Request;
use crate::frame::{Frame, Frames, Header, Incoming, REQUEST, RESPONSE};

/// How long the end of the inner shim may take to be known after it closed a connection.
const PATIENCE: Duration = Duration::from_secs(2);

struct Connection<'a> {
    relay: &'a Relay,
    outer: &'a UnixStream,
    inner: UnixStream,
    /// Held while a frame is written to containerd: the inner shim's answers and ours share the
    /// socket.
    writing: Mutex<()>,
    stage: Mutex<Stage>,
}

/// How far the connection is.
#[derive(Debug, Default)]
struct Stage {
    /// The stream of the Create that the inner shim has not answered yet.
    create: Option<u32>,
    /// containerd sends no more.
    outer_ended: bool,
    /// The inner shim was never up: the answer to the first Create that comes.
    refusal: Option<Refusal>,
}

/// Serves a connection to its end.
pub(super) fn serve(relay: &Relay, outer: &UnixStream) {
    match UnixStream::connect(&relay.inner) {
        Ok(inner) => {
            let (writing, stage) = (Mutex::default(), Mutex::default());
            Connection { relay, outer, inner, writing, stage }.serve();
        }
        Err(error) => match relay.life.why(PATIENCE) {
            Some(refusal) => explain(relay, outer, &refusal),
            None => log::error!("connecting to {}: {error}", relay.inner.display()),
        },
    }
    // Whoever still reads is told that this connection is over.
    let _ = outer.shutdown(Shutdown::Both);
}

/// There is no inner shim: the first request is answered, if it is a Create.
fn explain(relay: &Relay, outer: &UnixStream, refusal: &Refusal) {
    if let Ok(Some(Incoming::Frame(frame))) = Frames::new(outer).next()
        && is_create(frame)
        && refusal.frame(frame.header().stream).and_then(|f| (&*outer).write_all(f.bytes())).is_ok()
    {
        relay.life.told();
    }
}

fn is_create(frame: &Frame) -> bool {
    frame.header().kind == REQUEST
        && Request::parse(frame.payload()).is_ok_and(|request| request.is_create(frame.payload()))
}

impl Connection<'_> {
    fn serve(&self) {
        thread::scope(|scope| {
            let answers = thread::Builder::new().name("answers".into()).stack_size(STACK);
            match answers.spawn_scoped(scope, || self.answers()) {
                Ok(_) => self.requests(),
                Err(error) => log::error!("a thread for a connection: {error}"),
            }
        });
    }

    /// containerd → inner shim, until either has ended.
    fn requests(&self) {
        let mut frames = Frames::new(self.outer);
        let result = loop {
            let step = match frames.next() {
                Ok(None) => break Ok(()),
                Ok(Some(Incoming::Frame(frame))) => self.request(frame),
                Ok(Some(Incoming::Oversize(header))) => {
                    self.oversize_request(header, &mut frames.payload(header))
                }
                Err(error) => Err(error),
            };
            if step.is_err() {
                break step;
            }
        };
        self.stage().outer_ended = true;
        // A client that has only finished sending still gets its answers.
        let over = result.is_err() || hung_up(self.outer);
        let _ = self.inner.shutdown(if over { Shutdown::Both } else { Shutdown::Write });
    }

    fn request(&self, frame: &mut Frame) -> io::Result<()> {
        if frame.header().kind != REQUEST {
            return self.pass(frame);
        }
        // What we cannot read is the inner shim's to refuse.
        match Request::parse(frame.payload()) {
            Ok(request) if request.is_create(frame.payload()) => self.create(frame, &request),
            Ok(request) => {
                self.rename(&request, frame)?;
                self.pass(frame)
            }
            Err(_) => self.pass(frame),
        }
    }

    fn create(&self, frame: &mut Frame, request: &Request) -> io::Result<()> {
        let Header { stream, flags, .. } = frame.header();
        let verdict = self.relay.creator.judge(request.payload(frame.payload()), request.timeout());
        let (payload, timeout) = match verdict {
            Verdict::Pass => (None, None),
            Verdict::Change { payload, timeout } => (Some(payload), timeout),
            Verdict::Refuse(refusal) => return self.answer(stream, &refusal),
        };
        {
            let mut stage = self.stage();
            if let Some(refusal) = stage.refusal.take() {
                self.answer(stream, &refusal)?;
                self.relay.life.told();
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            stage.create = Some(stream);
        }
        let Some(payload) = payload else {
            self.rename(request, frame)?;
            return self.pass(frame);
        };
        let rewritten = Request::rewrite(frame.payload(), &payload, timeout)?;
        let Ok(mut frame) = Frame::new(REQUEST, stream, flags, &rewritten) else {
            self.stage().create = None;
            let length = u32::try_from(rewritten.len()).unwrap_or(u32::MAX);
            return self.answer(stream, &Refusal::too_large(length));
        };
        let request = Request::parse(frame.payload())?;
        self.rename(&request, &mut frame)?;
        self.pass(&frame)
    }

    /// Gives the task service the name that the inner shim knows.
    fn rename(&self, request: &Request, frame: &mut Frame) -> io::Result<()> {
        if request.is_task_v2(frame.payload()) && self.relay.api()? == Api::V3 {
            request.rename_task(frame.payload_mut());
        }
        Ok(())
    }

    fn pass(&self, frame: &Frame) -> io::Result<()> {
        (&self.inner).write_all(frame.bytes())
    }

    /// As the server does it: an answer on that stream, and the connection goes on.
    fn oversize_request(&self, header: Header, payload: &mut impl io::Read) -> io::Result<()> {
        self.answer(header.stream, &Refusal::too_large(header.length))?;
        io::copy(payload, &mut io::sink()).map(drop)
    }

    fn answer(&self, stream: u32, refusal: &Refusal) -> io::Result<()> {
        log::debug!("stream {stream}: {}", refusal.message());
        self.send(|mut outer| outer.write_all(refusal.frame(stream)?.bytes()))
    }

    fn send(&self, write: impl FnOnce(&UnixStream) -> io::Result<()>) -> io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        write(self.outer)
    }

    /// Inner shim → containerd, until either has ended.
    fn answers(&self) {
        let mut frames = Frames::new(&self.inner);
        let mut silent = true;
        while let Ok(Some(incoming)) = frames.next() {
            if std::mem::take(&mut silent) {
                self.relay.life.answered();
            }
            let sent = match incoming {
                Incoming::Frame(frame) => {
                    self.answered(frame.header());
                    self.send(|mut outer| outer.write_all(frame.bytes()))
                }
                Incoming::Oversize(header) => {
                    self.answered(header);
                    self.send(|mut outer| {
                        outer.write_all(&header.to_bytes())?;
                        io::copy(&mut frames.payload(header), &mut outer).map(drop)
                    })
                }
            };
            if sent.is_err() {
                // containerd is gone; the other direction finds its end there too.
                let _ = self.inner.shutdown(Shutdown::Both);
                let _ = self.outer.shutdown(Shutdown::Both);
                return;
            }
        }
        self.inner_closed();
    }

    fn answered(&self, header: Header) {
        let mut stage = self.stage();
        if header.kind == RESPONSE && stage.create == Some(header.stream) {
            stage.create = None;
        }
    }

    /// The inner shim closed the connection. If that was its end, a Create is told why.
    fn inner_closed(&self) {
        let mut stage = self.stage();
        let waiting = stage.create.take();
        if waiting.is_some() || !(stage.outer_ended || self.relay.life.has_answered()) {
            match (self.relay.life.why(PATIENCE), waiting) {
                (Some(refusal), Some(stream)) => {
                    if self.answer(stream, &refusal).is_ok() {
                        self.relay.life.told();
                    }
                }
                (Some(refusal), None) => {
                    // Open until the Create comes for which the connection was made.
                    stage.refusal = Some(refusal);
                    return;
                }
                (None, _) => {}
            }
        }
        let over = hung_up(&self.inner);
        let _ = self.outer.shutdown(if over { Shutdown::Both } else { Shutdown::Write });
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the peer has closed its socket altogether rather than only finished sending.
fn hung_up(stream: &UnixStream) -> bool {
    let fd = stream.as_fd();
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let polled = poll(&mut fds, Some(&at_once));
    polled.is_err() || fds.iter().any(|fd| fd.revents().contains(PollFlags::HUP))
}
