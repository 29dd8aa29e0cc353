//! Replays one chain of frames: decodes what was sent, encodes it again, and measures what a receiver would have
//! missed.

use std::collections::BTreeMap;
use std::sync::Arc;

use fl_compress::{Ack, EncodeOptions, Encoder, Error, Frame, FrameKind, Layout, Memory, Pending, Spec, Stages};

use super::energy::{Energy, Sums};
use super::files::Files;
use super::{StoredFrame, WhatIfError};
use crate::reporting::inspect::InspectError;

/// Frames of one encoder: the updates of a client, or the model updates.
#[derive(Debug)]
pub(super) struct Chain<'a> {
    /// Whose; empty for the steps.
    pub(super) client: &'a str,
    pub(super) kind: FrameKind,
    /// How they are encoded; the memory is resolved.
    pub(super) spec: &'a Spec,
    pub(super) frames: Vec<&'a StoredFrame>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct FrameResult {
    pub(super) round: u64,
    pub(super) recorded: Stages,
    pub(super) other: Stages,
    pub(super) energy: Energy,
}

#[derive(Debug, Default)]
pub(super) struct ChainResult {
    /// Its stored frames.
    pub(super) done: Vec<FrameResult>,
    pub(super) missing: Vec<u64>,
    /// Of the sums over all its frames.
    pub(super) whole: Energy,
}

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

struct Buffers {
    values: Vec<f32>,
    delta: Vec<f32>,
    frame: Vec<u8>,
    step: Vec<u8>,
}

impl Replay<'_> {
    /// Replays a chain. `done` is called after each frame and returns whether to continue.
    pub(super) fn chain(&self, chain: &Chain<'_>, mut done: impl FnMut() -> bool) -> Result<ChainResult, WhatIfError> {
        let len = self.layout.len();
        let encoder = Encoder::new(Arc::clone(self.layout), chain.spec);
        let mut encoder = encoder.map_err(|e| WhatIfError::Spec(e.to_string()))?;
        encoder.set_threads(self.threads);
        let mut out = ChainResult::default();
        let mut sums = Sums::new(len);
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
    ) -> Result<FrameResult, WhatIfError> {
        let Buffers {
            values,
            delta,
            frame,
            step,
        } = buffers;
        let parsed = Frame::parse(frame, self.layout).map_err(|e| corrupt(chain, stored, &e))?;
        let header = parsed.header();
        if (header.kind, header.round) != (chain.kind, stored.round) {
            let why = format!("it is a {:?} of round {}", header.kind, header.round);
            return Err(corrupt(chain, stored, &why));
        }
        parsed.decode(values).map_err(|e| corrupt(chain, stored, &e))?;

        // The predictor of the stored frame, and of the new one.
        let before = stored.round.checked_sub(1).and_then(|round| self.steps.get(&round));
        let predicts = chain.kind == FrameKind::Update && chain.spec.memory.predicts();
        let predictor = match (parsed.predictor(), before) {
            (None, None) => None,
            (None, Some(_)) if !predicts => None,
            (Some(_), None) => {
                let why = "it names a predictor, but no model update precedes it";
                return Err(corrupt(chain, stored, &why));
            }
            (_, Some(before)) => Some(self.step(before, step)?),
        };
        if let Some(named) = parsed.predictor() {
            let Some(predictor) = predictor.as_ref().filter(|step| step.id() == named) else {
                let why = "its predictor is not the model update of the version trained from";
                return Err(corrupt(chain, stored, &why));
            };
            let added = predictor.accumulate_trained(1.0, values);
            added.map_err(|e| corrupt(chain, stored, &e))?;
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
        Ok(FrameResult {
            round: stored.round,
            recorded: stored.sizes,
            other: pending.stages,
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
        let why = if self.files.read(stored, bytes)? {
            match Frame::parse(bytes, self.layout) {
                Ok(frame) => return Ok(frame),
                Err(why) => why.to_string(),
            }
        } else {
            format!("blob {} is missing", stored.frame)
        };
        Err(InspectError::Corrupt(format!("the step of round {}: {why}", stored.round)).into())
    }
}

fn corrupt(chain: &Chain<'_>, stored: &StoredFrame, why: &dyn std::fmt::Display) -> WhatIfError {
    InspectError::Corrupt(format!("{}: {why}", named(chain, stored))).into()
}

fn named(chain: &Chain<'_>, stored: &StoredFrame) -> String {
    match chain.kind {
        FrameKind::Update => format!(
            "the update of {} in round {}, blob {}",
            stored.client, stored.round, stored.frame
        ),
        _ => format!("the step of round {}, blob {}", stored.round, stored.frame),
    }
}
