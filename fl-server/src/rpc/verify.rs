//! Whether the frame of an update can be counted.

use fl_compress::{Digest, Frame, FrameKind, Layout};
use fl_proto::{Refusal, UpdateReply};

use crate::config::plan::RunPlan;
use crate::model::decoded_updates::{DecodedUpdate, DecodedUpdates};
use crate::state_machine::State;
use crate::storage::blobs::BlobError;

/// What the frame of an update must be.
pub(crate) struct Requirements<'a> {
    layout: &'a Layout,
    round: u64,
    /// The only predictor that it may name.
    step: Option<Digest>,
    /// The largest magnitude that it may hold together with its predictor.
    largest: f32,
    /// Where memory for the values comes from.
    updates: &'a DecodedUpdates,
}

impl<'a> Requirements<'a> {
    pub(crate) fn of(
        (state, plan): (&State, &RunPlan),
        layout: &'a Layout,
        round: u64,
        updates: &'a DecodedUpdates,
    ) -> Self {
        Self {
            layout,
            round,
            step: predictor(state, plan, round),
            largest: plan.largest_value(),
            updates,
        }
    }
}

/// Digest of the predictor's frame; `None` if no frame of `round` may name one: the run's memory is not CAFe, or the
/// round trains from version 0.
fn predictor(state: &State, plan: &RunPlan, round: u64) -> Option<Digest> {
    let made_by = usize::try_from(round).ok()?.checked_sub(2)?;
    // A rollback has no model update.
    let step = state
        .versions()
        .made()
        .get(made_by)
        .filter(|made| made.base.is_none())?
        .frame;
    plan.uplink.memory.predicts().then_some(step)
}

#[derive(Debug)]
pub(crate) enum VerifyError {
    /// The frame, which is refused for good. The client is told why.
    Unusable(String),
    /// The frame or its predictor cannot be read.
    Blob(BlobError),
}

impl From<BlobError> for VerifyError {
    fn from(error: BlobError) -> Self {
        Self::Blob(error)
    }
}

pub(crate) fn unusable(why: &str) -> UpdateReply {
    UpdateReply::Refused {
        why: Refusal::Invalid,
        message: format!("the frame is not usable: {why}"),
    }
}

/// Checks that the frame is an update of this model for this round, and decodes to values that, with those of its
/// predictor, are no larger than the plan's bound. Returns what it decodes to. `largest_of`: the largest magnitude in a model update.
pub(crate) fn verify(
    bytes: &[u8],
    required: &Requirements<'_>,
    largest_of: impl FnOnce(&Digest) -> Result<f32, VerifyError>,
) -> Result<DecodedUpdate, VerifyError> {
    let update = decoded(bytes, required).map_err(VerifyError::Unusable)?;
    let is_predicted = update.predictor.is_some();
    let predictor = match &required.step {
        Some(step) if is_predicted => largest_of(step)?,
        _ => 0.0,
    };
    let found = update.values.largest();
    let largest = required.largest;
    if found + predictor <= largest {
        return Ok(update);
    }
    let with = if is_predicted {
        format!(", and its predictor one of {predictor:e}")
    } else {
        String::new()
    };
    Err(VerifyError::Unusable(format!(
        "it holds a value of magnitude {found:e}{with}; above {largest:e} the updates of all rounds could add up beyond f32"
    )))
}

fn decoded(bytes: &[u8], required: &Requirements<'_>) -> Result<DecodedUpdate, String> {
    let round = required.round;
    let frame = Frame::parse(bytes, required.layout).map_err(|e| e.to_string())?;
    let header = frame.header();
    if header.kind != FrameKind::Update {
        return Err(format!("it is a {:?}, not an update", header.kind));
    }
    if header.round != round {
        return Err(format!("it belongs to round {}, not {round}", header.round));
    }
    match (frame.predictor(), &required.step) {
        (None, _) => {}
        (Some(named), Some(step)) if named == step.short() => {}
        (Some(named), Some(step)) => {
            return Err(format!(
                "it was encoded against frame {named:016x}, but the model update of version {} is {:016x}",
                round - 1,
                step.short()
            ));
        }
        (Some(_), None) => {
            return Err(format!(
                "it was encoded against a predictor, but round {round} of this run has none"
            ));
        }
    }
    required.updates.decode(&frame).map_err(|e| e.to_string())
}
