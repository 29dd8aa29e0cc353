//! The coordinate-wise trimmed mean (Yin et al. 2018, "Byzantine-Robust Distributed Learning", definition 2): of the values of
//! each coordinate, a fraction `trim` is dropped at either end, and the rest is averaged. With fewer than `trim` of the
//! clients malicious, no coordinate can leave the range of the others' values.
//!
//! Every counted update has one vote, independent of its number of examples, scaled by the factor of the limits.
//! `floor(trim * updates)` votes are dropped at either end, and at least one remains.
//!
//! Memory: [`BLOCK`] models for a block of columns, and one for the update that is being read. With more than [`BLOCK`]
//! updates the model is done in several blocks of columns, and each frame is read once for each block:
//! `ceil(updates / BLOCK)` times.

use fl_compress::{Method, Spec};

use super::method::{Aggregator, AggregatorMethod};
use crate::config::plan::{Bound, Key, MethodInfo, Range};
use crate::model::error::ModelError;
use crate::model::updates::Updates;

/// Most values of a block of columns, in models.
const BLOCK: usize = 4;

pub(super) static METHOD: AggregatorMethod = AggregatorMethod {
    info: MethodInfo {
        name: "trimmed-mean",
        about: "of each coordinate, the mean of the votes that are not among the largest or smallest (Yin et al. 2018)",
        keys: &[Key {
            name: "trim",
            default: 0.1,
            range: Range::Below(0.5),
            about: "part of the votes that is dropped at either end",
        }],
        bound: |_, _| Bound::gain(1.0),
        accepts: every_coordinate_is_sent,
    },
    build: |spec| {
        Box::new(TrimmedMean {
            trim: spec.number("trim"),
        })
    },
};

#[derive(Debug)]
struct TrimmedMean {
    trim: f32,
}

impl TrimmedMean {
    /// Votes to drop at either end.
    fn dropped(&self, votes: usize) -> usize {
        // An f32 may be just below the decimal fraction that was meant: 0.45 of 20 votes are 9.
        let meant = f64::from(self.trim) * (1.0 + f64::from(f32::EPSILON));
        ((meant * votes as f64) as usize).min(votes.saturating_sub(1) / 2)
    }
}

impl Aggregator for TrimmedMean {
    fn aggregate(&self, updates: &mut Updates<'_>, out: &mut [f32]) -> Result<(), ModelError> {
        let counting = updates
            .parts()
            .iter()
            .enumerate()
            .filter(|(_, part)| part.examples > 0.0);
        let voters: Vec<(usize, f32)> = counting.map(|(at, part)| (at, part.scale as f32)).collect();
        let votes = voters.len();
        let dropped = self.dropped(voters.len());
        if votes == 0 || out.is_empty() {
            return Ok(());
        }
        let columns = (BLOCK * out.len() / votes).clamp(1, out.len());
        // One column after another, so that the votes of a coordinate are side by side.
        let mut block = vec![0.0; columns * votes];
        let mut values = vec![0.0; out.len()];
        for (start, out) in (0..).step_by(columns).zip(out.chunks_mut(columns)) {
            for (vote, &(at, scale)) in voters.iter().enumerate() {
                updates.values(at, &mut values)?;
                let cells = block.iter_mut().skip(vote).step_by(votes);
                cells
                    .zip(&values[start..start + out.len()])
                    .for_each(|(cell, value)| *cell = scale * value);
            }
            for (out, column) in out.iter_mut().zip(block.chunks_exact_mut(votes)) {
                column.sort_unstable_by(f32::total_cmp);
                let kept = &column[dropped..votes - dropped];
                let sum: f64 = kept.iter().map(|value| f64::from(*value)).sum();
                *out = (sum / kept.len() as f64) as f32;
            }
        }
        Ok(())
    }
}

/// Refuses codecs that leave coordinates out: they read as zeros, and the zeros would outvote the values.
fn every_coordinate_is_sent(uplink: &Spec) -> Result<(), String> {
    match uplink.methods().find_map(leaves_out) {
        None => Ok(()),
        Some(method) => Err(format!(
            "coordinates that `{method}` of compression.uplink does not send read as zeros, and the zeros would outvote the \
             values; send every coordinate, such as with `[compression.uplink]` `default = {{ quantize = {{ uniform = 8 }} }}`, \
             or take the aggregator `mean`"
        )),
    }
}

/// The part of a codec that sends some of the values only.
fn leaves_out(method: &Method) -> Option<&'static str> {
    let slots = [method.reduce.info(), method.quantize.info()];
    slots.into_iter().find(|info| info.leaves_out).map(|info| info.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_votes_are_dropped_as_the_decimal_fraction_says_and_one_is_left() {
        for (trim, votes, dropped) in [
            (0.0, 9, 0),
            (0.1, 9, 0),
            (0.1, 10, 1),
            (0.3, 10, 3),
            (0.45, 20, 9),
            (0.49, 1, 0),
            (0.49, 2, 0),
            (0.499_999_97, 2, 0),
            (0.2, 4, 0),
            (0.25, 4, 1),
        ] {
            assert_eq!(TrimmedMean { trim }.dropped(votes), dropped, "{trim} of {votes}");
        }
    }
}
