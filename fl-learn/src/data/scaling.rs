//! Mean and standard deviation by which examples are normalized.

use serde::{Deserialize, Serialize};

use super::error::Error;
use super::input::Input;

/// One number for all values, or a list of one number for each channel (or each value of an example, where that is said).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number, or a list of one number for each channel")]
pub enum Numbers {
    /// One for all.
    All(f32),
    /// One for each channel or value.
    Each(Vec<f32>),
}

impl From<Vec<f32>> for Numbers {
    fn from(numbers: Vec<f32>) -> Self {
        match numbers[..] {
            [one] => Self::All(one),
            _ => Self::Each(numbers),
        }
    }
}

impl Numbers {
    fn list(&self) -> &[f32] {
        match self {
            Self::All(one) => std::slice::from_ref(one),
            Self::Each(list) => list,
        }
    }
}

/// The keys `mean` and `std` of a data set. A model sees `(value - mean) / std`.
#[derive(Clone, Copy)]
pub(super) struct Scaling<'a> {
    pub(super) mean: Option<&'a Numbers>,
    pub(super) std: Option<&'a Numbers>,
}

impl<'a> Scaling<'a> {
    pub(super) fn new(mean: &'a Option<Numbers>, std: &'a Option<Numbers>) -> Self {
        Self {
            mean: mean.as_ref(),
            std: std.as_ref(),
        }
    }

    pub(super) fn check(self) -> Result<(), Error> {
        let bad = |numbers: Option<&Numbers>, good: fn(f32) -> bool| {
            numbers.is_some_and(|numbers| numbers.list().is_empty() || !numbers.list().iter().all(|&n| good(n)))
        };
        if bad(self.mean, f32::is_finite) {
            return Err(Error::config("mean", "must be finite numbers"));
        }
        if bad(self.std, |std| std.is_finite() && std > 0.0) {
            return Err(Error::config("std", "must be finite numbers above 0"));
        }
        Ok(())
    }

    /// Mean and deviation of each of `len` values, 0 and 1 where none are given; lists have `len` numbers, or one for each of
    /// `channels`. Shapes: `[len]` both.
    pub(super) fn spread(self, channels: usize, len: usize) -> Result<(Vec<f32>, Vec<f32>), Error> {
        let plane = len / channels.max(1);
        let spread = |key, numbers: Option<&Numbers>, default| match numbers.map(Numbers::list) {
            None => Ok(vec![default; len]),
            Some(&[one]) => Ok(vec![one; len]),
            Some(list) if list.len() == channels => {
                Ok(list.iter().flat_map(|&n| std::iter::repeat_n(n, plane)).collect())
            }
            Some(list) if list.len() == len => Ok(list.to_vec()),
            Some(list) => {
                let mut why = format!(
                    "has {} numbers; give one, or {channels}, one for each channel",
                    list.len()
                );
                if len > channels {
                    why += &format!(", or {len}, one for each value");
                }
                Err(Error::config(key, why))
            }
        };
        Ok((spread("mean", self.mean, 0.0)?, spread("std", self.std, 1.0)?))
    }

    /// Normalizes `values`. A list may have a number for each channel, or for each value of an example.
    /// Shapes: `values: [examples * input.len()]`.
    pub(super) fn apply(self, values: &mut [f32], input: Input) -> Result<(), Error> {
        if self.mean.is_none() && self.std.is_none() {
            return Ok(());
        }
        let (mean, std) = self.spread(input.shape[0], input.len())?;
        for example in values.chunks_exact_mut(input.len().max(1)) {
            for ((value, mean), std) in example.iter_mut().zip(&mean).zip(&std) {
                *value = (*value - mean) / std;
            }
        }
        // NaN is a missing value, which a mean replaces later.
        if !values.iter().any(|value| value.is_infinite()) {
            return Ok(());
        }
        let why = "makes values that f32 cannot hold; give a larger one";
        Err(Error::config("std", why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, Serialize, PartialEq)]
    struct Keys {
        mean: Numbers,
    }

    fn numbers(list: &[f32]) -> Numbers {
        list.to_vec().into()
    }

    #[test]
    fn a_number_and_a_list_are_read_and_written_as_they_are() {
        for (text, list) in [
            ("mean = 0.5", vec![0.5]),
            ("mean = 2", vec![2.0]),
            ("mean = [0.5, 1]", vec![0.5, 1.0]),
        ] {
            let keys: Keys = toml::from_str(text).unwrap();
            assert_eq!(keys.mean, numbers(&list));
            assert_eq!(toml::from_str::<Keys>(&toml::to_string(&keys).unwrap()).unwrap(), keys);
        }
        let error = toml::from_str::<Keys>("mean = 'x'").unwrap_err().to_string();
        assert!(error.contains("a number, or a list"), "{error}");
    }

    #[test]
    fn values_are_normalized_by_channel_or_by_value() {
        let input = Input::of_classes([2, 1, 2], 2);
        let scaled = |mean: &[f32], std: &[f32]| {
            let (mean, std) = (numbers(mean), numbers(std));
            let scaling = Scaling {
                mean: Some(&mean),
                std: Some(&std),
            };
            scaling.check().unwrap();
            let mut values = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
            scaling.apply(&mut values, input).map(|()| values)
        };
        assert_eq!(
            scaled(&[1.0], &[2.0]).unwrap(),
            [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5]
        );
        assert_eq!(
            scaled(&[1.0, 3.0], &[1.0]).unwrap(),
            [0.0, 1.0, 0.0, 1.0, 4.0, 5.0, 4.0, 5.0]
        );
        assert_eq!(
            scaled(&[1.0, 2.0, 3.0, 4.0], &[1.0, 0.5]).unwrap(),
            [0.0, 0.0, 0.0, 0.0, 4.0, 4.0, 8.0, 8.0]
        );
        assert!(
            scaled(&[1.0, 2.0, 3.0], &[1.0])
                .unwrap_err()
                .to_string()
                .contains("`mean` has 3 numbers")
        );
        assert!(
            scaled(&[0.0], &[1e-38, 1e-39])
                .unwrap_err()
                .to_string()
                .contains("`std`")
        );
    }

    #[test]
    fn impossible_numbers_are_refused_by_their_key() {
        for (mean, std, key) in [
            (vec![f32::NAN], vec![1.0], "mean"),
            (vec![], vec![1.0], "mean"),
            (vec![0.0], vec![0.0], "std"),
            (vec![0.0], vec![-1.0], "std"),
            (vec![0.0], vec![f32::INFINITY], "std"),
        ] {
            let (mean, std) = (numbers(&mean), numbers(&std));
            let checked = Scaling {
                mean: Some(&mean),
                std: Some(&std),
            }
            .check();
            assert!(
                matches!(checked, Err(Error::Config { key: found, .. }) if found == key),
                "{key}"
            );
        }
    }
}
