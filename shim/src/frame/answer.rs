//! Answers that are ours: a response that carries a status and nothing else.

use std::io;

use containerd_shim_protos::protobuf::{Message, MessageField};
pub(crate) use containerd_shim_protos::ttrpc::proto::Code;
use containerd_shim_protos::ttrpc::proto::{Response, Status};

use super::{Frame, MAX_PAYLOAD, RESPONSE};

/// As much of a message as is sent, in characters: its start, and its end, where the way out is.
/// containerd hands it on in a gRPC header, where clients take 16 KiB in all.
const START: usize = 3000;
const END: usize = 500;

/// Why a request is not carried out.
///
/// Never with `UNIMPLEMENTED`, which makes containerd 2.x take us for an older API and ask again,
/// nor with `DEADLINE_EXCEEDED`, which it takes for its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    code: Code,
    message: String,
}

impl Refusal {
    /// What was asked cannot be had here and now.
    pub(crate) fn precondition(error: &nvidia_oci::Error) -> Self {
        Self::refused(error.to_string())
    }

    /// The same, already in words.
    pub(crate) fn refused(message: String) -> Self {
        Self { code: Code::FAILED_PRECONDITION, message }
    }

    /// The request itself cannot be read.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self { code: Code::INVALID_ARGUMENT, message: message.into() }
    }

    /// We failed.
    pub(crate) fn internal(error: &nvidia_oci::Error) -> Self {
        Self { code: Code::INTERNAL, message: error.to_string() }
    }

    /// In the words of the server of containerd/ttrpc.
    pub(crate) fn too_large(length: u32) -> Self {
        let message =
            format!("message length {length} exceed maximum message size of {MAX_PAYLOAD}");
        Self { code: Code::RESOURCE_EXHAUSTED, message }
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The answer on the wire.
    pub(crate) fn frame(&self, stream: u32) -> io::Result<Frame> {
        let message = shortened(&self.message);
        let status = Status { code: self.code.into(), message, ..Status::default() };
        let response = Response { status: MessageField::some(status), ..Response::default() };
        Frame::new(RESPONSE, stream, 0, &response.write_to_bytes()?)
    }
}

fn shortened(message: &str) -> String {
    let length = message.chars().count();
    if length <= START + END {
        return message.to_owned();
    }
    let (start, end) = (message.chars().take(START), message.chars().skip(length - END));
    start.chain(['…']).chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_any_length_is_an_answer() {
        let error = Refusal::refused(format!("start {} way out", "é".repeat(8 << 20)));
        let frame = error.frame(1).unwrap();
        assert!(frame.payload().len() < 8 << 10);
        let message = Response::parse_from_bytes(frame.payload()).unwrap().status.message.clone();
        assert!(message.starts_with("start é") && message.ends_with("é way out"), "{message}");
    }

    #[test]
    fn a_refusal_is_a_response_with_a_status() {
        let frame = Refusal::too_large(5_000_000).frame(9).unwrap();
        assert_eq!((frame.header().kind, frame.header().stream, frame.header().flags), (2, 9, 0));
        // 1: status { 1: code 8, 2: message }
        assert_eq!(frame.payload()[0], 0x0a);
        assert_eq!(frame.payload()[2..4], [0x08, 8]);
        let response = Response::parse_from_bytes(frame.payload()).unwrap();
        assert_eq!(
            response.status.message,
            "message length 5000000 exceed maximum message size of 4194304"
        );
    }
}
