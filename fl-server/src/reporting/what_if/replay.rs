//! Replays one chain of frames: decodes what was sent, encodes it again, and measures what a receiver would have
//! missed.

use std::collections::BTreeMap;
use std::sync::Arc;

use fl_compress::{Ack, EncodeOptions, Encoder, Error, Frame, FrameKind, Layout, Memory, Pending, Spec};

use super::energy::{Energy, Sums};
use super::files::Files;
use super::sizes::Sizes;
use super::{StoredFrame, WhatIfError};
use crate::reporting::inspect::InspectError;

/// Frames of one encoder: the updates of a client, or the model updates.
#[derive(Debug)]
pub(super) struct Chain<'a> {
    /// Whose; empty for the steps.
    pub(super) client: &'a str,
    /// What its frames are.
    pub(super) kind: FrameKind,
    /// How they are encoded; the memory is resolved.
    pub(super) spec: &'a Spec,
    /// In the order of rounds.
    pub(super) frames: Vec<&'a StoredFrame>,
}

/// The result of one frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) round: u64,
    pub(super) recorded: Sizes,
    pub(super) other: Sizes,
    pub(super) energy: Energy,
}

/// The result of a chain.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    /// Its stored frames.
    pub(super) done: Vec<Done>,
    /// Rounds of frames that are not stored.
    pub(super) missing: Vec<u64>,
    /// Of the sums over all its frames.
    pub(super) whole: Energy,
}

/// State shared by all chains.
#[derive(Debug)]
pub(super) struct Replay<'a> {
    pub(super) layout: &'a Arc<Layout>,
    pub(super) files: Files,
    /// Whether the run encoded updates against a predictor. An update without one could not have one then.
    pub(super) was_predicted: bool,
    pub(super) steps: BTreeMap<u64, &'a StoredFrame>,
    /// Threads for one chain.
    pub(super) threads: usize,
}

/// Buffers reused for each frame.
struct Buffers {
    values: Vec<f32>,
    delta: Vec<f32>,
    frame: Vec<u8>,
    step: Vec<u8>,
}

impl Replay<'_> {
    /// Replays a chain. `done` is called after each frame and returns whether to continue.
    ///
    /// # Errors
    /// As [`super::what_if`].
    pub(super) fn chain(&self, chain: &Chain<'_>, mut done: impl FnMut() -> bool) -> Result<Replayed, WhatIfError> {
        let len = self.layout.len();
        let encoder = Encoder::new(Arc::clone(self.layout), chain.spec);
        let mut encoder = encoder.map_err(|e| WhatIfError::Spec(e.to_string()))?;
        encoder.set_threads(self.threads);
        let (mut out, mut sums) = (Replayed::default(), Sums::new(len));
        let mut buffers = Buffers {
            values: vec![0.0; len],
            delta: vec![0.0; len],
            frame: Vec::new(),
            step: Vec::new(),
        };
        for &stored in &chain.frames {
            if self.files.read(stored, &mut buffers.frame)? {
                let replayed = self.frame(chain, stored, &mut encoder, &mut sums, &mut buffers)?;
                out.done.push(replayed);
            } else if chain.kind == FrameKind::ModelUpdate {
                let text = format!("the step of round {}, blob {}, is missing", stored.round, stored.frame);
                return Err(InspectError::Corrupt(text).into());
            } else {
                out.missing.push(stored.round);
            }
            if !done() {
                break;
            }
        }
        out.whole = sums.whole();
        Ok(out)
    }

    fn frame(
        &self,
        chain: &Chain<'_>,
        stored: &StoredFrame,
        encoder: &mut Encoder,
        sums: &mut Sums,
        buffers: &mut Buffers,
    ) -> Result<Done, WhatIfError> {
        let Buffers {
            values,
            delta,
            frame,
            step,
        } = buffers;
        let corrupt = |why: String| InspectError::Corrupt(format!("{}: {why}", named(chain, stored)));
        let undecodable = |e: Error| corrupt(e.to_string());
        let parsed = Frame::parse(frame, self.layout).map_err(undecodable)?;
        let header = parsed.header();
        if (header.kind, header.round) != (chain.kind, stored.round) {
            return Err(corrupt(format!("it is a {:?} of round {}", header.kind, header.round)).into());
        }
        parsed.decode(values).map_err(undecodable)?;

        // The predictor of the stored frame, and of the new one.
        let before = stored.round.checked_sub(1).and_then(|round| self.steps.get(&round));
        let predicts = chain.kind == FrameKind::Update && chain.spec.memory.predicts();
        let predictor = match (parsed.predictor(), before) {
            (None, None) => None,
            (None, Some(_)) if !predicts => None,
            (Some(_), None) => {
                return Err(corrupt("it names a predictor, but no model update precedes it".to_owned()).into());
            }
            (_, Some(before)) => Some(self.step(before, step)?),
        };
        if let Some(named) = parsed.predictor() {
            let predictor = predictor.as_ref().filter(|step| step.id() == named);
            let predictor = predictor.ok_or_else(|| {
                corrupt("its predictor is not the model update of the version trained from".to_owned())
            })?;
            predictor.accumulate_trained(1.0, values).map_err(undecodable)?;
        }

        delta.copy_from_slice(values);
        let failed = |error: Error| match error {
            Error::Usage(why) => WhatIfError::Spec(why),
            error => WhatIfError::Failed(format!("{} cannot be encoded again: {error}", named(chain, stored))),
        };
        let predictable = parsed.predictor().is_some() || !self.was_predicted;
        let predictor = predictor.as_ref().filter(|_| predicts && predictable);
        let options = EncodeOptions {
            predictor,
            rounding: parsed.rounding(),
            ..EncodeOptions::default()
        };
        let pending = encoder.encode_with(options, delta, header).map_err(failed)?;
        let energy = self.missed((chain.spec.memory, predictor), encoder, &pending, sums, values, delta);
        let energy = energy.map_err(failed)?;
        encoder.settle(&pending, Ack::Accepted).map_err(failed)?;
        let mut other = Sizes::default();
        other.add(&pending.stages);
        Ok(Done {
            round: stored.round,
            recorded: stored.sizes,
            other,
            energy,
        })
    }

    /// Adds to `sums` what a receiver of `pending` misses of `values`. `delta`: as the encoder left it.
    fn missed(
        &self,
        (memory, predictor): (Memory, Option<&Frame<'_>>),
        encoder: &Encoder,
        pending: &Pending,
        sums: &mut Sums,
        values: &[f32],
        delta: &mut [f32],
    ) -> Result<Energy, Error> {
        if let (Memory::ErrorFeedback { decay }, Some(residual)) = (memory, encoder.residual()) {
            // The encoder has decoded its frame already, and `delta` holds the previous residual.
            return Ok(sums.take_residual(values, delta, residual, decay.get() as f32));
        }
        if encoder.residual().is_some() {
            delta.copy_from_slice(values);
            Frame::parse(&pending.frame, self.layout)?.accumulate(-1.0, delta)?;
            predictor.map_or(Ok(()), |predictor| predictor.accumulate_trained(-1.0, delta))?;
        }
        // Without a residual, `delta` holds what the frame does not carry.
        Ok(sums.take(values, delta))
    }

    fn step<'b>(&'b self, stored: &StoredFrame, bytes: &'b mut Vec<u8>) -> Result<Frame<'b>, WhatIfError> {
        let corrupt = |why: String| InspectError::Corrupt(format!("the step of round {}: {why}", stored.round));
        if !self.files.read(stored, bytes)? {
            return Err(corrupt(format!("blob {} is missing", stored.frame)).into());
        }
        Ok(Frame::parse(bytes, self.layout).map_err(|e| corrupt(e.to_string()))?)
    }
}

/// The name of a frame, for errors.
fn named(chain: &Chain<'_>, stored: &StoredFrame) -> String {
    match chain.kind {
        FrameKind::Update => format!(
            "the update of {} in round {}, blob {}",
            stored.client, stored.round, stored.frame
        ),
        _ => format!("the step of round {}, blob {}", stored.round, stored.frame),
    }
}
