//! A relay between a client and an inner shim that are both played by the test.

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::{JoinHandle, spawn};

use containerd_shim_protos::api::CreateTaskRequest;
use containerd_shim_protos::protobuf::Message;
use containerd_shim_protos::ttrpc::proto::{Code as Status, Request, Response};
use nvidia_oci::{Code, Error, Handler};

use crate::create::Creator;
use crate::frame::answer::Refusal;
use crate::frame::{Frame, Frames, Incoming, REQUEST, RESPONSE};
use crate::relay::serve;
use crate::worker::Worker;

pub(super) const V2: &str = "containerd.task.v2.Task";
pub(super) const V3: &str = "containerd.task.v3.Task";

pub(super) struct Scene {
    dir: tempfile::TempDir,
    /// The inner shim's side.
    pub(super) inner: UnixListener,
    end: Sender<String>,
    relay: JoinHandle<()>,
}

impl Scene {
    /// A relay whose worker is a shell script.
    pub(super) fn new(worker: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let outer = UnixListener::bind(dir.path().join("outer")).unwrap();
        let path = dir.path().join("inner");
        let inner = UnixListener::bind(&path).unwrap();
        let (end, ended) = channel::<String>();
        let script = worker.to_owned();
        let worker = Worker::new(move || {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &script]);
            command
        });
        let creator = Creator::with(Handler::Nvidia, worker);
        let sockets = [dir.path().join("outer"), path.clone()];
        let relay = spawn(move || {
            let inner_ended = || Error::new(Code::InnerShim, ended.recv().unwrap_or_default());
            // Those of a test that is over are gone.
            let remove = || sockets.iter().for_each(|path| drop(std::fs::remove_file(path)));
            serve(outer, &path, creator, inner_ended, remove).unwrap();
        });
        Self { dir, inner, end, relay }
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn connect(&self) -> Client {
        let stream = UnixStream::connect(self.path().join("outer")).unwrap();
        Client { frames: Frames::new(stream.try_clone().unwrap()), stream }
    }

    /// The inner shim's end of the next connection.
    pub(super) fn accept(&self) -> Client {
        let (stream, _) = self.inner.accept().unwrap();
        Client { frames: Frames::new(stream.try_clone().unwrap()), stream }
    }

    /// Answers the relay's question which version of the task service is served.
    pub(super) fn be(&self, version: &str) {
        let mut probe = self.accept();
        let request = Request::parse_from_bytes(probe.read().unwrap().payload()).unwrap();
        assert_eq!((request.service.as_str(), request.method.as_str()), (V3, "Connect"));
        let mut response = Response::new();
        if version == V2 {
            response.status.mut_or_insert_default().code = Status::UNIMPLEMENTED.into();
        }
        probe.write(&Frame::new(RESPONSE, 1, 0, &response.write_to_bytes().unwrap()).unwrap());
    }

    /// The process of the inner shim ends and has said `words`.
    pub(super) fn die(self, words: &str) -> Remains {
        drop(self.inner);
        self.end.send(words.to_owned()).unwrap();
        Remains { dir: self.dir, relay: self.relay }
    }

    /// A bundle with this `config.json`.
    pub(super) fn bundle(&self, config: &str) -> PathBuf {
        let bundle = self.path().join("bundle");
        std::fs::create_dir_all(&bundle).unwrap();
        std::fs::write(bundle.join("config.json"), config).unwrap();
        bundle
    }
}

/// A relay whose inner shim has ended.
pub(super) struct Remains {
    dir: tempfile::TempDir,
    relay: JoinHandle<()>,
}

impl Remains {
    pub(super) fn connect(&self) -> Client {
        let stream = UnixStream::connect(self.dir.path().join("outer")).unwrap();
        Client { frames: Frames::new(stream.try_clone().unwrap()), stream }
    }

    /// Waits until the relay has ended, its sockets removed.
    pub(super) fn wait(self) {
        self.relay.join().unwrap();
        assert!(!self.dir.path().join("outer").exists());
        assert!(!self.dir.path().join("inner").exists());
    }
}

/// One end of a connection.
pub(super) struct Client {
    pub(super) stream: UnixStream,
    frames: Frames<UnixStream>,
}

impl Client {
    pub(super) fn write(&mut self, frame: &Frame) {
        self.stream.write_all(frame.bytes()).unwrap();
    }

    /// The next frame; `None` at the end of the connection.
    pub(super) fn read(&mut self) -> Option<Frame> {
        match self.frames.next() {
            Ok(Some(Incoming::Frame(frame))) => Some(frame.clone()),
            Ok(None) => None,
            other => panic!("{other:?}"),
        }
    }

    /// The status code and the message that stream `stream` is refused with.
    pub(super) fn refusal(&mut self, stream: u32) -> (i32, String) {
        let frame = self.read().expect("the connection has ended");
        assert_eq!((frame.header().kind, frame.header().stream), (RESPONSE, stream));
        let response = Response::parse_from_bytes(frame.payload()).unwrap();
        (response.status.code.value(), response.status.message.clone())
    }
}

pub(super) fn request(stream: u32, service: &str, method: &str, payload: &[u8]) -> Frame {
    let request = Request {
        service: service.to_owned(),
        method: method.to_owned(),
        payload: payload.to_owned(),
        timeout_nano: 30_000_000_000,
        ..Request::default()
    };
    Frame::new(REQUEST, stream, 0, &request.write_to_bytes().unwrap()).unwrap()
}

pub(super) fn create(stream: u32, service: &str, bundle: &Path) -> Frame {
    let message = CreateTaskRequest {
        id: "c1".to_owned(),
        bundle: bundle.to_str().unwrap().to_owned(),
        ..CreateTaskRequest::default()
    };
    request(stream, service, "Create", &message.write_to_bytes().unwrap())
}

pub(super) fn response(stream: u32, message: &str) -> Frame {
    Refusal::malformed(message).frame(stream).unwrap()
}
