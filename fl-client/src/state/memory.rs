//! `memory`: a short head with the run's instance and the pending update, readable without the model, then the encoder's own
//! bytes.
//!
//! ```text
//! "FLMH" | major u8 | minor u8 | length of the head u16 | [`Head`] | CRC-32C of the head u32 | body (sealed by the encoder)
//! ```

use std::sync::Arc;

use fl_compress::wire::{CHECKSUM_BYTES, Reader, Writer, seal, unseal};
use fl_compress::{Digest, Encoder, Layout, Pending, Spec};
use fl_proto::{MAX_METRIC_NAME, MAX_METRICS, Metrics};
use serde::{Deserialize, Serialize};

use super::run_state::RunState;
use crate::error::Error;

const MAGIC: &[u8; 4] = b"FLMH";
const VERSION: [u8; 2] = [1, 0];
/// Magic, version and length of the head.
const BEGIN: usize = 4 + 1 + 1 + 2;
/// Most of the rest of a head, but for the metrics: two digests, seven numbers of at most 10 bytes, an option, a count.
const FIXED: usize = 2 * 32 + 7 * 10 + 1 + 1 + CHECKSUM_BYTES;
const METRICS: usize = MAX_METRICS * (1 + MAX_METRIC_NAME + 8 + 8);
/// What a memory has beside residual, factors and frame, about.
const BESIDE: usize = 16 * 1024;
const LONGEST: usize = BEGIN + FIXED + METRICS;

/// The header of the pending update, so that a retry sends the same header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct UpdateMetadata {
    pub(crate) round: u64,
    /// The attempt of the round in which the frame was encoded.
    pub(crate) attempt: u32,
    pub(crate) digest: Digest,
    pub(crate) examples: u64,
    pub(crate) loss: f64,
    pub(crate) train_ms: u64,
    pub(crate) encode_ms: u64,
    pub(crate) metrics: Arc<Metrics>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The instance of the run that the memory belongs to.
    pub(crate) instance: Digest,
    pub(crate) body: u64,
    pub(crate) pending: Option<UpdateMetadata>,
}

impl Head {
    fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BEGIN + FIXED);
        let mut writer = Writer::new(&mut out);
        writer.head(MAGIC, VERSION);
        // Known at the end.
        writer.u16(0);
        writer.value(self);
        let len = (out.len() + CHECKSUM_BYTES) as u16;
        out[BEGIN - 2..BEGIN].copy_from_slice(&len.to_le_bytes());
        seal(0, &mut out);
        out
    }

    /// Reads the head from the front of `bytes` and returns the bytes after it.
    fn read(bytes: &[u8]) -> Result<(Self, &[u8]), fl_compress::Error> {
        let mut reader = Reader::new(bytes);
        reader.head(MAGIC, VERSION)?;
        let len = usize::from(reader.u16("length of the head")?);
        let mut reader = Reader::new(bytes);
        let head = reader.take(len, "head")?;
        let rest = reader.take(reader.left(), "body")?;
        let mut reader = unseal(head, MAGIC, VERSION)?;
        reader.u16("length of the head")?;
        let head = reader.value("head")?;
        reader.finish("end of the head")?;
        Ok((head, rest))
    }
}

impl RunState {
    pub(crate) fn head(&self) -> Result<Option<Head>, Error> {
        let path = self.path("memory");
        let Some((bytes, len)) = self.disk.read_front(&path, LONGEST as u64)? else {
            return Ok(None);
        };
        let (head, rest) = Head::read(&bytes).map_err(|e| self.broken(&e.to_string()))?;
        let head_len = (bytes.len() - rest.len()) as u64;
        if head_len.checked_add(head.body) != Some(len) {
            return Err(self.broken("body: the file is cut short or has grown"));
        }
        Ok(Some(head))
    }

    /// The run's encoder, and the pending update that the server has not acknowledged. An update with a known answer is
    /// settled. Without a file, the encoder is new.
    pub(crate) fn load_memory(
        &self,
        layout: &Arc<Layout>,
        spec: &Spec,
    ) -> Result<(Encoder, Option<(Pending, UpdateMetadata)>), Error> {
        let frame = fl_proto::max_frame(layout.len(), layout.tensors().len());
        let max = LONGEST as u64 + Encoder::most_saved(layout, frame);
        let Some(head) = self.head()? else {
            let fresh = Encoder::new(Arc::clone(layout), spec);
            return Ok((
                fresh.map_err(|e| Error::Config(format!("the run's compression: {e}")))?,
                None,
            ));
        };
        let bytes = self.disk.read(&self.path("memory"), max)?.unwrap_or_default();
        let (_, body) = Head::read(&bytes).map_err(|e| self.broken(&e.to_string()))?;
        let loaded = Encoder::load(Arc::clone(layout), spec, body);
        let (mut encoder, pending) = loaded.map_err(|e| self.broken(&e.to_string()))?;
        let pending = match (pending, head.pending) {
            (None, None) => None,
            (Some(pending), Some(metadata)) if pending.digest == metadata.digest => Some((pending, metadata)),
            _ => return Err(self.broken("head and body name different frames")),
        };
        let Some((pending, metadata)) = pending else {
            return Ok((encoder, None));
        };
        match self.ack(metadata.digest)? {
            None => Ok((encoder, Some((pending, metadata)))),
            Some(verdict) => {
                encoder
                    .settle(&pending, verdict)
                    .map_err(|e| self.broken(&e.to_string()))?;
                Ok((encoder, None))
            }
        }
    }

    /// Makes the encoder's memory and its pending update durable, for the run of this instance. On an error, the old memory
    /// is unchanged.
    pub(crate) fn save_memory(
        &self,
        instance: Digest,
        encoder: &Encoder,
        pending: &Pending,
        metadata: &UpdateMetadata,
    ) -> Result<(), Error> {
        let residual = encoder.residual().map_or(0, size_of_val);
        // Factors of low-rank updates are far shorter than the model. A buffer that is too short would grow to twice its length.
        let mut body = Vec::with_capacity(residual + residual / 32 + pending.frame.len() + BESIDE);
        encoder.save(Some(pending), &mut body);
        let head = Head {
            instance,
            body: body.len() as u64,
            pending: Some(metadata.clone()),
        }
        .write();
        self.disk.replace_in_turn(&self.path("memory"), &[&head, &body])
    }

    fn broken(&self, what: &str) -> Error {
        Error::state(
            &self.path("memory"),
            format!(
                "broken: {what}. It holds what compression left unsent and an update that may not have been received; \
                 deleting it loses both, and the client goes on without them"
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use fl_proto::Metric;

    use super::super::disk::Disk;
    use super::*;

    fn head() -> Head {
        let digest = Digest::of(b"f");
        Head {
            instance: Digest([0xab; 32]),
            body: 9,
            pending: Some(UpdateMetadata {
                round: 3,
                attempt: 2,
                digest,
                examples: 60,
                loss: 0.5,
                train_ms: 7,
                encode_ms: 1,
                metrics: Arc::default(),
            }),
        }
    }

    fn measured() -> Head {
        let mut head = head();
        let mut metrics = Metrics::new();
        for (name, value) in [("top5", 0.75), ("grad/norm", -1e-300)] {
            metrics.add(name, Metric { value, weight: 60.0 }).unwrap();
        }
        head.pending.as_mut().unwrap().metrics = metrics.into();
        head
    }

    fn most() -> Head {
        let mut head = head();
        let mut metrics = Metrics::new();
        for at in 0..MAX_METRICS {
            let name = format!("m{at:0width$}", width = MAX_METRIC_NAME - 1);
            let (value, weight) = (at as f64, 1.0);
            metrics.add(name, Metric { value, weight }).unwrap();
        }
        head.pending.as_mut().unwrap().metrics = metrics.into();
        head
    }

    #[test]
    fn heads_survive_the_disk() {
        let settled = Head {
            pending: None,
            ..head()
        };
        for head in [head(), settled, measured(), most()] {
            let mut bytes = head.write();
            bytes.extend_from_slice(b"body");
            assert_eq!(Head::read(&bytes).unwrap(), (head, &b"body"[..]));
        }
        assert!(most().write().len() <= LONGEST);
    }

    #[test]
    fn earlier_runs_give_way_but_never_an_unsettled_update_or_a_broken_file() {
        use super::super::state_dir::StateDir;

        let root = tempfile::tempdir().unwrap();
        let enter = |dir: &StateDir, name: &str| dir.enter(&name.parse().unwrap(), Digest([1; 32])).unwrap();
        let folders = || {
            let names = std::fs::read_dir(root.path().join("runs")).unwrap();
            let mut names: Vec<_> = names
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        let write = |state: &RunState, head: Head| {
            let bytes = [head.write(), vec![0; 9]].concat();
            std::fs::write(state.path("memory"), bytes).unwrap();
        };
        let dir = StateDir::open(root.path(), false).unwrap().keeping(3, None);
        let settled = || Head {
            pending: None,
            ..head()
        };
        write(
            &enter(&dir, "a-settled"),
            Head {
                instance: Digest([1; 32]),
                ..settled()
            },
        );
        write(
            &enter(&dir, "b-unsettled"),
            Head {
                instance: Digest([1; 32]),
                ..head()
            },
        );
        std::fs::write(enter(&dir, "c-broken").path("memory"), b"FL").unwrap();
        let local = |name: &str| {
            let name = format!("local/{name}-{}.safetensors", Digest([1; 32]));
            root.path().join(name)
        };
        std::fs::create_dir(root.path().join("local")).unwrap();
        for name in ["a-settled", "b-unsettled"] {
            std::fs::write(local(name), b"local tensors").unwrap();
            std::fs::create_dir(local(name).with_extension("kept")).unwrap();
        }
        for at in 0..50 {
            enter(&dir, &format!("x-{at:02}"));
        }
        assert_eq!(folders(), ["a-settled", "b-unsettled", "c-broken", "x-49"]);
        write(
            &enter(&dir, "y"),
            Head {
                instance: Digest([1; 32]),
                ..head()
            },
        );
        assert_eq!(folders(), ["a-settled", "b-unsettled", "c-broken", "y"]);
        enter(&dir, "z");
        assert_eq!(folders(), ["b-unsettled", "c-broken", "y", "z"]);
        assert!(!local("a-settled").exists() && local("b-unsettled").exists());
        assert!(!local("a-settled").with_extension("kept").exists());
        assert!(local("b-unsettled").with_extension("kept").exists());
        drop(dir);
        // By bytes: all that may go does.
        let dir = StateDir::open(root.path(), false).unwrap().keeping(100, Some(1));
        enter(&dir, "last");
        assert_eq!(folders(), ["b-unsettled", "c-broken", "last", "y"]);
        drop(dir);
        // A run that needs room is compared with what is left after the others gave way.
        let dir = StateDir::open(root.path(), false).unwrap().keeping(100, None);
        let full = enter(&dir, "full");
        let full_head = Head {
            instance: Digest([1; 32]),
            ..settled()
        };
        write(&full, full_head);
        std::fs::write(full.path("model"), vec![0; 10_000]).unwrap();
        let disk = super::super::disk::Disk { sync: false };
        let left = super::super::make_room(root.path(), &"next".parse().unwrap(), Digest([1; 32]), disk, 100, 5_000);
        assert!(left < 5_000, "{left}");
        assert_eq!(folders(), ["b-unsettled", "c-broken", "y"]);
    }

    /// A client that cannot read what it wrote could never start again.
    #[test]
    fn what_any_memory_saves_is_loaded() {
        use fl_compress::{FrameHeader, FrameKind};

        let layout = Arc::new(Layout::new([("w", vec![400, 300])]).unwrap());
        for spec in [
            "",
            "memory = 'cafe'",
            "memory = ['cafe', 'error-feedback']",
            "memory = { dgc = { momentum = 0.9, clip = 1.0 } }",
            "memory = 'ef21'",
            "memory = ['cafe', 'error-feedback']\ndefault = { reduce = { low_rank = { rank = 150 } }, quantize = 'exact' }",
        ] {
            let spec: Spec = toml::from_str(spec).unwrap();
            let dir = tempfile::tempdir().unwrap();
            let state = RunState {
                folder: dir.path().into(),
                disk: Disk { sync: false },
            };
            let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
            let header = FrameHeader {
                kind: FrameKind::Update,
                round: 1,
                seed: 1,
            };
            let mut delta: Vec<f32> = (0..layout.len()).map(|at| (at as f32 * 0.37).sin()).collect();
            let pending = encoder.encode(&mut delta, header).unwrap();
            let metadata = UpdateMetadata {
                digest: pending.digest,
                ..most().pending.unwrap()
            };
            state
                .save_memory(Digest([1; 32]), &encoder, &pending, &metadata)
                .unwrap();
            let (loaded, found) = state
                .load_memory(&layout, &spec)
                .unwrap_or_else(|error| panic!("{spec:?}: {error}"));
            assert_eq!(found, Some((pending, metadata)));
            assert_eq!(loaded.residual(), encoder.residual());
        }
    }

    #[test]
    fn heads_are_these_bytes() {
        let settled = Head {
            pending: None,
            ..head()
        };
        let [bare, full] = [settled.write(), measured().write()].map(|mut bytes| {
            bytes.truncate(bytes.len() - CHECKSUM_BYTES);
            bytes
        });
        let first = [b"FLMH\x01\x00\x2e\0".as_slice(), &[0xab; 32], b"\x09\0"].concat();
        assert_eq!(bare, first);
        let digest = Digest::of(b"f");
        let pending = [
            b"FLMH\x01\x00\x8b\0".as_slice(),
            &[0xab; 32],
            b"\x09",
            b"\x01",
            b"\x03",
            b"\x02",
            &digest.0,
            b"\x3c",
            &0.5f64.to_le_bytes(),
            b"\x07",
            b"\x01",
            b"\x02",
            b"\x09grad/norm",
            &(-1e-300f64).to_le_bytes(),
            &60f64.to_le_bytes(),
            b"\x04top5",
            &0.75f64.to_le_bytes(),
            &60f64.to_le_bytes(),
        ];
        assert_eq!(full, pending.concat());
    }

    #[test]
    fn a_head_of_another_version_or_with_more_than_this_program_knows_is_refused() {
        let changed = |change: fn(&mut Vec<u8>)| {
            let mut bytes = head().write();
            bytes.truncate(bytes.len() - CHECKSUM_BYTES);
            change(&mut bytes);
            let len = (bytes.len() + CHECKSUM_BYTES) as u16;
            bytes[BEGIN - 2..BEGIN].copy_from_slice(&len.to_le_bytes());
            seal(0, &mut bytes);
            Head::read(&bytes).map(drop)
        };
        assert!(matches!(
            changed(|bytes| bytes[4] = 2),
            Err(fl_compress::Error::Mismatch(_))
        ));
        assert!(changed(|bytes| bytes[5] = 1).is_ok());
        let refused = changed(|bytes| {
            bytes[5] = 1;
            bytes.push(7);
        });
        assert!(refused.unwrap_err().to_string().contains("end of the head"));
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_of_a_head_is_noticed() {
        for bytes in [head().write(), measured().write()] {
            for len in 0..bytes.len() {
                assert!(Head::read(&bytes[..len]).is_err(), "{len}");
            }
            for bit in 0..bytes.len() * 8 {
                let mut broken = bytes.clone();
                broken[bit / 8] ^= 1 << (bit % 8);
                assert!(Head::read(&broken).is_err(), "{bit}");
            }
        }
    }

    #[test]
    fn metrics_that_no_learner_can_report_are_corruption() {
        let mut bytes = measured().write();
        let body = bytes.len() - CHECKSUM_BYTES;
        bytes.truncate(body);
        // The last weight.
        bytes[body - 8..].copy_from_slice(&f64::NAN.to_le_bytes());
        seal(0, &mut bytes);
        let found = Head::read(&bytes).unwrap_err().to_string();
        assert!(found.contains("head"), "{found}");
    }
}
