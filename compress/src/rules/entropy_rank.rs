//! Rank by entropy (EDGC, arXiv 2511.10333): the absolute error of the approximation stays that of the largest rank at the end of
//! the warm-up, so a fall of the entropy by h nats allows an error that is `e^h` times larger relative to the values.
//!
//! During the warm-up the rank is `most`. It ends when the entropy is stable: within [`STABLE`] nats of its mean so far, after at
//! least `warm_up` rounds and at most four times as many. That mean is the anchor `H0`. Then, after every `window` observations
//! of mean `H1`: `r1 = g^-1(e^(H0 - H1) g(most))`, and the rank moves towards r1 by at most `limit`, within `least` and `most`.
//! The anchor stays: steps from a limited rank to the next would lose what the limit cut off.

use crate::error::Error;
use crate::forms::rule::Table;
use crate::layout::Shape;
use crate::rng::KeyedRng;
use crate::rules::differential::{Estimate, deviation, sample};
use crate::rules::rule_state::{RankCourse, RuleState};
use crate::rules::spectrum::{MAX_RANK, RankErrors};

pub(crate) const NAME: &str = "entropy";
// Kind of state, as numbered in the state file.
pub(crate) const KIND: u32 = 5;
const FORMS: [&str; 2] = ["random", "measured"];
const ESTIMATES: [&str; 2] = ["gaussian", "histogram"];
// In nats.
const STABLE: f64 = 0.1;
const MOST: u32 = 32;
// Frames of a decision. The paper has 1,000 iterations (docs/reference/compressors.md).
const WINDOW: u32 = 10;
// Fewest rounds of the warm-up: it ends once the entropy is within `STABLE` of its mean.
const WARM_UP: u32 = 3;
// Shares of the rounds and of the values that are sampled.
const ALPHA: f64 = 1.0;
const BETA: f64 = 0.25;

/// The rule `{ by = "entropy", .. }` of a rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EntropyRank {
    /// Whether g is that of the tensor at the end of the warm-up, not that of a random matrix.
    is_measured: bool,
    estimate: Estimate,
    most: u32,
    least: u32,
    window: u32,
    limit: u32,
    warm_up: u32,
    alpha: f64,
    beta: f64,
}

/// The matrix for which a rank is chosen.
pub(crate) struct Matrix<'a> {
    /// The values whose entropy counts: those of the update, without what waited in a residual.
    pub(crate) values: &'a [f32],
    pub(crate) shape: Shape,
    pub(crate) rng: KeyedRng,
    /// The leading squared singular values, as many as asked for, and the energy.
    pub(crate) squares: &'a dyn Fn(usize) -> (Vec<f64>, f64),
}

impl EntropyRank {
    pub(crate) fn read(table: &mut Table) -> Result<Self, Error> {
        let is_measured = table.form(&FORMS)? == 1;
        let estimate = match table.word("estimate").as_deref() {
            None => Estimate::default(),
            Some(word) if word == ESTIMATES[0] => Estimate::Gaussian,
            Some(word) if word == ESTIMATES[1] => Estimate::Histogram,
            Some(word) => {
                let expected = r#"expected "gaussian" or "histogram""#;
                return Err(Error::Usage(format!("estimate {word:?}, {expected}")));
            }
        };
        let ranks = 1.0..=f64::from(MAX_RANK);
        let most = table.whole("most", MOST, ranks.clone())?;
        let least = table.whole("least", quarter(most), ranks.clone())?;
        if least > most {
            return Err(Error::Usage(format!(
                "`least` <= `most` must hold, not {least}, {most}"
            )));
        }
        Ok(Self {
            is_measured,
            estimate,
            most,
            least,
            window: table.rounds("window", WINDOW)?,
            limit: table.whole("limit", eighth(most), ranks)?,
            warm_up: table.rounds("warm_up", WARM_UP)?,
            alpha: table.number("alpha", ALPHA, 0.001..=1.0)?,
            beta: table.number("beta", BETA, 0.001..=1.0)?,
        })
    }

    pub(crate) fn table(&self) -> Table {
        let mut table = Table::by(NAME);
        if self.is_measured {
            table = table.in_form(FORMS[1]);
        }
        if self.estimate != Estimate::default() {
            table = table.with_word("estimate", ESTIMATES[1]);
        }
        table
            .with("most", self.most.into(), MOST.into())
            .with("least", self.least.into(), quarter(self.most).into())
            .with("window", self.window.into(), WINDOW.into())
            .with("limit", self.limit.into(), eighth(self.most).into())
            .with("warm_up", self.warm_up.into(), WARM_UP.into())
            .with("alpha", self.alpha, ALPHA)
            .with("beta", self.beta, BETA)
    }

    /// Largest rank that the rule chooses.
    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// Largest rank of a tensor of `shape`: with more, the factors hold no fewer values than the matrix, which is then sent
    /// whole.
    pub(crate) fn most_of(&self, shape: Shape) -> u32 {
        let paying = shape.len().saturating_sub(1) / (shape.rows + shape.cols).max(1);
        self.most.min(paying.max(1) as u32)
    }

    /// The rank for a tensor `tensor`. Values that are all equal do not change the state.
    pub(crate) fn choose(&self, tensor: &Matrix<'_>, state: &mut RuleState) -> u32 {
        let most = self.most_of(tensor.shape);
        let least = self.least.min(most);
        let mut next = state.clone();
        next.claim(KIND);
        let mut course = next.rank.take().unwrap_or_default();
        let before = course.rank;
        let observed = self.observe(tensor, &mut course);
        let (Some(entropy), true) = (observed, course.is_finite()) else {
            return current_rank(before, least, most);
        };
        if let Some(entropy) = entropy {
            self.follow(entropy, tensor, &mut next, &mut course, [least, most]);
        }
        let rank = current_rank(course.rank, least, most);
        next.rank = Some(course);
        *state = next;
        rank
    }

    /// Counts the round. Outer `None`: nothing may be learned from the values. Inner `None`: this round is not sampled.
    fn observe(&self, tensor: &Matrix<'_>, course: &mut RankCourse) -> Option<Option<f64>> {
        let sampled_until = |frames: u32| (f64::from(frames) * self.alpha).floor();
        let before = course.frames;
        course.frames = before.saturating_add(1);
        if sampled_until(before) == sampled_until(course.frames) && before > 0 {
            return Some(None);
        }
        let sampled = sample(tensor.values, self.beta, tensor.rng);
        if course.reference == 0.0 {
            course.reference = deviation(&sampled);
        }
        self.estimate.of(&sampled, course.reference).map(Some)
    }

    fn follow(
        &self,
        entropy: f64,
        tensor: &Matrix<'_>,
        state: &mut RuleState,
        course: &mut RankCourse,
        range: [u32; 2],
    ) {
        let [least, most] = range;
        if course.rank == 0 {
            let before = state.mean_or(entropy);
            // The mean of all rounds so far.
            state.observe(entropy, 0.0, u32::MAX);
            let is_stable = (entropy - before).abs() <= STABLE;
            if state.rounds >= self.warm_up.saturating_mul(4) || (state.rounds >= self.warm_up && is_stable) {
                course.rank = most;
                if self.is_measured {
                    (course.squares, course.energy) = (tensor.squares)(most as usize);
                }
            }
            return;
        }
        state.rounds = state.rounds.saturating_add(1);
        course.sum += entropy;
        course.count = course.count.saturating_add(1);
        if course.count < self.window {
            return;
        }
        state.mean = course.sum / f64::from(course.count);
        course.sum = 0.0;
        course.count = 0;
        let errors = if course.squares.is_empty() {
            RankErrors::of_random(tensor.shape)
        } else {
            RankErrors::of_squares(course.squares.iter().copied(), course.energy)
        };
        let wanted = errors.rank_after(most as usize, state.anchor - state.mean) as u32;
        let nearest = course.rank.saturating_sub(self.limit);
        let farthest = course.rank.saturating_add(self.limit);
        course.rank = wanted.clamp(nearest, farthest).clamp(least, most);
    }
}

/// `rank` within the bounds, which another spec may have set; the largest during the warm-up.
fn current_rank(rank: u32, least: u32, most: u32) -> u32 {
    if rank == 0 { most } else { rank.clamp(least, most) }
}

fn quarter(most: u32) -> u32 {
    (most / 4).max(1)
}

fn eighth(most: u32) -> u32 {
    (most / 8).clamp(1, 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::samples::gaussian;

    const SHAPE: Shape = Shape { rows: 128, cols: 512 };

    fn rule(text: &str) -> EntropyRank {
        #[derive(serde::Deserialize)]
        struct Doc {
            rank: crate::RankSpec,
        }
        match toml::from_str::<Doc>(&format!("rank = {{ by = 'entropy', {text} }}"))
            .unwrap()
            .rank
        {
            crate::RankSpec::Entropy(rule) => rule,
            other => panic!("{other:?}"),
        }
    }

    /// The rank after a matrix of Gaussian values of this deviation; its squared singular values are 64, 63, .. 1.
    fn next(rule: &EntropyRank, state: &mut RuleState, deviation: f32) -> u32 {
        // Every value is one of few, which have the deviation and the entropy estimates of all.
        let few = gaussian(2048, 7);
        let values: Vec<f32> = (0..SHAPE.len()).map(|at| few[at % few.len()] * deviation).collect();
        let squares = |rank: usize| ((0..rank).map(|at| 64.0 - at as f64).collect(), 64.0 * 65.0 / 2.0);
        let matrix = Matrix {
            values: &values,
            shape: SHAPE,
            rng: KeyedRng::new(1, 0),
            squares: &squares,
        };
        rule.choose(&matrix, state)
    }

    /// With H0 - H1 = 0.1 nats: r1 = 21 of 128 x 512 at r0 = 32; at most 8 at a time.
    #[test]
    fn the_rank_moves_by_the_limit_towards_that_of_equal_error() {
        for text in [
            "most = 32, window = 2, limit = 8",
            "most = 32, window = 2, limit = 8, estimate = 'histogram'",
        ] {
            let (rule, mut state) = (rule(text), RuleState::default());
            let warm_up: Vec<u32> = (0..3).map(|_| next(&rule, &mut state, 1.0)).collect();
            assert_eq!(warm_up, [32; 3]);
            let fallen = (-0.1f32).exp();
            let ranks: Vec<u32> = (0..6).map(|_| next(&rule, &mut state, fallen)).collect();
            assert_eq!(ranks[..2], [32, 24], "{text}");
            assert!(ranks[3].abs_diff(21) <= 3 && ranks[5] == ranks[3], "{text}: {ranks:?}");
            // The anchor stays, so the way back ends at the first rank.
            let back: Vec<u32> = (0..6).map(|_| next(&rule, &mut state, 1.0)).collect();
            assert_eq!(back[5], 32, "{text}: {back:?}");
        }
        // Ranks that do not pay are not chosen: 8 x 8 values are no fewer than factors of rank 4.
        let matrix = Matrix {
            values: &gaussian(64, 1),
            shape: Shape { rows: 8, cols: 8 },
            rng: KeyedRng::new(1, 0),
            squares: &|_| (Vec::new(), 0.0),
        };
        assert_eq!(rule("most = 32").choose(&matrix, &mut RuleState::default()), 3);
    }

    #[test]
    fn the_measured_form_asks_for_the_squares_once() {
        let (rule, mut state) = (
            rule("form = 'measured', most = 16, window = 1, limit = 16, least = 1"),
            RuleState::default(),
        );
        (0..3).for_each(|_| assert_eq!(next(&rule, &mut state, 1.0), 16));
        let expected = RankErrors::of_squares((0..16).map(|at| 64.0 - f64::from(at)), 2080.0);
        for fall in [0.1f32, 0.2, 0.3] {
            let found = next(&rule, &mut state, (-fall).exp());
            assert_eq!(found as usize, expected.rank_after(16, fall.into()).max(1), "{fall}");
        }
    }

    #[test]
    fn a_warm_up_ends_when_the_entropy_is_stable_or_after_four_times_its_length() {
        let (steady, mut state) = (rule("most = 8, warm_up = 2"), RuleState::default());
        (0..2).for_each(|_| assert_eq!(next(&steady, &mut state, 1.0), 8));
        assert_eq!(state.rank.as_ref().unwrap().rank, 8);
        let mut wild = RuleState::default();
        for round in 0..7 {
            next(&steady, &mut wild, if round % 2 == 0 { 1.0 } else { 9.0 });
            assert_eq!(wild.rank.as_ref().unwrap().rank, 0, "{round}");
        }
        next(&steady, &mut wild, 9.0);
        assert_eq!(wild.rank.as_ref().unwrap().rank, 8);
    }

    #[test]
    fn values_without_a_deviation_and_skipped_rounds_change_little() {
        let (rule, mut state) = (rule("most = 8, alpha = 0.5"), RuleState::default());
        next(&rule, &mut state, 1.0);
        let before = state.clone();
        assert_eq!(next(&rule, &mut state, 0.0), 8);
        assert_eq!(state, before, "zeros");
        let observed = (0..6).filter(|_| {
            let rounds = state.rounds;
            next(&rule, &mut state, 1.0);
            state.rounds > rounds
        });
        assert_eq!(observed.count(), 3, "every second round");
    }
}
