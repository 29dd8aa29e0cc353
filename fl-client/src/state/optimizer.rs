//! `optimizer` and `optimizer-next`: the moments of the local optimizer, where a run keeps them from round to round.
//!
//! ```text
//! "FLOS" | major u8 | minor u8 | [`Head`] | moments, f32 each | CRC-32C of all before it u32
//! ```
//!
//! `optimizer-next` belongs to the frame in `memory` and is written before it; `optimizer` is from before that training. When the
//! server accepts the frame, `optimizer-next` replaces `optimizer`; any other answer removes it, so that a round that is trained
//! again begins with the same moments. An `optimizer-next` of another frame is from a training that a crash cut short.

use fl_compress::wire::{CHECKSUM_BYTES, Writer, seal, unseal};
use fl_compress::{Ack, Digest, Layout};
use serde::{Deserialize, Serialize};

use super::run_state::RunState;
use crate::error::Error;
use crate::optimizer_state::OptimizerState;

const MAGIC: &[u8; 4] = b"FLOS";
const VERSION: [u8; 2] = [1, 0];
/// Most of a file, but for name and moments: two digests, a length of two bytes, three numbers of at most 10 bytes.
const FIXED: usize = 4 + 2 + 2 * 32 + 2 + 3 * 10 + CHECKSUM_BYTES;

const SETTLED: &str = "optimizer";
const NEXT: &str = "optimizer-next";

/// What the moments belong to, and how many follow.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    instance: Digest,
    /// Fingerprint of the model's layout.
    layout: u64,
    /// Digest of the update after whose training the moments are these.
    update: Digest,
    optimizer: String,
    steps: u64,
    moments: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner<'a> {
    pub(crate) instance: Digest,
    pub(crate) layout: &'a Layout,
    pub(crate) optimizer: &'a str,
}

impl RunState {
    /// The moments after the last accepted training; `None` before the first.
    pub(crate) fn load_optimizer(&self, owner: Owner<'_>) -> Result<Option<OptimizerState>, Error> {
        self.read_optimizer(SETTLED, owner)
            .map(|found| found.map(|(state, _)| state))
    }

    /// Makes the moments after the training of `update` durable. They do not replace those before it.
    pub(crate) fn save_next_optimizer(
        &self,
        owner: Owner<'_>,
        update: Digest,
        state: &OptimizerState,
    ) -> Result<(), Error> {
        self.disk.replace(&self.path(NEXT), &[&write(owner, update, state)])
    }

    /// Installs the answer to an update: its moments replace those before it, or are removed. Idempotent.
    pub(crate) fn settle_optimizer(&self, verdict: Ack) -> Result<(), Error> {
        let next = self.path(NEXT);
        let done = match verdict {
            Ack::Accepted => std::fs::rename(&next, self.path(SETTLED)),
            Ack::Rejected | Ack::Dropped => std::fs::remove_file(&next),
        };
        match done {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(&next, "move or remove", &e)),
            Ok(()) => self.disk.sync_folder(&self.folder),
            Err(_) => Ok(()),
        }
    }

    /// Completes what a crash interrupted, and checks both files.
    pub(crate) fn recover_optimizer(&self, owner: Owner<'_>) -> Result<(), Error> {
        if let Some((_, update)) = self.read_optimizer(NEXT, owner)? {
            let pending = self.head()?.and_then(|head| head.pending);
            match pending.filter(|metadata| metadata.digest == update) {
                // The update was never sent.
                None => self.settle_optimizer(Ack::Dropped)?,
                Some(_) => {
                    if let Some(verdict) = self.ack(update)? {
                        self.settle_optimizer(verdict)?;
                    }
                }
            }
        }
        self.load_optimizer(owner).map(drop)
    }

    fn read_optimizer(&self, name: &str, owner: Owner<'_>) -> Result<Option<(OptimizerState, Digest)>, Error> {
        let path = self.path(name);
        let most = most_moments(owner.layout);
        let max = (FIXED + OptimizerState::MAX_NAME + 4 * most) as u64;
        let Some(bytes) = self.disk.read(&path, max)? else {
            return Ok(None);
        };
        let read = read(&bytes, owner).map_err(|what| {
            let hint = "restore it from a backup, or delete it to start with moments of zero";
            Error::state(&path, format!("{what}; {hint}"))
        });
        read.map(Some)
    }
}

pub(crate) fn most_moments(layout: &Layout) -> usize {
    OptimizerState::PER_VALUE.saturating_mul(layout.len())
}

fn write(owner: Owner<'_>, update: Digest, state: &OptimizerState) -> Vec<u8> {
    let mut out = Vec::with_capacity(FIXED + state.optimizer.len() + 4 * state.values.len());
    let mut writer = Writer::new(&mut out);
    writer.head(MAGIC, VERSION);
    writer.value(&Head {
        instance: owner.instance,
        layout: owner.layout.fingerprint(),
        update,
        optimizer: state.optimizer.clone(),
        steps: state.steps,
        moments: state.values.len(),
    });
    writer.f32s(&state.values);
    seal(0, &mut out);
    out
}

fn read(bytes: &[u8], owner: Owner<'_>) -> Result<(OptimizerState, Digest), String> {
    let text = |e: fl_compress::Error| e.to_string();
    let mut reader = unseal(bytes, MAGIC, VERSION).map_err(text)?;
    let head: Head = reader.value("head").map_err(text)?;
    if head.instance != owner.instance {
        return Err("instance: the moments are of another run".to_owned());
    }
    if head.layout != owner.layout.fingerprint() {
        return Err("layout: the moments are of another model".to_owned());
    }
    if head.optimizer != owner.optimizer {
        return Err(format!(
            "optimizer: the moments are of `{}`, and the run trains with `{}`",
            head.optimizer, owner.optimizer
        ));
    }
    let most = most_moments(owner.layout);
    if head.moments > most {
        return Err(format!(
            "count: a model of {} values has at most {most} moments",
            owner.layout.len()
        ));
    }
    let values: Vec<f32> = reader.f32s(head.moments, "moments").map_err(text)?.collect();
    reader.finish("bytes after the moments").map_err(text)?;
    if !values.iter().all(|value| value.is_finite()) {
        return Err("moments: one is not finite".to_owned());
    }
    let state = OptimizerState {
        optimizer: head.optimizer,
        steps: head.steps,
        values,
    };
    Ok((state, head.update))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::state::Disk;

    fn layout() -> Layout {
        Layout::new([("a", vec![3])]).unwrap()
    }

    fn owner(layout: &Layout) -> Owner<'_> {
        Owner {
            instance: Digest([7; 32]),
            layout,
            optimizer: "adamw",
        }
    }

    fn moments(steps: u64) -> OptimizerState {
        OptimizerState {
            optimizer: "adamw".to_owned(),
            steps,
            values: vec![0.5, -1.0, 2.0, 0.25, 0.0, 1e-30],
        }
    }

    fn folder() -> (tempfile::TempDir, RunState) {
        let dir = tempfile::tempdir().unwrap();
        let folder: PathBuf = dir.path().into();
        let disk = Disk { sync: false };
        (dir, RunState { folder, disk })
    }

    #[test]
    fn moments_are_these_bytes_and_damage_is_noticed() {
        let layout = layout();
        let state = moments(9);
        let bytes = write(owner(&layout), Digest([8; 32]), &state);
        let front = [
            b"FLOS\x01\x00".as_slice(),
            &[7; 32],
            &fl_compress::wire::bytes_of(&layout.fingerprint()),
            &[8; 32],
            b"\x05adamw\x09\x06",
            &0.5f32.to_le_bytes(),
        ]
        .concat();
        assert_eq!(bytes[..front.len()], front);
        assert_eq!(bytes.len(), front.len() + 4 * 5 + CHECKSUM_BYTES);
        assert_eq!(read(&bytes, owner(&layout)), Ok((state, Digest([8; 32]))));
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len], owner(&layout)).is_err(), "{len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut broken = bytes.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&broken, owner(&layout)).is_err(), "{bit}");
        }
    }

    #[test]
    fn moments_of_another_version_run_model_or_optimizer_are_refused_by_key() {
        let (layout, other) = (layout(), Layout::new([("a", vec![1, 3])]).unwrap());
        let (_dir, run) = folder();
        let refused = |owner| run.load_optimizer(owner).unwrap_err().to_string();
        run.save_next_optimizer(owner(&layout), Digest([1; 32]), &moments(1))
            .unwrap();
        run.settle_optimizer(Ack::Accepted).unwrap();
        assert_eq!(run.load_optimizer(owner(&layout)), Ok(Some(moments(1))));
        let elsewhere = Owner {
            instance: Digest([9; 32]),
            ..owner(&layout)
        };
        let muon = Owner {
            optimizer: "muon",
            ..owner(&layout)
        };
        for (owner, key) in [(elsewhere, "instance"), (owner(&other), "layout"), (muon, "optimizer")] {
            let why = refused(owner);
            assert!(why.contains("optimizer") && why.contains(&format!("{key}: ")), "{why}");
            assert!(why.contains("delete it"), "{why}");
        }
        let spoil = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = write(owner(&layout), Digest([1; 32]), &moments(1));
            bytes.truncate(bytes.len() - CHECKSUM_BYTES);
            change(&mut bytes);
            seal(0, &mut bytes);
            std::fs::write(run.path(SETTLED), bytes).unwrap();
            refused(owner(&layout))
        };
        assert!(spoil(&|bytes| bytes[4] = 2).contains("version"));
        let last = write(owner(&layout), Digest([1; 32]), &moments(1)).len() - CHECKSUM_BYTES - 4;
        assert!(spoil(&|bytes| bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes())).contains("finite"));
        // More moments than the model can have: refused before they are read.
        assert!(spoil(&|bytes| bytes.extend([0; 400])).contains("bytes long"));
        assert!(spoil(&|bytes| bytes[last - 4 * 5 - 1] = 7).contains("count"));
    }

    #[test]
    fn only_an_accepted_update_changes_the_moments() {
        let layout = layout();
        let (_dir, run) = folder();
        let now = || run.load_optimizer(owner(&layout)).unwrap();
        for (steps, verdict, after) in [
            (1, Ack::Rejected, None),
            (2, Ack::Accepted, Some(2)),
            (3, Ack::Dropped, Some(2)),
            (4, Ack::Accepted, Some(4)),
        ] {
            run.save_next_optimizer(owner(&layout), Digest([1; 32]), &moments(steps))
                .unwrap();
            run.settle_optimizer(verdict).unwrap();
            run.settle_optimizer(verdict).unwrap();
            assert_eq!(now(), after.map(moments));
            assert!(!run.path(NEXT).exists());
        }
        // No memory holds the frame of this training: it was cut short.
        run.save_next_optimizer(owner(&layout), Digest([5; 32]), &moments(5))
            .unwrap();
        run.recover_optimizer(owner(&layout)).unwrap();
        assert_eq!((now(), run.path(NEXT).exists()), (Some(moments(4)), false));
    }
}
