//! The run in a reply to `Join`, compressed. All clients of a run are told the same but for their names and pending updates, and a
//! client that comes back to its run has been told before.

use std::io::{Read as _, Write as _};

use bytes::Bytes;
use fl_compress::Digest;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use prost::Message as _;

use crate::error::ProtocolError;
use crate::join::Joined;
use crate::limits::MAX_MESSAGE;
use crate::names::ClientId;
use crate::run_digest::RunDigest;
use crate::update::UpdateReply;
use crate::wire;

/// What every client of a run is told, compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedRun {
    deflated: Bytes,
    digest: RunDigest,
}

impl JoinedRun {
    /// Of a reply to any client of the run.
    ///
    /// # Errors
    /// `Invalid` if a table of the run cannot be written as JSON.
    pub fn of(joined: &Joined) -> Result<Self, ProtocolError> {
        let mut deflater = DeflateEncoder::new(Vec::new(), Compression::best());
        let written = deflater.write_all(&joined.run_to_wire()?.encode_to_vec());
        let deflated = written.and_then(|()| deflater.finish());
        Ok(Self::from_deflated(deflated.map_err(invalid)?.into()))
    }

    fn from_deflated(deflated: Bytes) -> Self {
        let digest = RunDigest(Digest::of(&deflated).short());
        Self { deflated, digest }
    }

    /// The reply to one client. `known`: what it was told before.
    pub fn reply(&self, client: &ClientId, pending: Option<UpdateReply>, known: Option<RunDigest>) -> wire::JoinReply {
        let is_known = known == Some(self.digest);
        wire::JoinReply {
            client: client.to_string(),
            pending: pending.map(Into::into),
            run: if is_known { Bytes::new() } else { self.deflated.clone() },
        }
    }
}

/// Reads a reply; `known` is what an earlier one said. Returns what to send with the next request.
///
/// # Errors
/// `Invalid` or `Missing`, with the field.
pub fn read_join(
    reply: wire::JoinReply,
    known: Option<(RunDigest, &Joined)>,
) -> Result<(Joined, RunDigest), ProtocolError> {
    let client = reply.client.parse()?;
    let pending = reply.pending.map(UpdateReply::try_from).transpose()?;
    if reply.run.is_empty() {
        let (digest, known) = known.ok_or(ProtocolError::Missing("run"))?;
        let known = known.clone();
        return Ok((
            Joined {
                client,
                pending,
                ..known
            },
            digest,
        ));
    }
    let mut inflated = Vec::new();
    let limit = MAX_MESSAGE as u64;
    let mut inflater = DeflateDecoder::new(&*reply.run).take(limit + 1);
    inflater.read_to_end(&mut inflated).map_err(invalid)?;
    if inflated.len() > MAX_MESSAGE {
        return Err(invalid(format!("it inflates to more than {MAX_MESSAGE} bytes")));
    }
    let run = wire::Run::decode(&*inflated).map_err(invalid)?;
    let digest = JoinedRun::from_deflated(reply.run).digest;
    Ok((Joined::of_wire(client, pending, run)?, digest))
}

fn invalid(why: impl std::fmt::Display) -> ProtocolError {
    ProtocolError::invalid("run", why.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::join::tests::joined;

    fn deflated(bytes: &[u8]) -> wire::JoinReply {
        let mut deflater = DeflateEncoder::new(Vec::new(), Compression::best());
        deflater.write_all(bytes).unwrap();
        wire::JoinReply {
            client: "a".to_owned(),
            pending: None,
            run: deflater.finish().unwrap().into(),
        }
    }

    #[test]
    fn a_reply_survives_and_is_short_for_a_client_that_knows_the_run() {
        let tensors = (0..48).map(|i| (format!("blocks.{}.mlp.{}.weight", i / 4, i % 4), vec![64, 256]));
        let layout = fl_compress::Layout::new(tensors).unwrap();
        let (aside, base) = (Vec::new(), None);
        let joined = Joined {
            layout,
            aside,
            base,
            serves_base: false,
            ..joined()
        };
        let run = JoinedRun::of(&joined).unwrap();
        let reply = run.reply(&joined.client, joined.pending.clone(), None);
        let lens = (reply.encoded_len(), joined.run_to_wire().unwrap().encoded_len());
        assert!(2 * lens.0 < lens.1, "{lens:?}");
        let (read, digest) = read_join(reply, None).unwrap();
        assert_eq!((&read, digest), (&joined, run.digest));

        let berta: ClientId = "berta".parse().unwrap();
        let reply = run.reply(&berta, None, Some(digest));
        assert!(reply.encoded_len() < 16);
        let other = Joined {
            client: berta,
            pending: None,
            ..joined.clone()
        };
        assert_eq!(
            read_join(reply.clone(), Some((run.digest, &joined))).unwrap(),
            (other, digest)
        );
        assert_eq!(read_join(reply, None), Err(ProtocolError::Missing("run")));
    }

    #[test]
    fn a_field_of_a_later_minor_version_is_skipped() {
        let mut run = joined().run_to_wire().unwrap().encode_to_vec();
        // Field 1000: the text `new`.
        run.extend_from_slice(b"\xc2\x3e\x03new");
        let read = read_join(deflated(&run), None).unwrap().0;
        assert_eq!((read.layout, read.training), (joined().layout, joined().training));
    }

    #[test]
    fn another_run_is_told_whole() {
        let run = JoinedRun::of(&joined()).unwrap();
        let longer = Joined { rounds: 11, ..joined() };
        let longer = JoinedRun::of(&longer).unwrap();
        let (client, known) = ("a".parse().unwrap(), Some(run.digest));
        assert!(!longer.reply(&client, None, known).run.is_empty());
        assert!(run.reply(&client, None, known).run.is_empty());
    }

    #[test]
    fn what_inflates_without_end_is_refused_after_the_longest_message() {
        let error = read_join(deflated(&vec![0; 64 << 20]), None).unwrap_err().to_string();
        assert!(error.contains("run") && error.contains("524288"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), flip in any::<prop::sample::Index>(), bit in 0..8) {
            let _ = read_join(deflated(&bytes), None);
            let mut reply = JoinedRun::of(&joined()).unwrap().reply(&"a".parse().unwrap(), None, None);
            let mut flipped = reply.run.to_vec();
            let at = flip.index(flipped.len());
            flipped[at] ^= 1u8 << bit;
            reply.run = flipped.into();
            let _ = read_join(reply, None);
        }
    }
}
