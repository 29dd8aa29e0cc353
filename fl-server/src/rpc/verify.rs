//! Whether the frame of an update can be counted.

use fl_compress::{Digest, Frame, FrameKind, Layout};

use crate::model::decoded_updates::{DecodedUpdate, DecodedUpdates};

/// What the frame of an update must be.
pub(crate) struct Asked<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) round: u64,
    /// The only predictor that it may name.
    pub(crate) step: Option<Digest>,
    /// The largest magnitude that it may hold together with its predictor.
    pub(crate) largest: f32,
    /// Where memory for the values comes from.
    pub(crate) updates: &'a DecodedUpdates,
}

/// Checks that the frame is an update of this model for this round, and decodes to values that, with those of its
/// predictor, are no larger than the plan's bound. Returns what it decodes to, or why it is refused. `largest_of`: the largest
/// magnitude in a model update, or why it is not known.
///
/// # Errors
/// Those of `largest_of`.
pub(crate) fn verify<E>(
    bytes: &[u8],
    asked: &Asked<'_>,
    largest_of: impl FnOnce(&Digest) -> Result<Result<f32, String>, E>,
) -> Result<Result<DecodedUpdate, String>, E> {
    let update = match decoded(bytes, asked) {
        Ok(update) => update,
        Err(why) => return Ok(Err(why)),
    };
    let predicted = update.predictor.is_some();
    let predictor = match asked.step.filter(|_| predicted) {
        None => 0.0,
        Some(step) => match largest_of(&step)? {
            Ok(largest) => largest,
            Err(why) => return Ok(Err(why)),
        },
    };
    let (found, largest) = (update.values.largest(), asked.largest);
    if found + predictor <= largest {
        return Ok(Ok(update));
    }
    let with = if predicted {
        format!(", and its predictor one of {predictor:e}")
    } else {
        String::new()
    };
    Ok(Err(format!(
        "it holds a value of magnitude {found:e}{with}; above {largest:e} the updates of all rounds could add up beyond f32"
    )))
}

/// Decodes the frame.
fn decoded(bytes: &[u8], asked: &Asked<'_>) -> Result<DecodedUpdate, String> {
    let (round, step) = (asked.round, asked.step.as_ref());
    let frame = Frame::parse(bytes, asked.layout).map_err(|e| e.to_string())?;
    let header = frame.header();
    if header.kind != FrameKind::Update {
        return Err(format!("it is a {:?}, not an update", header.kind));
    }
    if header.round != round {
        return Err(format!("it belongs to round {}, not {round}", header.round));
    }
    match (frame.predictor(), step) {
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
    asked.updates.decode(&frame).map_err(|e| e.to_string())
}
