//! The bytes of a record: version, kind, fields in the order of their declaration, CRC-32C of all before it.
//!
//! Integers and floats are little-endian; a text is its length (u16) and UTF-8; an option is a byte 0 or 1 and then
//! the value; a set of clients is a count (u32) and their names, rising. Each version is frozen: a change gets the next
//! version, and both are read. A record is written in the lowest version that can hold it, so that a record read and written
//! again has the same bytes: the hash chain of the rounds depends on that.
//!
//! Version 2: `RoundClosing` under the plan's limits; `RolledBack`, `Excluded` and `MembersReplaced`. Version 3:
//! `UpdateAccepted` and `EvaluationAccepted` with metrics, which follow the other fields; `correct` is an option there. Version
//! 4: `BudgetsSet` and `UploadMeasured`. Version 5: `BandwidthsSet`.

use std::sync::Arc;

use fl_compress::Error;
use fl_compress::wire::{self, Reader, Writer};

use crate::storage::record::error::RecordError;
use crate::storage::record::fields::{
    read_accepted, read_bandwidths, read_budgets, read_client, read_clients, read_digest, read_metrics, read_option,
    read_stages, write_accepted, write_bandwidths, write_budgets, write_clients, write_metrics, write_option,
    write_stages, write_text,
};
use crate::storage::record::kinds::{Accepted, Record, Transfer};

const VERSION: u8 = 5;

impl Record {
    /// The bytes that are stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.version()];
        let mut out = Writer::new(&mut bytes);
        out.u8(self.kind());
        match self {
            Self::Started { plan, model, at } => {
                out.bytes(&plan.0);
                out.bytes(&model.0);
                out.u64(*at);
            }
            Self::Gathered { since } => write_option(*since, &mut out),
            Self::RoundOpened {
                round,
                attempt,
                cohort,
                present,
                at,
                deadline,
            } => {
                out.u64(*round);
                out.u32(*attempt);
                write_clients(cohort, &mut out);
                out.u32(*present);
                out.u64(*at);
                out.u64(*deadline);
            }
            Self::UpdateAccepted { round, client, update } => {
                out.u64(*round);
                write_text(client.as_str(), &mut out);
                write_accepted(update, &mut out);
                if !update.metrics.is_empty() {
                    write_metrics(&update.metrics, &mut out);
                }
            }
            Self::RoundClosing { round, at, limited: _ } => {
                out.u64(*round);
                out.u64(*at);
            }
            Self::RoundClosed {
                round,
                frame,
                frame_len,
                stages,
                model,
                at,
            } => {
                out.u64(*round);
                out.bytes(&frame.0);
                out.u64(*frame_len);
                write_stages(stages, &mut out);
                out.bytes(&model.0);
                out.u64(*at);
            }
            Self::EvaluationAccepted {
                version,
                client,
                examples,
                loss,
                correct,
                metrics,
                at,
            } => {
                out.u64(*version);
                write_text(client.as_str(), &mut out);
                out.u64(*examples);
                out.f64(*loss);
                match (correct, self.version()) {
                    (Some(correct), 1) => out.u64(*correct),
                    (correct, _) => write_option(*correct, &mut out),
                }
                out.u64(*at);
                if self.version() > 1 {
                    write_metrics(metrics, &mut out);
                }
            }
            Self::EvaluationOpened { version, asked, until } => {
                out.u64(*version);
                write_clients(asked, &mut out);
                out.u64(*until);
            }
            Self::RunDone { at } => out.u64(*at),
            Self::RunFailed { round, why, at } => {
                out.u64(*round);
                write_text(why, &mut out);
                out.u64(*at);
            }
            Self::Resumed { at, until } => {
                out.u64(*at);
                out.u64(*until);
            }
            Self::RolledBack { version, to, model, at } => {
                out.u64(*version);
                out.u64(*to);
                out.bytes(&model.0);
                out.u64(*at);
            }
            Self::Excluded { round, client, at } => {
                out.u64(*round);
                write_text(client.as_str(), &mut out);
                out.u64(*at);
            }
            Self::MembersReplaced { round, absent, by, at } => {
                out.u64(*round);
                write_clients(absent, &mut out);
                write_clients(by, &mut out);
                out.u64(*at);
            }
            Self::BudgetsSet { round, budgets, at } => {
                out.u64(*round);
                write_budgets(budgets, &mut out);
                out.u64(*at);
            }
            Self::BandwidthsSet { round, bandwidths, at } => {
                out.u64(*round);
                write_bandwidths(bandwidths, &mut out);
                out.u64(*at);
            }
            Self::UploadMeasured {
                round,
                client,
                transfer,
                at,
            } => {
                out.u64(*round);
                write_text(client.as_str(), &mut out);
                out.u64(transfer.wait);
                out.u64(transfer.bytes);
                out.u64(transfer.micros);
                out.u64(*at);
            }
        }
        wire::seal(0, &mut bytes);
        bytes
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Started { .. } => 1,
            Self::Gathered { .. } => 2,
            Self::RoundOpened { .. } => 3,
            Self::UpdateAccepted { .. } => 4,
            Self::RoundClosing { .. } => 5,
            Self::RoundClosed { .. } => 6,
            Self::EvaluationAccepted { .. } => 7,
            Self::EvaluationOpened { .. } => 8,
            Self::RunDone { .. } => 9,
            Self::RunFailed { .. } => 10,
            Self::Resumed { .. } => 11,
            Self::RolledBack { .. } => 12,
            Self::Excluded { .. } => 13,
            Self::MembersReplaced { .. } => 14,
            Self::BudgetsSet { .. } => 15,
            Self::UploadMeasured { .. } => 16,
            Self::BandwidthsSet { .. } => 17,
        }
    }

    /// The lowest version that can hold it.
    fn version(&self) -> u8 {
        match self {
            Self::RoundClosing { limited: true, .. }
            | Self::RolledBack { .. }
            | Self::Excluded { .. }
            | Self::MembersReplaced { .. } => 2,
            Self::BudgetsSet { .. } | Self::UploadMeasured { .. } => 4,
            Self::BandwidthsSet { .. } => 5,
            Self::UpdateAccepted { update, .. } if !update.metrics.is_empty() => 3,
            Self::EvaluationAccepted { correct, metrics, .. } if correct.is_none() || !metrics.is_empty() => 3,
            _ => 1,
        }
    }

    /// Reads the bytes of [`Record::to_bytes`].
    ///
    /// # Errors
    /// `Bytes`, `Newer`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let theirs = Reader::new(bytes).u8("version")?;
        if theirs > VERSION {
            return Err(RecordError::Newer { theirs, ours: VERSION });
        }
        let mut from = wire::checked(bytes)?;
        let version = from.u8("version")?;
        let record = fields(&mut from, version)?;
        if record.version() != version {
            return Err(from.corrupt("version").into());
        }
        from.finish("end")?;
        Ok(record)
    }
}

fn fields(from: &mut Reader<'_>, version: u8) -> Result<Record, Error> {
    Ok(match from.u8("kind")? {
        1 => Record::Started {
            plan: read_digest(from, "plan")?,
            model: read_digest(from, "model")?,
            at: from.u64("at")?,
        },
        2 => Record::Gathered {
            since: read_option(from, "since")?,
        },
        3 => Record::RoundOpened {
            round: from.u64("round")?,
            attempt: from.u32("attempt")?,
            cohort: read_clients(from)?,
            present: from.u32("present")?,
            at: from.u64("at")?,
            deadline: from.u64("deadline")?,
        },
        4 => Record::UpdateAccepted {
            round: from.u64("round")?,
            client: read_client(from)?,
            update: match (read_accepted(from)?, version) {
                (update, 3) => Accepted {
                    metrics: read_metrics(from)?,
                    ..update
                },
                (update, _) => update,
            },
        },
        5 => Record::RoundClosing {
            round: from.u64("round")?,
            at: from.u64("at")?,
            limited: version > 1,
        },
        6 => Record::RoundClosed {
            round: from.u64("round")?,
            frame: read_digest(from, "frame")?,
            frame_len: from.u64("frame_len")?,
            stages: read_stages(from)?,
            model: read_digest(from, "model")?,
            at: from.u64("at")?,
        },
        7 => Record::EvaluationAccepted {
            version: from.u64("version")?,
            client: read_client(from)?,
            examples: from.u64("examples")?,
            loss: from.f64("loss")?,
            correct: match version {
                3 => read_option(from, "correct")?,
                _ => Some(from.u64("correct")?),
            },
            at: from.u64("at")?,
            metrics: match version {
                3 => read_metrics(from)?,
                _ => Arc::default(),
            },
        },
        8 => Record::EvaluationOpened {
            version: from.u64("version")?,
            asked: read_clients(from)?,
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
            model: read_digest(from, "model")?,
            at: from.u64("at")?,
        },
        13 => Record::Excluded {
            round: from.u64("round")?,
            client: read_client(from)?,
            at: from.u64("at")?,
        },
        14 => Record::MembersReplaced {
            round: from.u64("round")?,
            absent: read_clients(from)?,
            by: read_clients(from)?,
            at: from.u64("at")?,
        },
        15 => Record::BudgetsSet {
            round: from.u64("round")?,
            budgets: read_budgets(from)?,
            at: from.u64("at")?,
        },
        16 => Record::UploadMeasured {
            round: from.u64("round")?,
            client: read_client(from)?,
            transfer: Transfer {
                wait: from.u64("wait")?,
                bytes: from.u64("bytes")?,
                micros: from.u64("micros")?,
            },
            at: from.u64("at")?,
        },
        17 => Record::BandwidthsSet {
            round: from.u64("round")?,
            bandwidths: read_bandwidths(from)?,
            at: from.u64("at")?,
        },
        _ => return Err(from.corrupt("kind")),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fl_compress::{Digest, Stages};
    use fl_proto::{ClientId, Metric, Metrics};
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
            entropy_bound: 19.5,
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
            metrics: Arc::default(),
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
                correct: Some(a),
                metrics: Arc::default(),
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

    /// Those that version 2 does not know.
    fn newest(a: u64, b: u64) -> Vec<Record> {
        let mut metrics = Metrics::new();
        for (name, value) in [("top5", 0.5), ("grad/norm", -(b as f64))] {
            metrics.add(name, Metric { value, weight: 60.0 }).unwrap();
        }
        let metrics = Arc::new(metrics);
        let evaluation = |correct, metrics| Record::EvaluationAccepted {
            version: a,
            client: client(3),
            examples: b,
            loss: 2.5,
            correct,
            metrics,
            at: b,
        };
        vec![
            Record::UpdateAccepted {
                round: a,
                client: client(3),
                update: Accepted {
                    metrics: Arc::clone(&metrics),
                    ..accepted(b)
                },
            },
            evaluation(None, Arc::default()),
            evaluation(Some(a), Arc::clone(&metrics)),
            evaluation(None, metrics),
        ]
    }

    /// Those that version 3 does not know.
    fn measuring(a: u64, b: u64, names: &[u8]) -> Vec<Record> {
        vec![
            Record::BudgetsSet {
                round: a,
                budgets: names.iter().map(|&i| (client(i), b ^ u64::from(i))).collect(),
                at: b,
            },
            Record::UploadMeasured {
                round: a,
                client: client(b as u8),
                transfer: Transfer {
                    wait: a,
                    bytes: b,
                    micros: a ^ b,
                },
                at: b,
            },
        ]
    }

    /// The one that version 4 does not know.
    fn bandwidths(a: u64, b: u64, names: &[u8]) -> Record {
        Record::BandwidthsSet {
            round: a,
            bandwidths: names.iter().map(|&i| (client(i), b as u32 ^ u32::from(i))).collect(),
            at: b,
        }
    }

    /// Written by version 5; never to be changed.
    #[test]
    fn version_5_stays_readable() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let record = bandwidths(1, 2, &[3, 4]);
        let expected = concat!(
            "0511",
            "0100000000000000",
            "02000000",
            "0800636c69656e742d33",
            "01000000",
            "0800636c69656e742d34",
            "06000000",
            "0200000000000000",
        );
        let bytes = record.to_bytes();
        assert_eq!(hex(&bytes[..bytes.len() - 4]), expected);
        assert_eq!(Record::from_bytes(&bytes), Ok(record));
        let names: [&[u8]; 2] = [b"b", b"a"];
        let entries = names.map(|name| [&[1, 0], name, &[0; 4]].concat()).concat();
        let unsorted = [&[5, 17][..], &[0; 8], &[2, 0, 0, 0], &entries, &[0; 8]];
        let found = Record::from_bytes(&sealed(unsorted.concat()));
        assert!(
            matches!(&found, Err(RecordError::Bytes(Error::Corrupt { what, .. })) if what == "bandwidths"),
            "{found:?}"
        );
    }

    /// Written by version 4; never to be changed.
    #[test]
    fn version_4_stays_readable() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let [budgets, measured] = &measuring(1, 2, &[3, 4])[..] else {
            panic!("two kinds")
        };
        let expected = concat!(
            "040f",
            "0100000000000000",
            "02000000",
            "0800636c69656e742d33",
            "0100000000000000",
            "0800636c69656e742d34",
            "0600000000000000",
            "0200000000000000",
        );
        let bytes = budgets.to_bytes();
        assert_eq!(hex(&bytes[..bytes.len() - 4]), expected);
        let expected = concat!(
            "0410",
            "0100000000000000",
            "0800636c69656e742d32",
            "0100000000000000",
            "0200000000000000",
            "0300000000000000",
            "0200000000000000",
        );
        let bytes = measured.to_bytes();
        assert_eq!(hex(&bytes[..bytes.len() - 4]), expected);
        let unsorted = [
            &[4, 15][..],
            &[0; 8],
            &[2, 0, 0, 0],
            &[1, 0, b'b'],
            &[0; 8],
            &[1, 0, b'a'],
            &[0; 16],
        ];
        let found = Record::from_bytes(&sealed(unsorted.concat()));
        assert!(
            matches!(&found, Err(RecordError::Bytes(Error::Corrupt { what, .. })) if what == "budgets"),
            "{found:?}"
        );
    }

    /// Written by version 3; never to be changed.
    #[test]
    fn version_3_stays_readable() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let bytes = newest(1, 2)[3].to_bytes();
        let expected = concat!(
            "0307",
            "0100000000000000",
            "0800636c69656e742d33",
            "0200000000000000",
            "0000000000000440",
            "00",
            "0200000000000000",
            "02",
            "0900677261642f6e6f726d",
            "00000000000000c0",
            "0000000000004e40",
            "0400746f7035",
            "000000000000e03f",
            "0000000000004e40",
        );
        assert_eq!(hex(&bytes[..bytes.len() - 4]), expected);
        let update = newest(1, 2)[0].to_bytes();
        let plain = each(1, 2, &[3], String::new())[4].to_bytes();
        assert_eq!((update[0], plain[0]), (3, 1));
        let metrics = &update[plain.len() - 4..update.len() - 4];
        assert_eq!(hex(metrics), expected[expected.len() - 2 * metrics.len()..]);
    }

    #[test]
    fn metrics_that_no_client_can_report_are_corruption() {
        let bytes = newest(1, 2)[1].to_bytes();
        let evaluation = &bytes[..bytes.len() - 5];
        let metric = |name: &str, value: f64, weight: f64| {
            let mut out = (name.len() as u16).to_le_bytes().to_vec();
            out.extend(name.as_bytes());
            out.extend(value.to_le_bytes());
            out.extend(weight.to_le_bytes());
            out
        };
        let read = |count: u8, metrics: &[Vec<u8>]| {
            Record::from_bytes(&sealed([evaluation, &[count], &metrics.concat()].concat()))
        };
        let good = |name: &str| metric(name, 0.5, 1.0);
        assert!(read(2, &[good("a"), good("b")]).is_ok());
        for (count, metrics) in [
            (2, vec![good("b"), good("a")]),
            (2, vec![good("a"), good("a")]),
            (1, vec![good("loss")]),
            (1, vec![metric("a", f64::NAN, 1.0)]),
            (1, vec![metric("a", 0.5, 0.0)]),
            (33, (10..43).map(|at| good(&format!("m{at}"))).collect()),
        ] {
            assert!(
                matches!(read(count, &metrics), Err(RecordError::Bytes(Error::Corrupt { what, .. })) if what == "metric"),
                "{metrics:?}"
            );
        }
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
            matches!(&found, Err(RecordError::Bytes(Error::Corrupt { what, .. })) if what == "version"),
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
            .chain(newest(1, 2))
            .chain(measuring(1, 2, &[3, 4]))
            .chain([bandwidths(1, 2, &[3, 4])])
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

    /// With a correct checksum, only the parser protects memory from the bytes.
    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        wire::seal(0, &mut bytes);
        bytes
    }

    #[test]
    fn absurd_counts_and_unsorted_names_are_refused() {
        let opened = |names: &[u8]| [&[1, 8][..], &[0; 8], names].concat();
        let absurd = Record::from_bytes(&sealed(opened(&[255, 255, 255, 255])));
        assert!(
            matches!(&absurd, Err(RecordError::Bytes(Error::Truncated { what, .. })) if what == "client"),
            "{absurd:?}"
        );
        let twice = [&[2, 0, 0, 0][..], &[1, 0, b'a', 1, 0, b'a'], &[0; 8]].concat();
        assert!(matches!(
            Record::from_bytes(&sealed(opened(&twice))),
            Err(RecordError::Bytes(Error::Corrupt { what, .. })) if what == "clients"
        ));
    }

    proptest! {
        #[test]
        fn records_survive_their_bytes(a: u64, b: u64, names: Vec<u8>, why in ".{0,40}") {
            let records = each(a, b, &names, why).into_iter().chain(newer(a, b, &names));
            for record in records.chain(newest(a, b)).chain(measuring(a, b, &names)) {
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
