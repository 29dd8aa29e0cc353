//! The bytes of a record: version, kind, fields, CRC-32C of all before it. A record that is read and written again has the same
//! bytes: the hash chain of the rounds depends on that.

use fl_compress::wire::{self, Reader, Writer};

use crate::storage::record::error::RecordError;
use crate::storage::record::kinds::Record;

const VERSION: u8 = 1;

impl Record {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        Writer::new(&mut bytes).value(self);
        wire::seal(0, &mut bytes);
        bytes
    }

    /// Reads the bytes of [`Record::to_bytes`].
    ///
    /// # Errors
    /// `Bytes`, `Version`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        RecordError::check(Reader::new(bytes).u8("version")?, VERSION)?;
        let mut from = wire::checked(bytes)?;
        from.u8("version")?;
        let record = from.value("record")?;
        from.finish("record")?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use fl_compress::{Digest, Error, Stages};
    use fl_proto::{ClientId, Metric, Metrics};
    use proptest::prelude::*;

    use super::*;
    use crate::storage::record::kinds::{Accepted, ClientEvaluation, RecordedStep, Transfer};
    use crate::storage::record::{Claim, Limited};

    fn client(i: u8) -> ClientId {
        format!("client-{i}").parse().unwrap()
    }

    fn metrics(value: f64) -> Arc<Metrics> {
        let mut metrics = Metrics::new();
        for (name, value) in [("top5", 0.5), ("grad/norm", value)] {
            metrics.add(name, Metric { value, weight: 60.0 }).unwrap();
        }
        metrics.into()
    }

    /// A record of each kind, in the order of their numbers, and others of some.
    fn each(a: u64, b: u64, names: &[u8], why: String) -> Vec<Record> {
        let cohort: BTreeSet<_> = names.iter().map(|&i| client(i)).collect();
        let by = cohort.iter().map(|name| format!("{name}-b").parse().unwrap()).collect();
        let (model, frame, one) = (Digest::of(b"m"), Digest::of(b"f"), client(b as u8));
        let stages = Stages {
            fp32: 400,
            reduced: 80,
            quantized: 30,
            coded: 20,
            framed: 100,
            entropy_bound: 19.5,
        };
        let update = Accepted {
            digest: Digest([7; 32]),
            len: 100,
            examples: 60,
            loss: 0.5,
            train_ms: 7,
            encode_ms: 1,
            stages,
            at: b,
            metrics: metrics(-(b as f64)),
        };
        let evaluation = |correct, metrics| Record::EvaluationAccepted {
            version: a,
            client: client(3),
            evaluation: ClientEvaluation {
                examples: b,
                loss: -2.5,
                correct,
                language: correct.is_none(),
                metrics,
                at: b,
            },
        };
        vec![
            Record::Started {
                plan: frame,
                model,
                at: a,
            },
            Record::Gathered { since: Some(b) },
            Record::RoundOpened {
                round: a,
                attempt: 2,
                cohort: cohort.clone(),
                present: 9,
                at: b,
                deadline: a,
            },
            Record::MembersReplaced {
                round: a,
                absent: cohort.clone(),
                by,
                at: b,
            },
            Record::BudgetsSet {
                round: a,
                budgets: names.iter().map(|&i| (client(i), b ^ u64::from(i))).collect(),
                at: b,
            },
            Record::BandwidthsSet {
                round: a,
                bandwidths: names.iter().map(|&i| (client(i), b as u32 ^ u32::from(i))).collect(),
                at: b,
            },
            Record::UpdateAccepted {
                round: a,
                client: one.clone(),
                update,
            },
            Record::UploadMeasured {
                round: a,
                client: one.clone(),
                transfer: Transfer {
                    wait: a,
                    bytes: b,
                    micros: a ^ b,
                },
                at: b,
            },
            Record::Excluded {
                round: a,
                client: one,
                at: b,
            },
            Record::RoundClosing { round: a, at: b },
            Record::RoundClosed {
                round: a,
                step: RecordedStep {
                    frame,
                    frame_len: b,
                    stages,
                    model,
                },
                limited: vec![Limited {
                    client: client(3),
                    of: Claim::Buffers,
                    claimed: b,
                    counted: 133.3,
                    norm: 2.5,
                    reference: 0.5,
                    scale: 0.25,
                }],
                at: b,
            },
            evaluation(Some(a as f64 / 2.0), metrics(1.0)),
            Record::EvaluationOpened {
                version: a,
                asked: cohort,
                until: b,
            },
            Record::RolledBack {
                version: a,
                to: b,
                model,
                at: a,
            },
            Record::Resumed { at: a, until: b },
            Record::RunDone { at: a },
            Record::RunFailed { round: a, why, at: b },
            Record::Gathered { since: None },
            evaluation(None, Arc::default()),
        ]
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Never to be changed after the first release. The second is the digest of a record of each kind.
    #[test]
    fn the_bytes_of_every_kind_are_those_of_version_1() {
        let all = each(1, 2, &[3, 4], "why".to_owned());
        for (record, kind) in all.iter().zip(0..=16) {
            assert_eq!(record.to_bytes()[..2], [VERSION, kind], "{record:?}");
        }
        let opened = concat!(
            "0102",
            "01",
            "02",
            "02",
            "08636c69656e742d33",
            "08636c69656e742d34",
            "09",
            "02",
            "01",
        );
        let bytes = all[2].to_bytes();
        assert_eq!(hex(&bytes[..bytes.len() - 4]), opened);
        let bytes: Vec<u8> = all.iter().flat_map(Record::to_bytes).collect();
        assert_eq!(
            Digest::of(&bytes).to_string(),
            "0e875bdc0a0ed630f0e29fc62d9995409acad8cd6ffd7652835ed6981f426e55"
        );
    }

    #[test]
    fn metrics_that_no_client_can_report_are_corruption() {
        let bytes = each(1, 2, &[], String::new())[18].to_bytes();
        // Before the metrics, which are a count of 0 here, and the time after them.
        let evaluation = &bytes[..bytes.len() - 4 - 1 - 1];
        let metric = |name: &str, value: f64, weight: f64| {
            let mut out = vec![name.len() as u8];
            out.extend(name.as_bytes());
            out.extend(value.to_le_bytes());
            out.extend(weight.to_le_bytes());
            out
        };
        let read = |count: u8, metrics: &[Vec<u8>]| {
            Record::from_bytes(&sealed([evaluation, &[count], &metrics.concat(), &[0]].concat()))
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
                matches!(read(count, &metrics), Err(RecordError::Bytes(Error::Corrupt { what, .. })) if what == "record"),
                "{metrics:?}"
            );
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_an_error() {
        for record in each(1, 2, &[3, 4], "why".to_owned()) {
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
    fn another_version_is_named() {
        for theirs in [0, VERSION + 1] {
            let mut bytes = Record::RunDone { at: 1 }.to_bytes();
            bytes[0] = theirs;
            assert_eq!(
                Record::from_bytes(&bytes),
                Err(RecordError::Version { theirs, ours: VERSION })
            );
        }
    }

    /// With a correct checksum, only the parser protects memory from the bytes.
    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        wire::seal(0, &mut bytes);
        bytes
    }

    #[test]
    fn absurd_counts_and_unsorted_names_are_refused() {
        let opened = |names: &[u8]| Record::from_bytes(&sealed([&[VERSION, 12, 0][..], names].concat()));
        let absurd = opened(&[255, 255, 255, 255, 15]);
        assert!(
            matches!(&absurd, Err(RecordError::Bytes(Error::Truncated { what, .. })) if what == "record"),
            "{absurd:?}"
        );
        let is_corrupt = |found: Result<Record, RecordError>| {
            assert!(
                matches!(&found, Err(RecordError::Bytes(Error::Corrupt { what, .. })) if what == "record"),
                "{found:?}"
            );
        };
        assert!(opened(&[2, 1, b'a', 1, b'b', 0]).is_ok());
        is_corrupt(opened(&[2, 1, b'a', 1, b'a', 0]));
        is_corrupt(opened(&[2, 1, b'b', 1, b'a', 0]));
        is_corrupt(opened(&[1, 1, b'/', 0]));
        let budgets = |names: [u8; 2]| {
            let [a, b] = names;
            Record::from_bytes(&sealed(vec![VERSION, 4, 0, 2, 1, a, 7, 1, b, 7, 0]))
        };
        assert!(budgets([b'a', b'b']).is_ok());
        is_corrupt(budgets([b'b', b'a']));
        // A number in more bytes than it needs, and a byte too many.
        assert!(Record::from_bytes(&sealed(vec![VERSION, 15, 1])).is_ok());
        is_corrupt(Record::from_bytes(&sealed(vec![VERSION, 15, 0x81, 0])));
        is_corrupt(Record::from_bytes(&sealed(vec![VERSION, 15, 1, 0])));
    }

    proptest! {
        #[test]
        fn records_survive_their_bytes(a: u64, b: u64, names: Vec<u8>, why in ".{0,40}") {
            for record in each(a, b, &names, why) {
                prop_assert_eq!(Record::from_bytes(&record.to_bytes()), Ok(record));
            }
        }

        #[test]
        fn any_bytes_are_a_record_or_an_error(bytes: Vec<u8>) {
            let _ = Record::from_bytes(&bytes);
            let _ = Record::from_bytes(&sealed([&[VERSION], &bytes[..]].concat()));
        }
    }
}
