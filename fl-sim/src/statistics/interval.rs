//! Means over seeds.

use serde::Serialize;

use super::student::t_975;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    /// The sample standard deviation; `None` for one seed.
    pub(crate) deviation: Option<f64>,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Self {
            mean,
            deviation: (values.len() > 1).then(|| (squares / (n - 1.0)).sqrt()),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Estimate {
    pub(crate) mean: f64,
    /// Half the width of the 95 % interval by Student's t; `None` for one seed.
    pub(crate) half_width: Option<f64>,
}

impl Estimate {
    /// The mean of paired differences, one for each seed, and its interval. `None` if there is no pair.
    pub(crate) fn of(differences: &[f64]) -> Option<Self> {
        let spread = Spread::of(differences)?;
        let t = t_975(differences.len() - 1);
        let error = spread
            .deviation
            .map(|deviation| deviation / (differences.len() as f64).sqrt());
        Some(Self {
            mean: spread.mean,
            half_width: t.zip(error).map(|(t, error)| t * error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paired_interval_is_the_one_of_the_textbook() {
        let found = Estimate::of(&[-0.36, -0.57, -0.21, -0.64, -0.37]).unwrap();
        assert!((found.mean + 0.43).abs() < 1e-12);
        // Deviation 0.173638 / sqrt(5) * 2.776445: the interval is -0.6456 to -0.2144.
        assert!((found.half_width.unwrap() - 0.215_599).abs() < 1e-5, "{found:?}");
        let one = Estimate::of(&[-0.3]).unwrap();
        assert_eq!((one.mean, one.half_width), (-0.3, None));
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn deviation_is_the_sample_deviation() {
        let found = Spread::of(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((found.mean, found.deviation), (2.0, Some(1.0)));
        assert_eq!(Spread::of(&[5.0]).unwrap().deviation, None);
    }
}
