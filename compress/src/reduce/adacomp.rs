//! A threshold per bin that adjusts itself (AdaComp, Chen et al. 2018, algorithm 2).
//!
//! With G the input (residual e plus update g) and `H = G + g`, a bin of neighboring values sends those with `|H| >= max |G|`: about
//! one value where a bin changes slowly, and more where the update agrees with what waits. The paper sends the sign times the mean
//! of the bins' maxima; with `quantize = "sign"` it is the mean magnitude of the sent values, which has the smaller error.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::reduce::method::{Entry, Reducer, ReducerChoice, Sends, TensorValues};
use crate::reduce::support;
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;

/// Values per bin: the paper has 50 for convolutions and 500 for other layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Adacomp(u32);

impl TryFrom<u32> for Adacomp {
    type Error = Error;

    fn try_from(bin: u32) -> Result<Self, Error> {
        if (2..=65_536).contains(&bin) {
            return Ok(Self(bin));
        }
        Err(Error::Usage(format!(
            "a bin of adacomp has 2 to 65536 values, not {bin}"
        )))
    }
}

impl From<Adacomp> for u32 {
    fn from(Adacomp(bin): Adacomp) -> Self {
        bin
    }
}

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "adacomp",
        about: "Of each bin, the values that reach its largest when the update is added once more (AdaComp).",
        examples: &["{ adacomp = 16 }"],
        leaves_out: true,
    },
    form: &support::FORM,
    stream: 0,
};

impl Reducer for Adacomp {
    fn choose(&self, _: &TensorValues<'_>, _: RoundContext, _: &mut RuleState) -> ReducerChoice {
        let bin = self.0 as usize;
        support::chosen(Sends::Other, None, move |tensor| {
            reaching(tensor.values, tensor.residual, bin)
        })
    }

    fn wants_residual(&self) -> bool {
        true
    }
}

/// Ascending indices of the sent values. Without a residual, the update is all of `values`: those that reach half of their bin's
/// largest are sent.
fn reaching(values: &[f32], residual: Option<&[f32]>, bin: usize) -> Vec<u32> {
    let mut out = Vec::new();
    for (at, own) in values.chunks(bin).enumerate() {
        let first = at * bin;
        let largest = own.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        if largest == 0.0 {
            continue;
        }
        for (place, &value) in (first..).zip(own) {
            let waiting = residual.map_or(0.0, |residual| residual[place]);
            // `G + g = 2 G - e`, in `f64`: the sum of two finite values may be beyond `f32`.
            let ahead = 2.0 * f64::from(value) - f64::from(waiting);
            if value != 0.0 && ahead.abs() >= f64::from(largest) {
                out.push(place as u32);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bins of four. In the first, |G + g| is 1.2, 0.5, 0.1 and 0.6 against 0.8; in the second, 0.4 and 1.0 against 0.6.
    #[test]
    fn a_value_is_sent_if_it_would_reach_the_largest_of_its_bin_in_the_next_round() {
        let values = [0.8, -0.3, 0.1, 0.5, 0.0, -0.6, 0.5, 0.0];
        let residual = [0.4, -0.1, 0.1, 0.4, 0.0, -0.8, 0.0, 0.0];
        assert_eq!(reaching(&values, Some(&residual), 4), [0, 6]);
        // g = v: |2 v| against the largest.
        assert_eq!(reaching(&values, None, 4), [0, 3, 5, 6]);
        assert_eq!(reaching(&[0.0; 8], None, 4), [0u32; 0]);
        assert_eq!(reaching(&[f32::MAX, f32::MIN], None, 4), [0, 1]);
    }

    #[test]
    fn bins_are_checked() {
        for bin in [0, 1, 65_537] {
            assert!(Adacomp::try_from(bin).unwrap_err().to_string().contains("2 to 65536"));
        }
    }
}
