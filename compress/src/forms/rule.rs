//! The TOML table of a rule, `{ by = "..", .. }`, in place of a number: parsing and writing.
//!
//! A rule removes its parameters from the table; remaining keys are refused by name.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserializer, Serialize, Serializer};

use crate::density::Density;
use crate::error::Error;

// Default of `least` for forms without `density`.
pub(crate) const LEAST: f64 = 0.001;

/// Default of `least` for forms with `density`.
pub(crate) fn tenth(density: Density) -> f64 {
    f64::from(density) / 10.0
}

/// Default of `most` for forms with `density`.
pub(crate) fn ten_times(density: Density) -> f64 {
    (f64::from(density) * 10.0).min(1.0)
}

// Index of `points` in `KEYS`: the keys before it have words, those after it numbers.
const WORDS: usize = 4;
const POINTS: usize = WORDS;
const KEYS: &[&str] = &[
    "by", "form", "shape", "estimate", "points", "density", "least", "most", "q", "alpha", "gamma", "beta", "eps",
    "clip", "warm_up", "target", "seed", "window", "limit", "worth", "explore",
];

/// Parameters by name, in the order of [`KEYS`] when written.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Table {
    words: BTreeMap<&'static str, String>,
    points: Vec<(u64, f64)>,
    numbers: BTreeMap<&'static str, f64>,
    /// The form that was removed, for the error text of [`Table::finish`].
    form: Option<&'static str>,
}

impl Table {
    pub(crate) fn by(by: &str) -> Self {
        let words = BTreeMap::from([("by", by.to_owned())]);
        Self {
            words,
            ..Self::default()
        }
    }

    /// Adds a form that is not the default.
    pub(crate) fn in_form(mut self, form: &str) -> Self {
        self.words.insert("form", form.to_owned());
        self
    }

    /// Adds the points of a schedule and its shape, if that is not the default.
    pub(crate) fn with_points(mut self, points: &[(u64, f64)], shape: Option<&str>) -> Self {
        self.points = points.to_vec();
        self.words.extend(shape.map(|shape| ("shape", shape.to_owned())));
        self
    }

    pub(crate) fn with_word(mut self, key: &'static str, word: &str) -> Self {
        self.words.insert(key, word.to_owned());
        self
    }

    /// Adds a number, unless it is the default.
    pub(crate) fn with(mut self, key: &'static str, number: f64, default: f64) -> Self {
        if number != default {
            self.numbers.insert(key, number);
        }
        self
    }

    pub(crate) fn with_clip(mut self, clip: Option<f64>) -> Self {
        self.numbers.extend(clip.map(|clip| ("clip", clip)));
        self
    }

    pub(crate) fn take(&mut self, key: &str) -> Option<f64> {
        self.numbers.remove(key)
    }

    pub(crate) fn word(&mut self, key: &str) -> Option<String> {
        self.words.remove(key)
    }

    pub(crate) fn points(&mut self) -> Vec<(u64, f64)> {
        std::mem::take(&mut self.points)
    }

    /// Removes the form; returns its index in `forms`, by default 0.
    pub(crate) fn form(&mut self, forms: &[&'static str]) -> Result<usize, Error> {
        let asked = self.word("form");
        let at = match &asked {
            None => Some(0),
            Some(form) => forms.iter().position(|name| name == form),
        };
        self.form = at.map(|at| forms[at]);
        at.ok_or_else(|| {
            let form = asked.unwrap_or_default();
            let forms: Vec<String> = forms.iter().map(|name| format!("{name:?}")).collect();
            let (last, others) = forms.split_last().expect("a rule with forms has several");
            Error::Usage(format!("form {form:?}, expected {} or {last}", others.join(", ")))
        })
    }

    pub(crate) fn number(&mut self, key: &str, default: f64, range: RangeInclusive<f64>) -> Result<f64, Error> {
        let number = self.numbers.remove(key).unwrap_or(default);
        if range.contains(&number) {
            return Ok(number);
        }
        let (least, most) = range.into_inner();
        Err(Error::Usage(format!(
            "`{key}` must be from {least} to {most}, not {number}"
        )))
    }

    pub(crate) fn whole(&mut self, key: &str, default: u32, range: RangeInclusive<f64>) -> Result<u32, Error> {
        let number = self.number(key, default.into(), range)?;
        if number.fract() == 0.0 {
            return Ok(number as u32);
        }
        Err(Error::Usage(format!("`{key}` must be a whole number, not {number}")))
    }

    pub(crate) fn density(&mut self, key: &str, default: f64) -> Result<Density, Error> {
        let density = Density::new(self.numbers.remove(key).unwrap_or(default));
        density.map_err(|error| Error::Usage(format!("`{key}`: {error}")))
    }

    pub(crate) fn rounds(&mut self, key: &str, default: u32) -> Result<u32, Error> {
        let rounds = self.numbers.remove(key).unwrap_or(default.into());
        if rounds.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(&rounds) {
            return Ok(rounds as u32);
        }
        Err(Error::Usage(format!(
            "`{key}` must be a whole number of rounds, at least 1, not {rounds}"
        )))
    }

    /// Removes the seed: a whole number of 32 bits, which TOML and JSON hold exactly; 0 by default.
    pub(crate) fn seed(&mut self) -> Result<u32, Error> {
        let seed = self.number("seed", 0.0, 0.0..=f64::from(u32::MAX))?;
        if seed.fract() == 0.0 {
            Ok(seed as u32)
        } else {
            Err(Error::Usage(format!("`seed` must be a whole number, not {seed}")))
        }
    }

    /// Removes the clip: a magnitude that fits in an `f32`.
    pub(crate) fn clip(&mut self) -> Result<Option<f64>, Error> {
        let clip = self.numbers.remove("clip");
        match clip {
            Some(clip) if !(clip as f32 > 0.0 && (clip as f32).is_finite()) => {
                Err(Error::Usage(format!("`clip` must be positive and finite, not {clip}")))
            }
            _ => Ok(clip),
        }
    }

    /// Refuses keys that the rule `by` has not removed.
    fn finish(self, by: &str) -> Result<(), Error> {
        let points = (!self.points.is_empty()).then_some("points");
        let mut left = self.words.keys().chain(self.numbers.keys()).copied().chain(points);
        let Some(key) = left.next() else {
            return Ok(());
        };
        let form = self.form.map_or_else(String::new, |form| format!(", form = {form:?}"));
        Err(Error::Usage(format!(
            "`{key}` is not a parameter of {{ by = {by:?}{form} }}"
        )))
    }
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (at, &key) in KEYS.iter().enumerate() {
            if at == POINTS && !self.points.is_empty() {
                map.serialize_entry(key, &self.points)?;
            }
            if let Some(word) = self.words.get(key) {
                map.serialize_entry(key, word)?;
            }
            if let Some(number) = self.numbers.get(key) {
                map.serialize_entry(key, number)?;
            }
        }
        map.end()
    }
}

/// A TOML value that is a number or a rule.
pub(crate) trait NumberOrRule: Sized {
    /// The accepted forms, for error texts.
    fn forms() -> String;

    fn number(number: f64) -> Result<Self, Error>;

    /// The rule named `by`, with its parameters removed from `table`; `None` if the name is unknown.
    fn rule(by: &str, table: &mut Table) -> Result<Option<Self>, Error>;
}

pub(crate) fn deserialize<'de, T: NumberOrRule, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(Either(PhantomData))
}

struct Either<T>(PhantomData<T>);

impl<'de, T: NumberOrRule> Visitor<'de> for Either<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&T::forms())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        T::number(number).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_f64(number as f64)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_f64(number as f64)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut table = Table::default();
        while let Some(key) = map.next_key::<String>()? {
            let at = KEYS.iter().position(|known| *known == key);
            match at.ok_or_else(|| de::Error::unknown_field(&key, KEYS))? {
                POINTS => table.points = pairs(&map.next_value::<Vec<Vec<f64>>>()?).map_err(de::Error::custom)?,
                at if at < WORDS => drop(table.words.insert(KEYS[at], map.next_value()?)),
                at => drop(table.numbers.insert(KEYS[at], map.next_value()?)),
            }
        }
        let refuse = |what: &str| de::Error::custom(format!("{what}, expected {}", T::forms()));
        let by = table.word("by").ok_or_else(|| refuse("missing `by`"))?;
        let rule = T::rule(&by, &mut table).map_err(de::Error::custom)?;
        let rule = rule.ok_or_else(|| refuse(&format!("unknown rule {by:?}")))?;
        table.finish(&by).map_err(de::Error::custom)?;
        Ok(rule)
    }
}

/// The points of a schedule. An array of pairs would be read without what follows them.
fn pairs(points: &[Vec<f64>]) -> Result<Vec<(u64, f64)>, Error> {
    points
        .iter()
        .map(|point: &Vec<f64>| match point[..] {
            [round, value] if round.fract() == 0.0 && (0.0..1e15).contains(&round) => Ok((round as u64, value)),
            _ => Err(Error::Usage(format!(
                "`points` are pairs [[round, value], ..] of a whole number and a number, not {point:?}"
            ))),
        })
        .collect()
}
