//! What a budget leaves for the tensors of a layout, estimated without an update.

use crate::budget::bound::{has_knob, section_bytes};
use crate::error::Error;
use crate::frame::groups::TensorGroup;
use crate::frame::header::OVERHEAD;
use crate::layout::Role;
use crate::math;
use crate::spec::budget::Budget;
use crate::spec::budget_bandit::MOST_BITS;
use crate::spec::method::Method;

// Worst-case bytes of a section without its values.
pub(crate) const SECTION: u64 = 16;
// Worst-case bytes of the optional header fields: the merge limit, a varint of 32 bits, and the digest of the
// predictor.
const FLAGGED: usize = 5 + 8;
// Below this many bits per value, fewer than one value in a thousand is sent.
const NEXT_TO_NOTHING: f64 = 0.02;
const FLOAT_BITS: f64 = 32.0;

/// What a budget leaves for the tensors of a layout, estimated without an update.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetEstimate {
    /// The budget.
    pub budget: Budget,
    /// Trained values of the layout.
    pub values: u64,
    /// Worst-case bytes of buffers and counters. They count toward a budget in bytes, and come on top of one in bits.
    pub aside: u64,
    /// Target size of a frame: the largest that an agent may choose.
    pub asked: u64,
    /// The smallest target that an agent may choose; `asked` without one.
    smallest: u64,
    /// Worst-case bytes of headers and of tensors whose codec has no step or density; the other tensors then send nothing. A
    /// budget in bits below this may be exceeded.
    pub least: u64,
    /// The same if each of the other tensors sends something.
    heads: u64,
    exact: u64,
    /// The tensors that share the remaining bytes: their indices in the layout, and their total number of values.
    pub sharing: (Vec<usize>, u64),
    /// Bits per value of those tensors, at the smallest target.
    pub bits_left: f64,
}

impl BudgetEstimate {
    /// `units`: the sections of a frame and their codecs.
    pub(crate) fn new<'u>(budget: Budget, units: impl Iterator<Item = (&'u TensorGroup, &'u Method)> + Clone) -> Self {
        let aside = aside_bytes(units.clone());
        let least = least_bytes(units.clone());
        let mut values = 0;
        let mut heads = least;
        let mut exact = (OVERHEAD + FLAGGED) as u64 + aside;
        let mut sharing = (Vec::new(), 0);
        for (unit, method) in units.filter(|(unit, _)| unit.role == Role::Trained) {
            let len = unit.shape.len() as u64;
            values += len;
            exact += SECTION + 4 * len;
            if has_knob(method) {
                heads += SECTION;
                sharing.0.extend_from_slice(&unit.tensors);
                sharing.1 += len;
            }
        }
        let asked = budget.frame_bytes(values as usize, aside);
        let smallest = budget.smallest().frame_bytes(values as usize, aside);
        Self {
            budget,
            values,
            aside,
            asked,
            smallest,
            least,
            heads,
            exact,
            bits_left: smallest.saturating_sub(heads) as f64 * 8.0 / sharing.1.max(1) as f64,
            sharing,
        }
    }

    /// Whether the budget cannot be met, or leaves almost nothing for some tensors. `false` for a budget that bounds the error:
    /// frames then take the bytes that they need.
    pub fn starves(&self) -> bool {
        let starves = self.sharing.1 > 0 && self.bits_left < NEXT_TO_NOTHING;
        self.budget.error().is_none() && (starves || self.smallest < self.least)
    }

    /// Bits per value of [`BudgetEstimate::enough`].
    pub fn enough_bits(&self) -> f64 {
        match self.enough() {
            Budget::Bits(bits) => bits,
            enough => (enough.bytes(0) - self.aside) as f64 * 8.0 / self.values.max(1) as f64,
        }
    }

    /// Worst-case bytes of a frame of exact values: more are never of use.
    pub fn exact(&self) -> u64 {
        self.exact
    }

    /// Whether the budget has more bits per value than a float.
    pub fn exceeds_floats(&self) -> bool {
        match self.budget {
            Budget::Bits(bits) => bits > FLOAT_BITS,
            Budget::Bandit(bandit) => bandit.most > FLOAT_BITS,
            Budget::Adaptive { least, .. } => least > FLOAT_BITS,
            Budget::Bytes(bytes) | Budget::Run(bytes) => bytes > self.exact,
        }
    }

    /// A budget of which about half is left for the tensors that share it: bits per value, rounded up to two digits; or bytes
    /// of a frame if the budget is in bytes, or if so many bits are no budget.
    pub fn enough(&self) -> Budget {
        let starved = NEXT_TO_NOTHING * self.sharing.1 as f64 / 8.0;
        let own = (self.least.max(self.heads) - self.aside) as f64;
        let bytes = (2.0 * (self.least - self.aside) as f64).max(own + 2.0 * starved);
        let bits = two_digits(bytes * 8.0 / self.values.max(1) as f64);
        match self.budget {
            Budget::Bits(_) | Budget::Adaptive { .. } | Budget::Bandit(_) if bits <= MOST_BITS => Budget::Bits(bits),
            _ => Budget::Bytes(bytes.ceil() as u64 + self.aside),
        }
    }
}

/// `number`, rounded up to two significant digits: `0.0131` to `0.014`.
fn two_digits(number: f64) -> f64 {
    let decimals = (1 - math::log10(number).floor() as i32).clamp(0, 300);
    let up = (number * math::pow(10.0, decimals.into())).ceil();
    format!("{up}e-{decimals}").parse().unwrap_or(number)
}

/// Worst-case bytes of the sections of buffers and counters.
pub(crate) fn aside_bytes<'u>(units: impl Iterator<Item = (&'u TensorGroup, &'u Method)>) -> u64 {
    let aside = units.filter(|(unit, _)| unit.role != Role::Trained);
    aside
        .map(|(unit, method)| section_bytes(method, unit.shape, unit.places))
        .sum()
}

/// Checks that a budget can be met for any values.
///
/// # Errors
/// `Usage` if the budget is for a run, or in bytes and below the worst case of headers and sections without a knob.
pub(crate) fn check<'u>(
    budget: Budget,
    units: impl Iterator<Item = (&'u TensorGroup, &'u Method)>,
) -> Result<(), Error> {
    let bytes = match budget {
        Budget::Bytes(bytes) => bytes,
        Budget::Bits(_) | Budget::Adaptive { .. } | Budget::Bandit(_) => return Ok(()),
        Budget::Run(_) => {
            return Err(Error::Usage(format!(
                "`budget`: \"{budget}\" is a budget for a whole run, which only a server spreads over its rounds; give one of a \
                 frame, such as \"200KiB\""
            )));
        }
    };
    let least = least_bytes(units);
    if least <= bytes {
        return Ok(());
    }
    let times = (10.0 * least as f64 / bytes.max(1) as f64).ceil() / 10.0;
    Err(Error::Usage(format!(
        "`budget`: {bytes} bytes a frame are too few: up to {least} go to headers and to tensors whose codec has no step or density \
         to choose; give at least \"{least}B\", which a link carries in {times} times the time"
    )))
}

/// The smallest limit in bytes that a frame meets whatever its values are, as long as none is so large that its decoded value
/// might overflow.
pub(crate) fn least_bytes<'u>(units: impl Iterator<Item = (&'u TensorGroup, &'u Method)>) -> u64 {
    let sections = units.map(|(unit, method)| section_bytes(method, unit.shape, unit.places));
    sections.sum::<u64>() + (OVERHEAD + FLAGGED) as u64
}

#[cfg(test)]
mod tests {
    use crate::layout::Layout;
    use crate::spec::Spec;

    /// The learner `har`: six of its eight tensors are small.
    fn har() -> Layout {
        let shapes = [
            ("conv1.bias", vec![24]),
            ("conv1.weight", vec![24, 6, 5]),
            ("conv2.bias", vec![32]),
            ("conv2.weight", vec![32, 24, 5]),
            ("fc1.bias", vec![32]),
            ("fc1.weight", vec![32, 928]),
            ("fc2.bias", vec![12]),
            ("fc2.weight", vec![12, 32]),
        ];
        Layout::new(shapes).unwrap()
    }

    fn estimate(spec: &str) -> super::BudgetEstimate {
        let spec: Spec = toml::from_str(spec).unwrap();
        spec.budget_estimate(&har()).unwrap()
    }

    #[test]
    fn buffers_count_toward_a_budget_in_bytes_and_come_on_top_of_one_in_bits() {
        let layout = crate::layout::tests::batch_norm();
        let trained = layout.trained().len() as u64;
        let estimate = |budget: &str| {
            let spec: Spec = toml::from_str(&format!("budget = '{budget}'")).unwrap();
            spec.budget_estimate(&layout).unwrap()
        };
        let bits = estimate("8 bits");
        // Eight buffer values and three counters, in two sections.
        assert_eq!((bits.values, bits.aside), (trained, 4 * 11 + 2 * 3));
        assert_eq!(bits.asked, trained + bits.aside);
        assert_eq!(bits.sharing.1, trained);
        let bytes = estimate("500 B");
        assert_eq!(bytes.asked, 500);
        assert!(
            bytes.bits_left < (500 - bytes.aside) as f64 * 8.0 / trained as f64,
            "{bytes:?}"
        );
    }

    #[test]
    fn what_has_no_step_is_taken_off_a_budget() {
        let eight_bits =
            "small = { below = 1024, use = { quantize = { uniform = { bits = 8, block = 64 } }, code = 'context' } }";
        let fixed = estimate(&format!("budget = '0.25 bits'\n{eight_bits}"));
        assert_eq!((fixed.values, fixed.asked), (34_740, 1085));
        assert!(
            fixed.starves() && fixed.least > fixed.asked && fixed.bits_left == 0.0,
            "{fixed:?}"
        );
        assert_eq!(fixed.sharing, (vec![3, 5], 33_536));
        let shared = estimate("budget = '0.25 bits'");
        assert!(
            !shared.starves() && shared.least < 100 && shared.bits_left > 0.2,
            "{shared:?}"
        );
        assert_eq!(shared.sharing.1, 34_740);
        let enough = estimate(&format!("budget = '{}'\n{eight_bits}", fixed.enough()));
        assert!(!enough.starves() && enough.bits_left > 0.2, "{enough:?}");
        assert!(estimate("budget = '0.0001 bits'").starves());
        assert!(!estimate("budget = '0.0001 bits, error 0.7'").starves());
        assert_eq!(estimate("memory = 'none'").asked, 4096);
        assert_eq!(Spec::exact().budget_estimate(&har()), None);
    }
}
