//! Saves and loads the state of an encoder: memory, what was learned, and the pending frame survive a crash.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::encoder::bits::BitsState;
use crate::encoder::budget_agent::BudgetAgent;
use crate::encoder::section::SectionState;
use crate::encoder::update::Encoder;
use crate::error::Error;
use crate::fidelity::Fidelity;
use crate::finite::all_finite;
use crate::frame::view::Frame;
use crate::layout::Layout;
use crate::memory::METHODS;
use crate::pending::Pending;
use crate::rules::agent::Trials;
use crate::spec::Spec;
use crate::stages::Stages;
use crate::wire::{Reader, Writer, seal, unseal};

const MAGIC: &[u8; 4] = b"FLCS";
const VERSION: [u8; 2] = [1, 0];
// More than a state has beside vectors, factors, what it has of each section, and the frame: a network, an agent.
const MOST_FIXED: u64 = 64 * 1024;
// More than a state has of each section beside its factors: a bandit is the longest.
const MOST_OF_SECTION: u64 = 16 * 1024;

/// A state file between its version and its checksum, without the vectors of the memory and the pending frame, which follow.
#[derive(Serialize, Deserialize)]
struct SavedState<'a> {
    /// Fingerprint of the layout.
    layout: u64,
    /// The number of the memory, if it has vectors.
    memory: Option<u8>,
    sections: Cow<'a, [SectionState]>,
    bits: Option<BitsState>,
    budget: Option<Trials>,
    pending: Option<SavedFrame>,
}

/// What a pending frame does not say itself.
#[derive(Serialize, Deserialize)]
struct SavedFrame {
    stages: Stages,
    fidelity: Vec<Fidelity>,
}

impl Encoder {
    /// A bound on the bytes that [`Encoder::save`] appends, whatever the spec, with a pending frame of at most `frame` bytes: a
    /// longer file is not a state, and is not worth reading.
    pub fn most_saved(layout: &Layout, frame: u64) -> u64 {
        let values = layout.len() as u64;
        let tensors = layout.tensors().len() as u64;
        let vectors = METHODS.iter().map(|entry| entry.vectors as u64).max().unwrap_or(0);
        // Factors of low rank are no longer than their tensors.
        4 * (vectors + 1) * values + frame + MOST_OF_SECTION * (tensors + 1) + MOST_FIXED
    }

    /// Appends memory and pending frame to `out`: magic, version, what was learned, vectors of the memory, the frame, checksum.
    /// `pending` must be the pending frame of this encoder; any other is omitted. Without it, the loaded encoder has no pending
    /// frame, as after [`crate::Ack::Dropped`].
    pub fn save(&self, pending: Option<&Pending>, out: &mut Vec<u8>) {
        let start = out.len();
        let pending = pending.filter(|pending| self.is_pending(pending));
        let vectors = self.memory.vectors();
        let mut writer = Writer::new(out);
        writer.head(MAGIC, VERSION);
        writer.value(&SavedState {
            layout: self.layout().fingerprint(),
            memory: self.memory.entry().kind.filter(|_| !vectors.is_empty()),
            sections: Cow::Borrowed(&self.learned.sections),
            bits: self.learned.bits.as_ref().map(|bits| bits.state()),
            budget: self.learned.budget.as_ref().map(BudgetAgent::trials).cloned(),
            pending: pending.map(|pending| SavedFrame {
                stages: pending.stages,
                fidelity: pending.fidelity.clone(),
            }),
        });
        for vector in vectors {
            writer.f32s(vector);
        }
        if let Some(pending) = pending {
            writer.bytes(&pending.frame);
        }
        seal(start, out);
    }

    /// Reads the output of [`Encoder::save`]. The state is kept if the spec has changed, unless the new spec has no
    /// memory.
    ///
    /// # Errors
    /// `Truncated`, `Corrupt`, `NotFinite`; `Mismatch` for another layout, version or kind of memory; `Usage` as
    /// [`Encoder::new`].
    pub fn load(layout: Arc<Layout>, spec: &Spec, bytes: &[u8]) -> Result<(Self, Option<Pending>), Error> {
        let mut reader = unseal(bytes, MAGIC, VERSION)?;
        let saved: SavedState<'_> = reader.value("state of an encoder")?;
        if saved.layout != layout.fingerprint() {
            return Err(Error::Mismatch("the state belongs to another layout".to_owned()));
        }
        let mut encoder = Self::new(layout, spec)?;
        if let Some(kind) = saved.memory {
            encoder.read_memory(kind, &mut reader)?;
        }
        encoder.resume_sections(saved.sections.into_owned())?;
        if let (Some(bits), Some(state)) = (&mut encoder.learned.bits, saved.bits) {
            bits.resume(state)?;
        }
        if let (Some(agent), Some(trials)) = (&mut encoder.learned.budget, saved.budget) {
            agent.resume(trials)?;
        }
        let pending = match saved.pending {
            Some(SavedFrame { stages, fidelity }) => {
                let frame = reader.take(reader.left(), "pending frame")?;
                Some(encoder.restored(frame, stages, fidelity, &reader)?)
            }
            None => None,
        };
        reader.finish("bytes after the state")?;
        encoder.pending = pending.as_ref().map(|pending| pending.digest);
        Ok((encoder, pending))
    }

    /// Reads the vectors of the memory with the number `kind`.
    fn read_memory(&mut self, kind: u8, reader: &mut Reader<'_>) -> Result<(), Error> {
        let saved_by = METHODS.iter().find(|entry| entry.kind == Some(kind));
        let saved_by = saved_by.ok_or_else(|| reader.corrupt("kind of memory"))?;
        let wanted = self.memory.entry();
        if wanted.kind.is_some_and(|wanted| wanted != kind) {
            return Err(Error::Mismatch(format!(
                "the state has the memory `{}`, but the spec requires `{}`; start with a new state",
                saved_by.info.name, wanted.info.name
            )));
        }
        let len = self.layout().len();
        let mut vectors = self.memory.vectors_mut().into_iter();
        for _ in 0..saved_by.vectors {
            let values = reader.f32s(len, "memory")?;
            let Some(vector) = vectors.next() else { continue };
            for (place, value) in vector.iter_mut().zip(values) {
                *place = value;
            }
            if !all_finite(vector) {
                return Err(Error::NotFinite("memory".to_owned()));
            }
        }
        Ok(())
    }

    /// Continues from what was learned of each section. A spec with other sections begins anew.
    fn resume_sections(&mut self, saved: Vec<SectionState>) -> Result<(), Error> {
        saved.iter().try_for_each(SectionState::check)?;
        if saved.len() != self.learned.sections.len() {
            return Ok(());
        }
        let pairs = self.codecs().iter().zip(saved);
        let resumed = pairs.map(|(codec, mut state)| {
            let shape = codec.group.shape;
            state.warm = state
                .warm
                .filter(|warm| warm.len() % shape.cols == 0 && warm.len() <= shape.len());
            codec.method.reduce.method().accepts(&state.rule_state)?;
            Ok(state)
        });
        self.learned.sections = resumed.collect::<Result<_, Error>>()?;
        Ok(())
    }

    fn restored(
        &self,
        bytes: &[u8],
        stages: Stages,
        fidelity: Vec<Fidelity>,
        reader: &Reader<'_>,
    ) -> Result<Pending, Error> {
        let frame = Frame::parse(bytes, self.layout())?;
        frame.verify()?;
        let tensors = self.layout().tensors();
        let lens = frame
            .places()
            .map(|places| places.iter().map(|&at| tensors[at].len as u64).sum());
        if fidelity.len() != lens.len() || !fidelity.iter().zip(lens).all(|(section, len)| section.is_valid(len)) {
            return Err(reader.corrupt("fidelity of a section"));
        }
        if !(stages.entropy_bound.is_finite() && stages.entropy_bound >= 0.0 && stages.framed == bytes.len() as u64) {
            return Err(reader.corrupt("stages"));
        }
        Ok(Pending {
            header: frame.header(),
            frame: bytes.to_vec(),
            digest: Digest::of(bytes),
            stages,
            asked: self.asked(),
            fidelity,
        })
    }
}
