//! Mean and standard deviation by which examples are normalized.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::Error;
use super::input::Input;

/// One number for all values, or a list of one number for each channel (or each value of an example, where that is said).
#[derive(Debug, Clone, PartialEq)]
pub struct Numbers(Vec<f32>);

impl From<Vec<f32>> for Numbers {
    fn from(numbers: Vec<f32>) -> Self {
        Self(numbers)
    }
}

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => one.serialize(serializer),
            list => list.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Numbers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or a list of one number for each channel")
            }

            fn visit_f64<E>(self, number: f64) -> Result<Numbers, E> {
                Ok(Numbers(vec![number as f32]))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Numbers, E> {
                Ok(Numbers(vec![number as f32]))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Numbers, E> {
                Ok(Numbers(vec![number as f32]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Numbers, A::Error> {
                let mut numbers = Vec::new();
                while let Some(number) = list.next_element()? {
                    numbers.push(number);
                }
                Ok(Numbers(numbers))
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

/// The keys `mean` and `std` of a data set. A model sees `(value - mean) / std`.
#[derive(Clone, Copy)]
pub(super) struct Scaling<'a> {
    pub(super) mean: Option<&'a Numbers>,
    pub(super) std: Option<&'a Numbers>,
}

impl Scaling<'_> {
    /// # Errors
    /// `Config` if a number is not finite, or a deviation not above 0.
    pub(super) fn check(self) -> Result<(), Error> {
        let bad = |numbers: Option<&Numbers>, good: fn(f32) -> bool| {
            numbers.is_some_and(|numbers| numbers.0.is_empty() || !numbers.0.iter().all(|&n| good(n)))
        };
        if bad(self.mean, f32::is_finite) {
            return Err(Error::config("mean", "must be finite numbers"));
        }
        if bad(self.std, |std| std.is_finite() && std > 0.0) {
            return Err(Error::config("std", "must be finite numbers above 0"));
        }
        Ok(())
    }

    /// Mean and deviation of each channel, 0 and 1 where none are given. Shapes: `[channels]` both.
    ///
    /// # Errors
    /// `Config` if there is another number of them.
    pub(super) fn of_channels(self, channels: usize) -> Result<(Vec<f32>, Vec<f32>), Error> {
        let spread = |key, numbers: Option<&Numbers>, default| match numbers.map(|numbers| numbers.0.as_slice()) {
            None => Ok(vec![default; channels]),
            Some(&[one]) => Ok(vec![one; channels]),
            Some(list) if list.len() == channels => Ok(list.to_vec()),
            Some(list) => {
                let why = format!(
                    "has {} numbers; give one, or {channels}, one for each channel",
                    list.len()
                );
                Err(Error::config(key, why))
            }
        };
        Ok((spread("mean", self.mean, 0.0)?, spread("std", self.std, 1.0)?))
    }

    /// Normalizes `values`. A list may have a number for each channel, or for each value of an example.
    /// Shapes: `values: [examples * input.len()]`.
    ///
    /// # Errors
    /// `Config` if a list has another length, or a value is not finite after it.
    pub(super) fn apply(self, values: &mut [f32], input: Input) -> Result<(), Error> {
        if self.mean.is_none() && self.std.is_none() {
            return Ok(());
        }
        let (len, channels) = (input.len(), input.shape[0]);
        let spread = |key, numbers: Option<&Numbers>, default| match numbers.map(|numbers| numbers.0.as_slice()) {
            None => Ok(vec![default; len]),
            Some(&[one]) => Ok(vec![one; len]),
            Some(list) if list.len() == channels => {
                let plane = len / channels.max(1);
                Ok(list.iter().flat_map(|&n| std::iter::repeat_n(n, plane)).collect())
            }
            Some(list) if list.len() == len => Ok(list.to_vec()),
            Some(list) => {
                let why = format!(
                    "has {} numbers; give one, or {channels}, one for each channel, or {len}, one for each value",
                    list.len()
                );
                Err(Error::config(key, why))
            }
        };
        let (mean, std) = (spread("mean", self.mean, 0.0)?, spread("std", self.std, 1.0)?);
        for example in values.chunks_exact_mut(len.max(1)) {
            for ((value, mean), std) in example.iter_mut().zip(&mean).zip(&std) {
                *value = (*value - mean) / std;
            }
        }
        if values.iter().all(|value| value.is_finite()) {
            return Ok(());
        }
        Err(Error::config(
            "std",
            "makes values that f32 cannot hold; give a larger one",
        ))
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
        Numbers(list.to_vec())
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
