//! What is inside a request frame: the ttrpc `Request`, looked at field by field, so that whatever
//! is not understood (metadata, fields of a later version) stays as it is.

use std::io;
use std::ops::Range;
use std::time::Duration;

use containerd_shim_protos::protobuf::rt::WireType;
use containerd_shim_protos::protobuf::{CodedInputStream, CodedOutputStream, Error};

/// The task service up to containerd 1.7, and still spoken by 2.x; what we announce.
pub(crate) const TASK_V2: &[u8] = b"containerd.task.v2.Task";
/// The same service under the name that containerd 2.0 gave it.
pub(crate) const TASK_V3: &[u8] = b"containerd.task.v3.Task";

// Field numbers of ttrpc's `Request`; the fifth is the metadata.
const SERVICE: u32 = 1;
const METHOD: u32 = 2;
const PAYLOAD: u32 = 3;
const TIMEOUT_NANO: u32 = 4;

/// Where the fields of a request lie in the payload of its frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    service: Range<usize>,
    method: Range<usize>,
    payload: Range<usize>,
    timeout_nano: i64,
}

impl Request {
    /// # Errors
    /// The bytes are no protobuf message.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let mut request = Self::default();
        // As in every protobuf message, the last of several wins, and a field with a value of
        // another type is another field.
        each_field(bytes, |field| match (field.number, field.value) {
            (SERVICE, Value::Bytes(at)) => request.service = at,
            (METHOD, Value::Bytes(at)) => request.method = at,
            (PAYLOAD, Value::Bytes(at)) => request.payload = at,
            (TIMEOUT_NANO, Value::Varint(nanos)) => request.timeout_nano = nanos.cast_signed(),
            _ => {}
        })?;
        Ok(request)
    }

    /// Whether the request is a method of the task service, in either of its versions.
    pub(crate) fn is_task(&self, bytes: &[u8]) -> bool {
        let service = part(bytes, &self.service);
        service == TASK_V2 || service == TASK_V3
    }

    /// Whether the request is for the task service under its old name.
    pub(crate) fn is_task_v2(&self, bytes: &[u8]) -> bool {
        part(bytes, &self.service) == TASK_V2
    }

    /// Whether a container is to be created (or restored from a checkpoint).
    pub(crate) fn is_create(&self, bytes: &[u8]) -> bool {
        self.is_task(bytes) && part(bytes, &self.method) == b"Create"
    }

    /// The message of the method.
    pub(crate) fn payload<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        part(bytes, &self.payload)
    }

    /// How long the caller waits for the answer.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        let nanos = u64::try_from(self.timeout_nano).ok().filter(|nanos| *nanos > 0)?;
        Some(Duration::from_nanos(nanos))
    }

    /// Renames the task service of version 2 to version 3, in place: the names differ in one
    /// byte, the messages in none.
    pub(crate) fn rename_task(&self, bytes: &mut [u8]) {
        if let Some(service) = bytes.get_mut(self.service.clone())
            && service == TASK_V2
        {
            service.copy_from_slice(TASK_V3);
        }
    }

    /// The request with another payload and, if it has one, another timeout; everything else as it
    /// was.
    pub(crate) fn rewrite(
        bytes: &[u8],
        payload: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Vec<u8>, Error> {
        let mut rewritten = Vec::with_capacity(bytes.len() + payload.len());
        each_field(bytes, |field| {
            let replaced = match field.value {
                Value::Bytes(_) => field.number == PAYLOAD,
                Value::Varint(_) => field.number == TIMEOUT_NANO && timeout.is_some(),
                Value::Other => false,
            };
            if !replaced {
                rewritten.extend_from_slice(part(bytes, &field.whole));
            }
        })?;
        let mut out = CodedOutputStream::vec(&mut rewritten);
        out.write_bytes(PAYLOAD, payload)?;
        if let Some(timeout) = timeout {
            // Zero would mean that there is none.
            let nanos = i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX).max(1);
            out.write_int64(TIMEOUT_NANO, nanos)?;
        }
        out.flush()?;
        drop(out);
        Ok(rewritten)
    }
}

fn part<'a>(bytes: &'a [u8], range: &Range<usize>) -> &'a [u8] {
    bytes.get(range.clone()).unwrap_or_default()
}

/// A field of a message: where it lies with its tag, and its value.
struct Field {
    number: u32,
    whole: Range<usize>,
    value: Value,
}

enum Value {
    /// Where they are.
    Bytes(Range<usize>),
    Varint(u64),
    Other,
}

fn each_field(bytes: &[u8], mut visit: impl FnMut(Field)) -> Result<(), Error> {
    let mut input = CodedInputStream::from_bytes(bytes);
    loop {
        let start = position(&input)?;
        let Some(tag) = input.read_raw_tag_or_eof()? else { return Ok(()) };
        let wire_type = WireType::new(tag & 7)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unknown wire type"))?;
        let value = match wire_type {
            WireType::LengthDelimited => {
                let length = input.read_raw_varint32()?;
                let from = position(&input)?;
                input.skip_raw_bytes(length)?;
                Value::Bytes(from..position(&input)?)
            }
            WireType::Varint => Value::Varint(input.read_raw_varint64()?),
            other => {
                input.skip_field(other)?;
                Value::Other
            }
        };
        visit(Field { number: tag >> 3, whole: start..position(&input)?, value });
    }
}

fn position(input: &CodedInputStream<'_>) -> Result<usize, Error> {
    Ok(usize::try_from(input.pos()).map_err(io::Error::other)?)
}

#[cfg(test)]
mod tests {
    use containerd_shim_protos::protobuf::Message;
    use containerd_shim_protos::ttrpc::proto::{KeyValue, Request as Typed};
    use proptest::prelude::*;

    use super::*;

    fn typed(service: &str, payload: &[u8], timeout_nano: i64) -> Typed {
        let key_value = KeyValue { key: "k".into(), value: "v".into(), ..KeyValue::default() };
        let mut request = Typed {
            service: service.into(),
            method: "Create".into(),
            payload: payload.into(),
            timeout_nano,
            metadata: vec![key_value],
            ..Typed::default()
        };
        request.special_fields.mut_unknown_fields().add_length_delimited(99, b"later".to_vec());
        request
    }

    #[test]
    fn fields_are_found() {
        let bytes = typed("containerd.task.v2.Task", b"xyz", 5).write_to_bytes().unwrap();
        let request = Request::parse(&bytes).unwrap();
        assert!(request.is_create(&bytes) && request.is_task_v2(&bytes));
        assert_eq!(request.payload(&bytes), b"xyz");
        assert_eq!(request.timeout(), Some(Duration::from_nanos(5)));
    }

    #[test]
    fn the_service_is_renamed_in_place() {
        let mut bytes = typed("containerd.task.v2.Task", b"xyz", 0).write_to_bytes().unwrap();
        Request::parse(&bytes).unwrap().rename_task(&mut bytes);
        let renamed = typed("containerd.task.v3.Task", b"xyz", 0).write_to_bytes().unwrap();
        assert_eq!(bytes, renamed);
        Request::parse(&bytes).unwrap().rename_task(&mut bytes);
        assert_eq!(bytes, renamed);
        let mut other = typed("containerd.task.v2.Tusk", b"xyz", 0).write_to_bytes().unwrap();
        let before = other.clone();
        Request::parse(&other).unwrap().rename_task(&mut other);
        assert_eq!(other, before);
    }

    #[test]
    fn a_field_of_another_type_is_another_field() {
        let mut bytes = typed("containerd.task.v2.Task", b"xyz", 5).write_to_bytes().unwrap();
        // Service, method and payload as numbers, the timeout as bytes.
        bytes.extend([1 << 3, 0, 2 << 3, 0, 3 << 3, 0, 4 << 3 | 2, 0]);
        let request = Request::parse(&bytes).unwrap();
        assert!(request.is_create(&bytes));
        assert_eq!(request.payload(&bytes), b"xyz");
        assert_eq!(request.timeout(), Some(Duration::from_nanos(5)));
    }

    #[test]
    fn nested_groups_are_an_error() {
        let groups = vec![1 << 3 | 3; 4 << 20];
        let parse = || assert!(Request::parse(&groups).is_err());
        let small = std::thread::Builder::new().stack_size(128 << 10);
        std::thread::scope(|scope| small.spawn_scoped(scope, parse).unwrap().join().unwrap());
    }

    #[test]
    fn a_negative_timeout_is_none() {
        let bytes = typed("s", b"", -1).write_to_bytes().unwrap();
        assert_eq!(Request::parse(&bytes).unwrap().timeout(), None);
    }

    proptest! {
        #[test]
        fn rewriting_changes_only_what_it_should(
            before in prop::collection::vec(any::<u8>(), 0..300),
            after in prop::collection::vec(any::<u8>(), 0..300),
            timeout in 0_i64..1_000_000,
        ) {
            let bytes = typed("containerd.task.v3.Task", &before, timeout).write_to_bytes().unwrap();
            let rewritten =
                Request::rewrite(&bytes, &after, Some(Duration::from_nanos(7))).unwrap();
            let read = Typed::parse_from_bytes(&rewritten).unwrap();
            prop_assert_eq!(read, typed("containerd.task.v3.Task", &after, 7));
            let rewritten = Request::rewrite(&bytes, &after, None).unwrap();
            let read = Typed::parse_from_bytes(&rewritten).unwrap();
            prop_assert_eq!(read, typed("containerd.task.v3.Task", &after, timeout));
        }

        #[test]
        fn hostile_bytes_are_an_error_or_a_request(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Ok(request) = Request::parse(&bytes) {
                let _ = request.is_create(&bytes);
                let mut renamed = bytes.clone();
                request.rename_task(&mut renamed);
                prop_assert_eq!(renamed.len(), bytes.len());
            }
        }
    }
}
