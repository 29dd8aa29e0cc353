//! First slot: which values are sent. A reducer is one file and one line of the table below.

pub(crate) mod adacomp;
pub(crate) mod auto;
pub(crate) mod components;
pub(crate) mod count_sketch;
pub(crate) mod eigen;
pub(crate) mod form;
pub(crate) mod keep;
pub(crate) mod keyed;
pub(crate) mod low_rank;
pub(crate) mod method;
pub(crate) mod one_sided;
pub(crate) mod planes;
pub(crate) mod products;
pub(crate) mod projection;
pub(crate) mod random_k;
pub(crate) mod recipe;
pub(crate) mod singular;
pub(crate) mod spectrum;
pub(crate) mod support;
pub(crate) mod tensor_train;
pub(crate) mod threshold;
pub(crate) mod top_k;

use crate::forms::methods::methods;
use crate::reduce::method::{Entry, Reducer};

methods! {
    /// What a user asks of the first slot.
    #[derive(Debug, Clone, PartialEq, Default)]
    ReduceSpec: Reducer, Entry;
    plain {
        /// Every value.
        #[default]
        Keep = keep,
        /// Every value; and of a matrix with a dead zone, as many singular components apart from the rest as pay for
        /// themselves.
        Auto = auto,
    }
    numbers {
        /// The values largest in magnitude.
        TopK = top_k,
        /// Values at random places.
        RandomK = random_k,
        /// The values that reach a magnitude.
        Threshold = threshold,
        /// The largest values of one sign.
        OneSided = one_sided,
        /// The values that reach the largest of their bin in the next round.
        Adacomp = adacomp,
        /// Two factors of a matrix, and perhaps the largest values of what they leave.
        LowRank = low_rank,
        /// Four cores of a tensor train.
        TensorTrain = tensor_train,
        /// Signed sums under several hashes.
        CountSketch = count_sketch,
        /// Random signed sums of blocks.
        Projection = projection,
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Holder {
        reduce: ReduceSpec,
    }

    #[test]
    fn every_example_parses_is_of_its_method_and_round_trips() {
        for info in METHODS.iter().map(|entry| entry.info) {
            for text in info.examples {
                let parsed = toml::from_str(&format!("reduce = {text}"));
                let holder: Holder = parsed.unwrap_or_else(|error| panic!("{text}: {error}"));
                assert_eq!(holder.reduce.name(), info.name);
                let written = toml::to_string(&holder).unwrap();
                assert_eq!(toml::from_str(&written), Ok(holder), "{text}: {written}");
            }
        }
    }
}
