//! Whether the frame of an update can be counted.

use fl_compress::{Digest, Frame, FrameKind, Layout, SectionInfo};

/// What the frame of an update must be.
pub(crate) struct Asked<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) round: u64,
    /// The only predictor that it may name.
    pub(crate) step: Option<Digest>,
    /// The largest magnitude that it may hold together with its predictor.
    pub(crate) largest: f32,
}

/// Checks that the frame is an update of this model for this round, and decodes to values that, with those of its
/// predictor, are no larger than the plan's bound. Returns the first tensor of each section, or why the frame is refused.
/// `largest_of`: the largest magnitude in a model update, or why it is not known.
///
/// # Errors
/// Those of `largest_of`.
pub(crate) fn verify<E>(
    bytes: &[u8],
    asked: &Asked<'_>,
    largest_of: impl FnOnce(&Digest) -> Result<Result<f32, String>, E>,
) -> Result<Result<Vec<u32>, String>, E> {
    let Asked {
        layout,
        round,
        step,
        largest,
    } = *asked;
    let Decodable {
        found,
        predicted,
        firsts,
    } = match decodable(bytes, layout, round, step.as_ref()) {
        Ok(decodable) => decodable,
        Err(why) => return Ok(Err(why)),
    };
    let predictor = match step.filter(|_| predicted) {
        None => 0.0,
        Some(step) => match largest_of(&step)? {
            Ok(largest) => largest,
            Err(why) => return Ok(Err(why)),
        },
    };
    if found + predictor <= largest {
        return Ok(Ok(firsts));
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

/// A frame that can be counted.
struct Decodable {
    /// The largest magnitude in it.
    found: f32,
    /// Whether it was encoded against the predictor.
    predicted: bool,
    /// The first tensor of each section.
    firsts: Vec<u32>,
}

/// Decodes the frame. `step` is the only predictor that it may name.
fn decodable(bytes: &[u8], layout: &Layout, round: u64, step: Option<&Digest>) -> Result<Decodable, String> {
    let frame = Frame::parse(bytes, layout).map_err(|e| e.to_string())?;
    let header = frame.header();
    if header.kind != FrameKind::Update {
        return Err(format!("it is a {:?}, not an update", header.kind));
    }
    if header.round != round {
        return Err(format!("it belongs to round {}, not {round}", header.round));
    }
    let predicted = match (frame.predictor(), step) {
        (None, _) => false,
        (Some(named), Some(step)) if named == step.short() => true,
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
    };
    let found = frame.verify().map_err(|e| e.to_string())?;
    let first = |section: SectionInfo<'_>| section.places.first().map_or(0, |at| *at as u32);
    Ok(Decodable {
        found,
        predicted,
        firsts: frame.sections().map(first).collect(),
    })
}
