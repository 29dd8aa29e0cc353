//! The mean, weighted by examples.
//!
//! ```text
//! sum over the updates of w_i * decode(frame_i)  +  p * decode(predictor)
//! w_i = s_i n_i / sum n,  p = sum of s_i n_i with a predictor / sum n
//! ```
//!
//! Weights are computed in `f64` and cast; the sum is `f32`, in the order of the clients' names, and the predictor is added
//! once, at the end. Memory: frame and values of one update for each thread.

use super::method::{Aggregator, AggregatorMethod};
use crate::config::plan::{Bound, MethodInfo, any_uplink};
use crate::model::error::ModelError;
use crate::model::updates::Updates;

pub(super) static METHOD: AggregatorMethod = AggregatorMethod {
    info: MethodInfo {
        name: "mean",
        about: "the mean of the updates, weighted by examples (McMahan et al. 2017)",
        keys: &[],
        // The weights are positive and sum to at most 1.
        bound: |_, _| Bound::gain(1.0),
        accepts: any_uplink,
    },
    build: |_| Box::new(Mean),
};

#[derive(Debug)]
struct Mean;

impl Aggregator for Mean {
    fn aggregate(&self, updates: &mut Updates<'_>, out: &mut [f32]) -> Result<(), ModelError> {
        let total: f64 = updates.parts().iter().map(|part| part.examples).sum();
        let weights: Vec<f32> = updates.parts().iter().map(|part| part.weight as f32).collect();
        let mut predicted = 0.0;
        for (at, weight) in weights.into_iter().enumerate() {
            if updates.add_frame(at, weight, out)? {
                let part = &updates.parts()[at];
                predicted += part.examples * part.scale;
            }
        }
        if predicted > 0.0 {
            updates.add_predictor((predicted / total) as f32, out)?;
        }
        Ok(())
    }
}
