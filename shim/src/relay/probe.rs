//! Which version of the task service does the inner shim serve? Asked on a connection of its own,
//! with the one call that changes nothing.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use containerd_shim_protos::protobuf::Message;
use containerd_shim_protos::ttrpc::proto::{Code, Request, Response};

use crate::frame::{Frame, Frames, Incoming, REQUEST};

/// An inner shim is up after some 10 ms; this is for a machine in trouble.
const PATIENCE: Duration = Duration::from_secs(10);

/// The task service of an inner shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    V2,
    V3,
}

/// Asks with `Connect`, which answers with process id 0 for an id that is not known.
pub(super) fn ask(inner: &Path) -> io::Result<Api> {
    let mut stream = UnixStream::connect(inner)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = Request {
        service: "containerd.task.v3.Task".to_owned(),
        method: "Connect".to_owned(),
        timeout_nano: i64::try_from(PATIENCE.as_nanos()).unwrap_or(i64::MAX),
        ..Request::default()
    };
    stream.write_all(Frame::new(REQUEST, 1, 0, &request.write_to_bytes()?)?.bytes())?;
    match Frames::new(&stream).next()? {
        Some(Incoming::Frame(frame)) => {
            let response = Response::parse_from_bytes(frame.payload())?;
            let unknown = response.status.code == Code::UNIMPLEMENTED.into();
            Ok(if unknown { Api::V2 } else { Api::V3 })
        }
        Some(Incoming::Oversize(_)) => Err(io::ErrorKind::InvalidData.into()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
