//! A number that depends on the round: warm-up densities (DGC), falling ranks.

use crate::density::Density;
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::forms::rule::Table;
use crate::math;
use crate::rules::method::{DensityRule, Entry};
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;
use crate::rules::selection::Selection;

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: NAME,
        about: "By round; values above 1 are clamped to 1.",
        examples: &[
            "{ by = 'schedule', points = [[0, 0.25], [10, 0.05]] }",
            "{ by = 'schedule', shape = 'linear', points = [[0, 0.25], [10, 0.05]] }",
            "{ by = 'schedule', shape = 'exponential', points = [[0, 0.25], [10, 0.05]] }",
        ],
        leaves_out: true,
    },
    kinds: &[],
};

pub(crate) const NAME: &str = "schedule";

/// A positive number as a function of the round: constant before the first and after the last point, interpolated by
/// [`Course`] between two points.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// At least one point; rounds ascend, values are positive and finite.
    points: Vec<(u64, f64)>,
    course: Course,
}

/// Interpolation between two points of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Course {
    /// Constant until the next point.
    #[default]
    Steps,
    /// Linear: equal differences per round.
    Linear,
    /// Exponential: equal ratios per round.
    Exponential,
}

const COURSES: [(&str, Course); 3] = [
    ("steps", Course::Steps),
    ("linear", Course::Linear),
    ("exponential", Course::Exponential),
];

impl Schedule {
    /// A schedule through `points`, which are pairs of round and value.
    ///
    /// # Errors
    /// `Usage` if there is no point, the rounds do not ascend, or a value is not positive and finite.
    pub fn new(points: Vec<(u64, f64)>, course: Course) -> Result<Self, Error> {
        let refuse = |what: String| Err(Error::Usage(what));
        if points.is_empty() {
            return refuse("a schedule needs points = [[round, value], ..]".to_owned());
        }
        if let Some(pair) = points.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            return refuse(format!(
                "rounds of a schedule must ascend: {} follows {}",
                pair[1].0, pair[0].0
            ));
        }
        if let Some((_, value)) = points.iter().find(|(_, value)| !(*value > 0.0 && value.is_finite())) {
            return refuse(format!("values of a schedule must be positive and finite, not {value}"));
        }
        Ok(Self { points, course })
    }

    /// The value at `round`.
    pub fn at(&self, round: u64) -> f64 {
        let after = self.points.partition_point(|&(start, _)| start <= round);
        let (start, from) = self.points[after.saturating_sub(1)];
        let Some(&(end, to)) = self.points.get(after).filter(|_| after > 0) else {
            return from;
        };
        let gone = (round - start) as f64 / (end - start) as f64;
        match self.course {
            Course::Steps => from,
            Course::Linear => from + gone * (to - from),
            Course::Exponential => from * math::pow(to / from, gone),
        }
    }

    /// The largest value of any round.
    pub(crate) fn most(&self) -> f64 {
        self.points.iter().fold(0.0, |most, (_, value)| most.max(*value))
    }

    /// Removes the parameters from `table`; `check` refuses a value.
    pub(crate) fn parse(table: &mut Table, check: impl Fn(f64) -> Result<(), Error>) -> Result<Self, Error> {
        let course = match table.word("shape") {
            None => Course::default(),
            Some(word) => match COURSES.into_iter().find(|(name, _)| *name == word) {
                Some((_, course)) => course,
                None => {
                    let expected = r#"expected "steps", "linear" or "exponential""#;
                    return Err(Error::Usage(format!("shape {word:?}, {expected}")));
                }
            },
        };
        let schedule = Self::new(table.points(), course)?;
        schedule.points.iter().try_for_each(|&(_, value)| check(value))?;
        Ok(schedule)
    }
}

impl DensityRule for Schedule {
    fn read(table: &mut Table) -> Result<Self, Error> {
        Self::parse(table, |value| Density::new(value).map(drop))
    }

    fn table(&self) -> Table {
        let shape = COURSES
            .into_iter()
            .find(|(_, course)| *course == self.course && *course != Course::default());
        Table::by(NAME).with_points(&self.points, shape.map(|(name, _)| name))
    }

    fn choose(&self, values: &[f32], context: RoundContext, _rule_state: &mut RuleState) -> Selection {
        let density = Density::new(self.at(context.round).min(1.0));
        Selection::Count(density.map_or(values.len(), |density| density.count(values.len())))
    }

    fn counts(&self) -> bool {
        true
    }

    fn most(&self, len: usize) -> usize {
        Density::new(Schedule::most(self).min(1.0)).map_or(len, |density| density.count(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(course: Course, rounds: &[u64]) -> Vec<f64> {
        let schedule = Schedule::new(vec![(2, 8.0), (6, 4.0), (8, 1.0)], course).unwrap();
        rounds.iter().map(|&round| schedule.at(round)).collect()
    }

    #[test]
    fn at_between_and_past_the_points() {
        let rounds = [0, 2, 4, 5, 6, 7, 8, u64::MAX];
        assert_eq!(at(Course::Steps, &rounds), [8.0, 8.0, 8.0, 8.0, 4.0, 4.0, 1.0, 1.0]);
        assert_eq!(at(Course::Linear, &rounds), [8.0, 8.0, 6.0, 5.0, 4.0, 2.5, 1.0, 1.0]);
        let exponential = at(Course::Exponential, &rounds);
        let expected = [8.0, 8.0, 32f64.sqrt(), 8.0 / 2f64.powf(0.75), 4.0, 2.0, 1.0, 1.0];
        assert!(exponential.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12));
        let one = Schedule::new(vec![(5, 0.5)], Course::Exponential).unwrap();
        assert_eq!([0, 5, 9].map(|round| one.at(round)), [0.5; 3]);
    }

    #[test]
    fn the_warm_up_of_dgc_is_exponential() {
        let dgc = Schedule::new(vec![(0, 0.25), (4, 0.001)], Course::Exponential).unwrap();
        for (round, density) in [(0, 0.25), (1, 0.0625), (2, 0.0156), (3, 0.004), (4, 0.001), (99, 0.001)] {
            assert!((dgc.at(round) / density - 1.0).abs() < 0.02, "{}", dgc.at(round));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for points in [
            vec![],
            vec![(1, 0.0)],
            vec![(1, f64::NAN)],
            vec![(1, f64::INFINITY)],
            vec![(1, 1.0), (1, 2.0)],
            vec![(2, 1.0), (1, 2.0)],
        ] {
            assert!(matches!(Schedule::new(points, Course::Steps), Err(Error::Usage(_))));
        }
    }
}
