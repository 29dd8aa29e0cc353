//! `optimizer` and `optimizer-next`: the moments of the local optimizer, where a run keeps them from round to round.
//!
//! ```text
//! "FLOS" | major u8 | minor u8 | instance of the run 32 | fingerprint of the layout u64 | digest of the update 32 | name of the
//! optimizer: length u16, UTF-8 | steps u64 | count u64 | moments, f32 each | CRC-32C of all before it u32
//! ```
//!
//! `optimizer-next` belongs to the frame in `memory` and is written before it; `optimizer` is from before that training. When the
//! server accepts the frame, `optimizer-next` replaces `optimizer`; any other answer removes it, so that a round that is trained
//! again begins with the same moments. An `optimizer-next` of another frame is from a training that a crash cut short.

use fl_compress::wire::{CHECKSUM_BYTES, Writer, seal, unseal};
use fl_compress::{Ack, Digest, Layout};

use super::run_state::RunState;
use crate::error::Error;
use crate::optimizer_state::OptimizerState;

const MAGIC: &[u8; 4] = b"FLOS";
const VERSION: [u8; 2] = [1, 0];
/// Everything but name and moments.
const FIXED: usize = 4 + 2 + 32 + 8 + 32 + 2 + 8 + 8 + CHECKSUM_BYTES;

const SETTLED: &str = "optimizer";
const NEXT: &str = "optimizer-next";

/// The run, model and optimizer that moments must belong to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner<'a> {
    pub(crate) instance: Digest,
    pub(crate) layout: &'a Layout,
    pub(crate) optimizer: &'a str,
}

impl RunState {
    /// The moments after the last accepted training; `None` before the first.
    ///
    /// # Errors
    /// `State` if the file is broken, or of another version, run, model or optimizer.
    pub(crate) fn load_optimizer(&self, owner: Owner<'_>) -> Result<Option<OptimizerState>, Error> {
        self.read_optimizer(SETTLED, owner)
            .map(|found| found.map(|(state, _)| state))
    }

    /// Makes the moments after the training of `update` durable. They do not replace those before it.
    ///
    /// # Errors
    /// `State` if they cannot be written.
    pub(crate) fn save_next_optimizer(
        &self,
        owner: Owner<'_>,
        update: Digest,
        state: &OptimizerState,
    ) -> Result<(), Error> {
        self.disk.replace(&self.path(NEXT), &[&write(owner, update, state)])
    }

    /// Installs the answer to an update: its moments replace those before it, or are removed. Idempotent.
    ///
    /// # Errors
    /// `State` if a file cannot be moved or removed.
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
    ///
    /// # Errors
    /// As [`RunState::load_optimizer`], [`RunState::settle_optimizer`] and [`RunState::ack`].
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

/// Most moments of a model.
pub(crate) fn most_moments(layout: &Layout) -> usize {
    OptimizerState::PER_VALUE.saturating_mul(layout.len())
}

fn write(owner: Owner<'_>, update: Digest, state: &OptimizerState) -> Vec<u8> {
    let mut out = Vec::with_capacity(FIXED + state.optimizer.len() + 4 * state.values.len());
    let mut writer = Writer::new(&mut out);
    writer.head(MAGIC, VERSION);
    writer.bytes(&owner.instance.0);
    writer.u64(owner.layout.fingerprint());
    writer.bytes(&update.0);
    writer.text(&state.optimizer);
    writer.u64(state.steps);
    writer.u64(state.values.len() as u64);
    writer.f32s(&state.values);
    seal(0, &mut out);
    out
}

/// The moments and the digest of their update.
fn read(bytes: &[u8], owner: Owner<'_>) -> Result<(OptimizerState, Digest), String> {
    let text = |e: fl_compress::Error| e.to_string();
    let mut reader = unseal(bytes, MAGIC, VERSION).map_err(text)?;
    if reader.array("instance").map(Digest).map_err(text)? != owner.instance {
        return Err("instance: the moments are of another run".to_owned());
    }
    if reader.u64("layout").map_err(text)? != owner.layout.fingerprint() {
        return Err("layout: the moments are of another model".to_owned());
    }
    let update = reader.array("update").map(Digest).map_err(text)?;
    let optimizer = reader.text("optimizer").map_err(text)?.to_owned();
    if optimizer != owner.optimizer {
        return Err(format!(
            "optimizer: the moments are of `{optimizer}`, and the run trains with `{}`",
            owner.optimizer
        ));
    }
    let steps = reader.u64("steps").map_err(text)?;
    let count = reader.u64("count").map_err(text)?;
    let most = most_moments(owner.layout);
    let count = usize::try_from(count).ok().filter(|count| *count <= most);
    let count = count.ok_or_else(|| {
        format!(
            "count: a model of {} values has at most {most} moments",
            owner.layout.len()
        )
    })?;
    let values: Vec<f32> = reader.f32s(count, "moments").map_err(text)?.collect();
    reader.finish("bytes after the moments").map_err(text)?;
    if !values.iter().all(|value| value.is_finite()) {
        return Err("moments: one is not finite".to_owned());
    }
    let state = OptimizerState {
        optimizer,
        steps,
        values,
    };
    Ok((state, update))
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
        let fingerprint = layout.fingerprint().to_le_bytes();
        let head = [
            b"FLOS\x01\x00".as_slice(),
            &[7; 32],
            &fingerprint,
            &[8; 32],
            b"\x05\0adamw",
        ];
        let body = [
            b"\x09\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0".as_slice(),
            &0.5f32.to_le_bytes(),
        ];
        let front = [head.concat(), body.concat()].concat();
        assert_eq!(bytes[..front.len()], front);
        assert_eq!(bytes.len(), FIXED + 5 + 4 * 6);
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
        let last = FIXED - CHECKSUM_BYTES + 5 + 4 * 5;
        assert!(spoil(&|bytes| bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes())).contains("finite"));
        // More moments than the model can have: refused before they are read.
        assert!(spoil(&|bytes| bytes.extend([0; 400])).contains("bytes long"));
        assert!(spoil(&|bytes| bytes[last - 4 * 5 - 8] = 7).contains("count"));
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
