//! Splits frames into chunks and reassembles them, never beyond the declared length.

use bytes::Bytes;
use fl_compress::Digest;

use crate::error::ProtocolError;
use crate::limits::CHUNK;

/// The chunks of `frame` from `offset` to its end, in order, without copying.
pub fn chunks(frame: Bytes, offset: usize) -> impl Iterator<Item = Bytes> {
    let len = frame.len();
    (offset.min(len)..len)
        .step_by(CHUNK)
        .map(move |start| frame.slice(start..len.min(start + CHUNK)))
}

/// Reassembles a frame of known length and digest in memory.
#[derive(Debug)]
pub struct Assembler {
    bytes: Vec<u8>,
    len: usize,
    digest: Digest,
}

impl Assembler {
    /// Expects `len` bytes with this digest.
    ///
    /// # Errors
    /// `Invalid` if `len` is above `max`; nothing is allocated then.
    pub fn new(len: u64, max: u64, digest: Digest) -> Result<Self, ProtocolError> {
        if len > max {
            return Err(ProtocolError::invalid(
                "len",
                format!("a frame of {len} bytes is above the limit of {max}"),
            ));
        }
        Ok(Self {
            bytes: Vec::new(),
            len: len as usize,
            digest,
        })
    }

    /// Bytes that are still missing.
    pub fn missing(&self) -> usize {
        self.len - self.bytes.len()
    }

    /// Takes as many bytes of `data` as are missing and returns the rest, which belongs to the next frame.
    pub fn push(&mut self, mut data: Bytes) -> Bytes {
        let take = data.split_to(data.len().min(self.missing()));
        if self.bytes.is_empty() {
            self.bytes.reserve_exact(self.len);
        }
        self.bytes.extend_from_slice(&take);
        data
    }

    /// The whole frame.
    ///
    /// # Errors
    /// `Invalid` if bytes are missing or the digest differs.
    pub fn finish(self) -> Result<Vec<u8>, ProtocolError> {
        if self.missing() > 0 {
            return Err(ProtocolError::invalid(
                "data",
                format!("{} of {} bytes are missing", self.missing(), self.len),
            ));
        }
        let digest = Digest::of(&self.bytes);
        if digest != self.digest {
            return Err(ProtocolError::invalid(
                "digest",
                format!("the frame's digest is {digest}, not {}", self.digest),
            ));
        }
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_put_together_are_the_frame_from_any_offset() {
        let frame = Bytes::from((0..600_000u32).map(|i| (i % 251) as u8).collect::<Vec<_>>());
        for offset in [0, 1, CHUNK, CHUNK + 7, frame.len() - 1, frame.len()] {
            let joined: Vec<u8> = chunks(frame.clone(), offset).flatten().collect();
            assert_eq!(joined, &frame[offset..]);
        }
        assert!(chunks(frame.clone(), 0).all(|chunk| chunk.len() <= CHUNK));
    }

    #[test]
    fn assembler_leaves_the_next_frame_alone_and_checks_the_digest() {
        let mut first = Assembler::new(5, 10, Digest::of(b"hello")).unwrap();
        let rest = first.push(Bytes::from_static(b"helloworld"));
        assert_eq!(first.finish().unwrap(), b"hello");
        let mut second = Assembler::new(5, 10, Digest::of(b"other")).unwrap();
        assert!(second.push(rest).is_empty());
        assert!(second.finish().unwrap_err().to_string().contains("digest"));
    }

    #[test]
    fn short_or_oversized_frames_are_refused() {
        assert!(Assembler::new(11, 10, Digest::of(b"")).is_err());
        let mut short = Assembler::new(4, 10, Digest::of(b"abcd")).unwrap();
        short.push(Bytes::from_static(b"abc"));
        assert!(short.finish().unwrap_err().to_string().contains("1 of 4"));
    }
}
