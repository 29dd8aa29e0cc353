//! The bytes of a record: version, kind, fields in the order of their declaration, CRC-32C of all before it.
//!
//! Integers and floats are little-endian; a text is its length (u16) and UTF-8; an option is a byte 0 or 1 and then
//! the value; a set of clients is a count (u32) and their names, rising. Each version is frozen: a change is the next one,
//! read beside it. A record is written in the lowest version that can hold it, so that what was read is written as it was:
//! the chain of rounds depends on that.
//!
//! Version 2: `RoundClosing` is under the plan's limits; `RolledBack` and `Excluded` are new.

use std::collections::BTreeSet;

use fl_compress::Stages;
use fl_proto::ClientId;

use super::cursor::Cursor;
use super::{Accepted, Record};

const VERSION: u8 = 2;
/// Longest text kept in a record, in bytes; a longer one is cut.
const MAX_TEXT: usize = 4_096;

/// Bytes that are not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// They end too early.
    #[error("truncated at byte {offset}: {what} is missing")]
    Truncated {
        /// The field.
        what: &'static str,
        /// Where.
        offset: usize,
    },
    /// They are not what was written.
    #[error("corrupt at byte {offset}: {what}")]
    Corrupt {
        /// The field or rule.
        what: &'static str,
        /// Where.
        offset: usize,
    },
    /// They were written by a newer program.
    #[error("version {theirs}; this program reads up to {ours}: update it")]
    Newer {
        /// The version found.
        theirs: u8,
        /// The newest that this program reads.
        ours: u8,
    },
}

impl Record {
    /// The bytes that are stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Out(vec![self.version()]);
        match self {
            Self::Started { plan, model, at } => out.u8(1).raw(&plan.0).raw(&model.0).u64(*at),
            Self::Gathered { since } => match since {
                None => out.u8(2).u8(0),
                Some(at) => out.u8(2).u8(1).u64(*at),
            },
            Self::RoundOpened {
                round,
                attempt,
                cohort,
                present,
                at,
                deadline,
            } => out
                .u8(3)
                .u64(*round)
                .u32(*attempt)
                .clients(cohort)
                .u32(*present)
                .u64(*at)
                .u64(*deadline),
            Self::UpdateAccepted { round, client, update } => out.u8(4).u64(*round).client(client).accepted(update),
            Self::RoundClosing { round, at, limited: _ } => out.u8(5).u64(*round).u64(*at),
            Self::RoundClosed {
                round,
                frame,
                frame_len,
                stages,
                model,
                at,
            } => out
                .u8(6)
                .u64(*round)
                .raw(&frame.0)
                .u64(*frame_len)
                .stages(stages)
                .raw(&model.0)
                .u64(*at),
            Self::EvaluationAccepted {
                version,
                client,
                examples,
                loss,
                correct,
                at,
            } => out
                .u8(7)
                .u64(*version)
                .client(client)
                .u64(*examples)
                .f64(*loss)
                .u64(*correct)
                .u64(*at),
            Self::EvaluationOpened { version, asked, until } => out.u8(8).u64(*version).clients(asked).u64(*until),
            Self::RunDone { at } => out.u8(9).u64(*at),
            Self::RunFailed { round, why, at } => out.u8(10).u64(*round).text(why).u64(*at),
            Self::Resumed { at, until } => out.u8(11).u64(*at).u64(*until),
            Self::RolledBack { version, to, model, at } => out.u8(12).u64(*version).u64(*to).raw(&model.0).u64(*at),
            Self::Excluded { round, client, at } => out.u8(13).u64(*round).client(client).u64(*at),
            Self::MembersReplaced { round, absent, by, at } => {
                out.u8(14).u64(*round).clients(absent).clients(by).u64(*at)
            }
        };
        let crc = crc32c::crc32c(&out.0);
        out.u32(crc);
        out.0
    }

    /// The lowest version that can hold it.
    fn version(&self) -> u8 {
        match self {
            Self::RoundClosing { limited: true, .. }
            | Self::RolledBack { .. }
            | Self::Excluded { .. }
            | Self::MembersReplaced { .. } => 2,
            _ => 1,
        }
    }

    /// Reads what [`Record::to_bytes`] wrote.
    ///
    /// # Errors
    /// `Truncated`, `Corrupt`, `Newer`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let (&theirs, _) = bytes.split_first().ok_or(RecordError::Truncated {
            what: "version",
            offset: 0,
        })?;
        if theirs > VERSION {
            return Err(RecordError::Newer { theirs, ours: VERSION });
        }
        let short = RecordError::Truncated {
            what: "checksum",
            offset: bytes.len(),
        };
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or(short)?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
            return Err(RecordError::Corrupt {
                what: "checksum",
                offset: body.len(),
            });
        }
        let mut from = Cursor::new(body);
        let version = from.u8("version")?;
        let record = fields(&mut from, version)?;
        if record.version() != version {
            return Err(from.corrupt("version"));
        }
        from.finish()?;
        Ok(record)
    }
}

fn fields(from: &mut Cursor<'_>, version: u8) -> Result<Record, RecordError> {
    Ok(match from.u8("kind")? {
        1 => Record::Started {
            plan: from.digest("plan")?,
            model: from.digest("model")?,
            at: from.u64("at")?,
        },
        2 => match from.u8("since")? {
            0 => Record::Gathered { since: None },
            1 => Record::Gathered {
                since: Some(from.u64("since")?),
            },
            _ => return Err(from.corrupt("since")),
        },
        3 => Record::RoundOpened {
            round: from.u64("round")?,
            attempt: from.u32("attempt")?,
            cohort: from.clients()?,
            present: from.u32("present")?,
            at: from.u64("at")?,
            deadline: from.u64("deadline")?,
        },
        4 => Record::UpdateAccepted {
            round: from.u64("round")?,
            client: from.client()?,
            update: from.accepted()?,
        },
        5 => Record::RoundClosing {
            round: from.u64("round")?,
            at: from.u64("at")?,
            limited: version > 1,
        },
        6 => Record::RoundClosed {
            round: from.u64("round")?,
            frame: from.digest("frame")?,
            frame_len: from.u64("frame_len")?,
            stages: from.stages()?,
            model: from.digest("model")?,
            at: from.u64("at")?,
        },
        7 => Record::EvaluationAccepted {
            version: from.u64("version")?,
            client: from.client()?,
            examples: from.u64("examples")?,
            loss: from.f64("loss")?,
            correct: from.u64("correct")?,
            at: from.u64("at")?,
        },
        8 => Record::EvaluationOpened {
            version: from.u64("version")?,
            asked: from.clients()?,
            until: from.u64("until")?,
        },
        9 => Record::RunDone { at: from.u64("at")? },
        10 => Record::RunFailed {
            round: from.u64("round")?,
            why: from.text("why")?.to_owned(),
            at: from.u64("at")?,
        },
        11 => Record::Resumed {
            at: from.u64("at")?,
            until: from.u64("until")?,
        },
        12 => Record::RolledBack {
            version: from.u64("version")?,
            to: from.u64("to")?,
            model: from.digest("model")?,
            at: from.u64("at")?,
        },
        13 => Record::Excluded {
            round: from.u64("round")?,
            client: from.client()?,
            at: from.u64("at")?,
        },
        14 => Record::MembersReplaced {
            round: from.u64("round")?,
            absent: from.clients()?,
            by: from.clients()?,
            at: from.u64("at")?,
        },
        _ => return Err(from.corrupt("kind")),
    })
}

/// Appends fields to a vector.
struct Out(Vec<u8>);

impl Out {
    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u8(&mut self, value: u8) -> &mut Self {
        self.raw(&[value])
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    fn f64(&mut self, value: f64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    fn text(&mut self, text: &str) -> &mut Self {
        let text = &text[..text.floor_char_boundary(MAX_TEXT)];
        self.raw(&(text.len() as u16).to_le_bytes()).raw(text.as_bytes())
    }

    fn client(&mut self, client: &ClientId) -> &mut Self {
        self.text(client.as_str())
    }

    fn clients(&mut self, clients: &BTreeSet<ClientId>) -> &mut Self {
        self.u32(clients.len() as u32);
        clients.iter().fold(self, |out, client| out.client(client))
    }

    fn stages(&mut self, stages: &Stages) -> &mut Self {
        let Stages {
            fp32,
            reduced,
            quantized,
            coded,
            framed,
            bound,
        } = *stages;
        self.u64(fp32)
            .u64(reduced)
            .u64(quantized)
            .u64(coded)
            .u64(framed)
            .f64(bound)
    }

    fn accepted(&mut self, update: &Accepted) -> &mut Self {
        let Accepted {
            digest,
            len,
            examples,
            loss,
            train_ms,
            encode_ms,
            stages,
            at,
        } = update;
        self.raw(&digest.0)
            .u64(*len)
            .u64(*examples)
            .f64(*loss)
            .u64(*train_ms)
            .u64(*encode_ms)
            .stages(stages)
            .u64(*at)
    }
}

#[cfg(test)]
mod tests {
    use fl_compress::Digest;
    use proptest::prelude::*;

    use super::*;

    fn client(i: u8) -> ClientId {
        format!("client-{i}").parse().unwrap()
    }

    fn accepted(at: u64) -> Accepted {
        let stages = Stages {
            fp32: 400,
            reduced: 80,
            quantized: 30,
            coded: 20,
            framed: 100,
            bound: 19.5,
        };
        let digest = Digest([7; 32]);
        Accepted {
            digest,
            len: 100,
            examples: 60,
            loss: 0.5,
            train_ms: 7,
            encode_ms: 1,
            stages,
            at,
        }
    }

    fn each(a: u64, b: u64, names: &[u8], why: String) -> Vec<Record> {
        let cohort: BTreeSet<_> = names.iter().map(|&i| client(i)).collect();
        let (model, frame, stages) = (Digest::of(b"m"), Digest::of(b"f"), accepted(0).stages);
        let (one, loss) = (client(a as u8), b as f64 / 3.0);
        vec![
            Record::Started {
                plan: frame,
                model,
                at: a,
            },
            Record::Gathered { since: None },
            Record::Gathered { since: Some(b) },
            Record::RoundOpened {
                round: a,
                attempt: 2,
                cohort: cohort.clone(),
                present: 9,
                at: b,
                deadline: a,
            },
            Record::UpdateAccepted {
                round: a,
                client: one.clone(),
                update: accepted(b),
            },
            Record::RoundClosing {
                round: a,
                at: b,
                limited: false,
            },
            Record::RoundClosed {
                round: a,
                frame,
                frame_len: b,
                stages,
                model,
                at: b,
            },
            Record::EvaluationAccepted {
                version: a,
                client: one,
                examples: b,
                loss,
                correct: a,
                at: b,
            },
            Record::EvaluationOpened {
                version: a,
                asked: cohort,
                until: b,
            },
            Record::RunDone { at: a },
            Record::RunFailed { round: a, why, at: b },
            Record::Resumed { at: a, until: b },
        ]
    }

    /// Those that version 1 does not know.
    fn newer(a: u64, b: u64, names: &[u8]) -> Vec<Record> {
        let absent: BTreeSet<_> = names.iter().map(|&i| client(i)).collect();
        let by = absent.iter().map(|name| format!("{name}-b").parse().unwrap()).collect();
        vec![
            Record::RoundClosing {
                round: a,
                at: b,
                limited: true,
            },
            Record::RolledBack {
                version: a,
                to: b,
                model: Digest::of(b"m"),
                at: a,
            },
            Record::Excluded {
                round: a,
                client: client(b as u8),
                at: b,
            },
            Record::MembersReplaced {
                round: a,
                absent,
                by,
                at: b,
            },
        ]
    }

    #[test]
    fn version_1_stays_readable() {
        let opened = Record::RoundOpened {
            round: 3,
            attempt: 1,
            cohort: BTreeSet::from([client(1), client(2)]),
            present: 5,
            at: 1_000,
            deadline: 301_000,
        };
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let expected = concat!(
            "0103",
            "0300000000000000",
            "01000000",
            "02000000",
            "0800636c69656e742d31",
            "0800636c69656e742d32",
            "05000000",
            "e803000000000000",
            "c897040000000000",
        );
        let bytes = opened.to_bytes();
        assert_eq!(hex(&bytes[..bytes.len() - 4]), expected);
        assert_eq!(hex(&Record::RunDone { at: 1 }.to_bytes()), GOLDEN_DONE);
        let all: Vec<u8> = each(1, 2, &[3, 4], "why".to_owned())
            .iter()
            .flat_map(Record::to_bytes)
            .collect();
        assert_eq!(Digest::of(&all).to_string(), GOLDEN_ALL);
    }

    /// Written by version 2; never to be changed.
    #[test]
    fn version_2_stays_readable() {
        let closing = |limited| Record::RoundClosing {
            round: 3,
            at: 1_000,
            limited,
        };
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let bytes = closing(true).to_bytes();
        assert_eq!(hex(&bytes[..bytes.len() - 4]), "02050300000000000000e803000000000000");
        assert_eq!(Record::from_bytes(&bytes), Ok(closing(true)));
        assert_eq!(closing(false).to_bytes()[0], 1, "what was read is written as it was");
        let replaced = &newer(1, 2, &[3])[3].to_bytes();
        let expected = concat!(
            "020e",
            "0100000000000000",
            "01000000",
            "0800636c69656e742d33",
            "01000000",
            "0a00636c69656e742d332d62",
            "0200000000000000",
        );
        assert_eq!(hex(&replaced[..replaced.len() - 4]), expected);
        let mut other = Record::RunDone { at: 1 }.to_bytes();
        other.truncate(other.len() - 4);
        other[0] = 2;
        let found = Record::from_bytes(&sealed(other));
        assert!(
            matches!(found, Err(RecordError::Corrupt { what: "version", .. })),
            "{found:?}"
        );
    }

    /// Written by version 1; never to be changed.
    const GOLDEN_DONE: &str = "0109010000000000000036d2fa2d";
    /// Digest of one record of each kind, as version 1 wrote them; never to be changed.
    const GOLDEN_ALL: &str = "c0ebae566152122015b67d5acadae7e8a4c4a70f9b315dfb94c780f66f7bfad0";

    #[test]
    fn every_flipped_bit_and_every_cut_is_an_error() {
        for record in each(1, 2, &[3, 4], "why".to_owned())
            .into_iter()
            .chain(newer(1, 2, &[3, 4]))
        {
            let bytes = record.to_bytes();
            for cut in 0..bytes.len() {
                assert!(Record::from_bytes(&bytes[..cut]).is_err());
            }
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(Record::from_bytes(&flipped).is_err(), "bit {bit} of {record:?}");
            }
        }
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut bytes = Record::RunDone { at: 1 }.to_bytes();
        bytes[0] = VERSION + 1;
        assert_eq!(
            Record::from_bytes(&bytes),
            Err(RecordError::Newer {
                theirs: VERSION + 1,
                ours: VERSION
            })
        );
    }

    /// With a checksum that fits, the parser alone stands between bytes and memory.
    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn absurd_counts_and_unsorted_names_are_refused() {
        let opened = |names: &[u8]| [&[1, 8][..], &[0; 8], names].concat();
        let absurd = Record::from_bytes(&sealed(opened(&[255, 255, 255, 255])));
        assert!(
            matches!(absurd, Err(RecordError::Truncated { what: "client", .. })),
            "{absurd:?}"
        );
        let twice = [&[2, 0, 0, 0][..], &[1, 0, b'a', 1, 0, b'a'], &[0; 8]].concat();
        assert!(matches!(
            Record::from_bytes(&sealed(opened(&twice))),
            Err(RecordError::Corrupt { what: "clients", .. })
        ));
    }

    proptest! {
        #[test]
        fn records_survive_their_bytes(a: u64, b: u64, names: Vec<u8>, why in ".{0,40}") {
            for record in each(a, b, &names, why).into_iter().chain(newer(a, b, &names)) {
                prop_assert_eq!(Record::from_bytes(&record.to_bytes()), Ok(record));
            }
        }

        #[test]
        fn any_bytes_are_a_record_or_an_error(bytes: Vec<u8>) {
            let _ = Record::from_bytes(&bytes);
            let _ = Record::from_bytes(&sealed([&[1], &bytes[..]].concat()));
        }
    }
}
