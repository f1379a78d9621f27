//! ttrpc frames: a header of ten bytes, big endian, and a payload of at most 4 MiB.
//!
//! A frame is carried as the bytes that it came in, header first, so that passing it on is one
//! write of the very same bytes. What is inside a request is looked at in [`request`]; answers of
//! our own are made in [`answer`].

use std::io::{self, BufRead, BufReader, Read};

pub(crate) mod answer;
pub(crate) mod request;

/// The bytes of a header: length and stream id (`u32`), message type and flags (`u8`).
pub(crate) const HEADER_LEN: usize = 10;
/// What ttrpc servers accept (`messageLengthMax` of containerd/ttrpc).
pub(crate) const MAX_PAYLOAD: u32 = 4 << 20;
/// Message type of a request; 2 is a response, 3 data of a stream.
pub(crate) const REQUEST: u8 = 1;
pub(crate) const RESPONSE: u8 = 2;

/// What a connection keeps between two frames; a relay lives as long as its pod.
const KEPT: usize = 4 << 10;
const READ_AHEAD: usize = 4 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Of the payload, in bytes.
    pub(crate) length: u32,
    pub(crate) stream: u32,
    /// Message type.
    pub(crate) kind: u8,
    pub(crate) flags: u8,
}

impl Header {
    fn parse(bytes: [u8; HEADER_LEN]) -> Self {
        let [l0, l1, l2, l3, s0, s1, s2, s3, kind, flags] = bytes;
        Self {
            length: u32::from_be_bytes([l0, l1, l2, l3]),
            stream: u32::from_be_bytes([s0, s1, s2, s3]),
            kind,
            flags,
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let [l0, l1, l2, l3] = self.length.to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [l0, l1, l2, l3, s0, s1, s2, s3, self.kind, self.flags]
    }
}

/// A whole frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    header: Header,
    /// Header and payload, as on the wire.
    bytes: Vec<u8>,
}

impl Frame {
    /// # Errors
    /// `InvalidData` if the payload is larger than [`MAX_PAYLOAD`].
    pub(crate) fn new(kind: u8, stream: u32, flags: u8, payload: &[u8]) -> io::Result<Self> {
        let length = u32::try_from(payload.len()).ok().filter(|length| *length <= MAX_PAYLOAD);
        let length = length.ok_or_else(|| {
            let what = format!("a message of {} bytes is larger than 4 MiB", payload.len());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        let header = Header { length, stream, kind, flags };
        let mut bytes = Vec::with_capacity(HEADER_LEN + payload.len());
        bytes.extend_from_slice(&header.to_bytes());
        bytes.extend_from_slice(payload);
        Ok(Self { header, bytes })
    }

    pub(crate) fn header(&self) -> Header {
        self.header
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn payload(&self) -> &[u8] {
        self.bytes.get(HEADER_LEN..).unwrap_or_default()
    }

    pub(crate) fn payload_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(HEADER_LEN..).unwrap_or_default()
    }
}

/// What comes next on a connection.
#[derive(Debug)]
pub(crate) enum Incoming<'a> {
    Frame(&'a mut Frame),
    /// A payload over [`MAX_PAYLOAD`] follows; it is the caller's to take with
    /// [`Frames::payload`] before the next frame.
    Oversize(Header),
}

/// Reads frames one after the other, in one buffer that is small again after a large frame.
#[derive(Debug)]
pub(crate) struct Frames<R> {
    source: BufReader<R>,
    frame: Frame,
}

impl<R: Read> Frames<R> {
    pub(crate) fn new(source: R) -> Self {
        let header = Header { length: 0, stream: 0, kind: 0, flags: 0 };
        Self {
            source: BufReader::with_capacity(READ_AHEAD, source),
            frame: Frame { header, bytes: Vec::new() },
        }
    }

    /// Waits for the next frame; `None` at the end of the connection.
    ///
    /// # Errors
    /// `UnexpectedEof` if the connection ends within a frame.
    pub(crate) fn next(&mut self) -> io::Result<Option<Incoming<'_>>> {
        self.frame.bytes.clear();
        self.frame.bytes.shrink_to(KEPT);
        if self.is_at_end()? {
            return Ok(None);
        }
        let mut header = [0; HEADER_LEN];
        self.source.read_exact(&mut header)?;
        let parsed = Header::parse(header);
        if parsed.length > MAX_PAYLOAD {
            return Ok(Some(Incoming::Oversize(parsed)));
        }
        self.frame.header = parsed;
        self.frame.bytes.extend_from_slice(&header);
        // Grows with what really comes, not with what the header promises.
        let length = u64::from(parsed.length);
        let read = (&mut self.source).take(length).read_to_end(&mut self.frame.bytes)?;
        if read as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Some(Incoming::Frame(&mut self.frame)))
    }

    fn is_at_end(&mut self) -> io::Result<bool> {
        loop {
            match self.source.fill_buf() {
                Ok(bytes) => return Ok(bytes.is_empty()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The payload of an oversize frame.
    pub(crate) fn payload(&mut self, header: Header) -> impl Read {
        (&mut self.source).take(u64::from(header.length))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Hands out a few bytes at a time, as a socket may.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(buf.len()).min(self.0.len());
            buf[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    proptest! {
        #[test]
        fn bytes_come_out_as_they_went_in(
            frames in prop::collection::vec(
                (any::<u8>(), any::<u32>(), any::<u8>(), prop::collection::vec(any::<u8>(), 0..9000)),
                0..8,
            ),
            step in 1_usize..5000,
        ) {
            let mut wire = Vec::new();
            for (kind, stream, flags, payload) in &frames {
                wire.extend_from_slice(Frame::new(*kind, *stream, *flags, payload).unwrap().bytes());
            }
            let mut reader = Frames::new(Trickle(&wire, step));
            let mut read = Vec::new();
            let mut count = 0;
            while let Some(incoming) = reader.next().unwrap() {
                let Incoming::Frame(frame) = incoming else { panic!("oversize") };
                read.extend_from_slice(frame.bytes());
                count += 1;
            }
            prop_assert_eq!(count, frames.len());
            prop_assert_eq!(read, wire);
        }
    }

    #[test]
    fn the_buffer_is_small_again_after_a_large_frame() {
        let large = Frame::new(REQUEST, 1, 0, &vec![7; MAX_PAYLOAD as usize]).unwrap();
        let small = Frame::new(REQUEST, 3, 0, b"x").unwrap();
        let wire = [large.bytes(), small.bytes()].concat();
        let mut reader = Frames::new(&wire[..]);
        let Some(Incoming::Frame(frame)) = reader.next().unwrap() else { panic!("no frame") };
        assert_eq!(frame.bytes(), large.bytes());
        let Some(Incoming::Frame(frame)) = reader.next().unwrap() else { panic!("no frame") };
        assert_eq!(frame.payload(), b"x");
        assert!(frame.bytes.capacity() <= KEPT);
    }

    #[test]
    fn an_oversize_frame_is_told_and_can_be_skipped() {
        let header = Header { length: MAX_PAYLOAD + 1, stream: 5, kind: REQUEST, flags: 0 };
        let mut wire = header.to_bytes().to_vec();
        wire.resize(wire.len() + header.length as usize, 0);
        let after = Frame::new(REQUEST, 7, 0, b"after").unwrap();
        wire.extend_from_slice(after.bytes());
        let mut reader = Frames::new(&wire[..]);
        let Some(Incoming::Oversize(read)) = reader.next().unwrap() else { panic!("no header") };
        assert_eq!(read, header);
        io::copy(&mut reader.payload(read), &mut io::sink()).unwrap();
        let Some(Incoming::Frame(frame)) = reader.next().unwrap() else { panic!("no frame") };
        assert_eq!(*frame, after);
        assert!(reader.next().unwrap().is_none());
        assert!(Frame::new(REQUEST, 1, 0, &vec![0; MAX_PAYLOAD as usize + 1]).is_err());
    }

    #[test]
    fn an_end_within_a_frame_is_an_error() {
        let wire = Frame::new(REQUEST, 1, 0, b"payload").unwrap();
        for cut in 1..wire.bytes().len() {
            let mut reader = Frames::new(&wire.bytes()[..cut]);
            assert_eq!(reader.next().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
