//! The largest values of one sign: sparse binary compression (Sattler et al. 2019, algorithm 2) before `quantize = "sign"`.
//!
//! Of the `k` largest positive and the `k` smallest negative values, those of the sign with the larger mean magnitude are kept.
//! `sign` sends their mean as one number, and its sign bits are all equal, which any coder but `pack` reduces to almost nothing.

use serde::{Deserialize, Serialize};

use crate::density::Density;
use crate::forms::methods::MethodInfo;
use crate::layout::Shape;
use crate::reduce::form::Part;
use crate::reduce::method::{Entry, Reducer, ReducerChoice, Sends, TensorValues};
use crate::reduce::support;
use crate::reduce::top_k::top_k;
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;

/// Share of the values that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OneSided(Density);

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "one_sided",
        about: "The largest values of the sign whose mean magnitude is larger, with their places (SBC).",
        examples: &["{ one_sided = 0.1 }"],
        leaves_out: true,
    },
    form: &support::FORM,
    stream: 0,
};

impl Reducer for OneSided {
    fn choose(&self, tensor: &TensorValues<'_>, _: RoundContext, _: &mut RuleState) -> ReducerChoice {
        let k = self.0.count(tensor.values.len());
        support::chosen(Sends::Other, None, move |tensor| larger_side(tensor, k))
    }

    fn most_parts(&self, shape: Shape, _: usize) -> Option<Vec<Part>> {
        Some(vec![Part::indexed(self.0.count(shape.len()))])
    }
}

/// Ascending indices of the kept values.
fn larger_side(tensor: &TensorValues<'_>, k: usize) -> Vec<u32> {
    let side = |sign: f32| {
        let own: Vec<f32> = tensor.values.iter().map(|value| (sign * value).max(0.0)).collect();
        let kept = top_k(tensor.threads, &own, k);
        let sum: f64 = kept.iter().map(|&at| f64::from(own[at as usize])).sum();
        (sum / kept.len().max(1) as f64, kept)
    };
    let positive = side(1.0);
    let negative = side(-1.0);
    // On a tie the positive ones.
    if positive.0 >= negative.0 {
        positive.1
    } else {
        negative.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Shape;
    use crate::quantize::QuantizeSpec;
    use crate::rng::KeyedRng;

    fn kept(values: &[f32], k: usize) -> Vec<u32> {
        let tensor = TensorValues {
            values,
            squared_gradients: None,
            residual: None,
            shape: Shape::row(values.len()),
            places: 1,
            quantize: QuantizeSpec::Exact,
            rng: KeyedRng::new(0, 0),
            unbiased: false,
            threads: 1,
        };
        larger_side(&tensor, k)
    }

    /// g8 of the worked examples: the means of the two largest are 0.75 above zero and 0.3 below.
    #[test]
    fn the_side_of_the_larger_mean_is_kept() {
        let g8 = [0.9, -0.5, 0.3, -0.1, 0.05, 0.0, -0.02, 0.6];
        assert_eq!(kept(&g8, 2), [0, 7]);
        assert_eq!(kept(&g8.map(|value| -value), 2), [0, 7]);
        assert_eq!(kept(&g8, 8), [0, 2, 4, 7], "means 0.4625 and 0.2067");
        assert_eq!(kept(&[1.0, -1.0], 1), [0], "a tie");
        assert_eq!(kept(&[-1.0, -2.0, 0.0], 2), [0, 1]);
    }
}
