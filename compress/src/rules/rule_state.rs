//! The state of a rule for one tensor: a moving average of one statistic, and its value at the end of the warm-up.

use crate::error::Error;
use crate::wire::{Reader, Writer};

/// The state of a rule for one tensor.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct RuleState {
    /// The rule and form that own the state, as numbered in the table of rules; 0: none.
    pub(crate) kind: u32,
    /// Observed rounds, without those in which the tensor was all zeros.
    pub(crate) rounds: u32,
    /// Exponential moving average of the statistic; during the warm-up its arithmetic mean.
    pub(crate) mean: f64,
    /// `mean` at the end of the warm-up.
    pub(crate) anchor: f64,
    /// Further numbers of rules that have more to remember, all finite.
    pub(crate) more: Vec<f64>,
    /// Energy kept and coded bits per value of the last frame that the rule chose for, until the rule has read it.
    pub(crate) outcome: Option<(f64, f64)>,
}

impl RuleState {
    /// Resets the state if another rule owns it.
    pub(crate) fn claim(&mut self, kind: u32) {
        if self.kind != kind {
            *self = Self {
                kind,
                ..Self::default()
            };
        }
    }

    /// The average before this round; `now` in the first round.
    pub(crate) fn mean_or(&self, now: f64) -> f64 {
        if self.rounds == 0 { now } else { self.mean }
    }

    /// `mean <- beta * mean + (1 - beta) * now`; during the first `warm_up` rounds the arithmetic mean, which the
    /// anchor follows. This form of the sum leaves a mean that equals `now` bit-identical.
    pub(crate) fn observe(&mut self, now: f64, beta: f64, warm_up: u32) {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds <= warm_up {
            self.mean += (now - self.mean) / f64::from(self.rounds);
            self.anchor = self.mean;
        } else {
            self.mean += (1.0 - beta) * (now - self.mean);
        }
    }

    /// `mean <- beta * before + (1 - beta) * now`, without a warm-up.
    pub(crate) fn follow(&mut self, now: f64, before: f64, beta: f64) {
        self.rounds = self.rounds.saturating_add(1);
        self.mean = before + (1.0 - beta) * (now - before);
    }

    /// Appends rounds `u32`, kind `u32`, mean `f64`, anchor `f64`; a varint, the number of further numbers, and those as `f64`;
    /// and in the same way the outcome.
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        out.u32(self.rounds);
        out.u32(self.kind);
        out.f64(self.mean);
        out.f64(self.anchor);
        let outcome = self.outcome.map(|(kept, bits)| [kept, bits]);
        for numbers in [self.more.as_slice(), outcome.as_ref().map_or(&[], |numbers| numbers)] {
            out.varint(numbers.len() as u64);
            numbers.iter().for_each(|number| out.f64(*number));
        }
    }

    /// Reads the output of [`RuleState::write`]. `is_kind` returns whether a rule has that kind of state.
    ///
    /// # Errors
    /// `Truncated`; `Corrupt` for an unknown kind, or an outcome of other than two numbers; `NotFinite`.
    pub(crate) fn read(reader: &mut Reader<'_>, is_kind: fn(u32) -> bool) -> Result<Self, Error> {
        let rounds = reader.u32("rounds of a rule")?;
        let kind = reader.u32("kind of a rule")?;
        if !is_kind(kind) {
            return Err(reader.corrupt("kind of a rule"));
        }
        Ok(Self {
            kind,
            rounds,
            mean: reader.finite("mean of a rule")?,
            anchor: reader.finite("anchor of a rule")?,
            more: read_numbers(reader)?,
            outcome: match *read_numbers(reader)? {
                [] => None,
                [kept, bits] => Some((kept, bits)),
                _ => return Err(reader.corrupt("outcome of a rule")),
            },
        })
    }
}

fn read_numbers(reader: &mut Reader<'_>) -> Result<Vec<f64>, Error> {
    let count = reader.varint("numbers of a rule")?;
    (0..count).map(|_| reader.finite("number of a rule")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::density::is_kind;

    #[test]
    fn warm_up_is_a_plain_mean_and_then_it_fades() {
        let mut rule_state = RuleState::default();
        for (now, mean, anchor) in [(3.0, 3.0, 3.0), (5.0, 4.0, 4.0), (8.0, 6.0, 4.0), (6.0, 6.0, 4.0)] {
            rule_state.observe(now, 0.5, 2);
            assert_eq!((rule_state.mean, rule_state.anchor), (mean, anchor));
        }
        let mut still = RuleState::default();
        (0..50).for_each(|_| still.observe(0.1, 0.9, 3));
        assert_eq!((still.mean, still.anchor), (0.1, 0.1));
    }

    #[test]
    fn bytes_round_trip_and_damage_is_refused() {
        for kind in 0..=4 {
            let rule_state = RuleState {
                kind,
                rounds: 7,
                mean: -0.25,
                anchor: 1e300,
                more: vec![0.5; kind as usize],
                outcome: (kind > 1).then_some((0.75, 2.0)),
            };
            let mut bytes = Vec::new();
            rule_state.write(&mut Writer::new(&mut bytes));
            assert_eq!(RuleState::read(&mut Reader::new(&bytes), is_kind), Ok(rule_state));
            for len in 0..bytes.len() {
                let read = RuleState::read(&mut Reader::new(&bytes[..len]), is_kind);
                assert!(matches!(read, Err(Error::Truncated { .. })));
            }
        }
        let read = |kind: u32, mean: f64| {
            let mut bytes = vec![0; 4];
            bytes.extend(kind.to_le_bytes());
            bytes.extend(mean.to_le_bytes());
            bytes.extend([0; 10]);
            RuleState::read(&mut Reader::new(&bytes), is_kind)
        };
        assert!(matches!(read(5, 0.0), Err(Error::Corrupt { .. })));
        assert!(matches!(read(256, 0.0), Err(Error::Corrupt { .. })));
        assert_eq!(read(1, f64::NAN), Err(Error::NotFinite("mean of a rule".into())));
    }
}
