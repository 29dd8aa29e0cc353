//! From the labels of a file to classes.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::data::dataset::MAX_CLASSES;
use crate::data::error::Error;

/// Number of classes, or the label of each class.
#[derive(Debug, Clone, PartialEq)]
pub enum Classes {
    /// Labels are integers from 0 to below this.
    Count(u16),
    /// Labels are these texts, class 0 first.
    Names(Vec<String>),
}

impl Serialize for Classes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => count.serialize(serializer),
            Self::Names(names) => names.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Classes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CountOrNames;
        impl<'de> Visitor<'de> for CountOrNames {
            type Value = Classes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the number of classes, or the list of their labels")
            }

            fn visit_i64<E>(self, count: i64) -> Result<Classes, E> {
                // `check` refuses 0.
                Ok(Classes::Count(u16::try_from(count).unwrap_or_default()))
            }

            fn visit_u64<E>(self, count: u64) -> Result<Classes, E> {
                Ok(Classes::Count(u16::try_from(count).unwrap_or_default()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Classes, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = list.next_element()? {
                    names.push(name);
                }
                Ok(Classes::Names(names))
            }
        }
        deserializer.deserialize_any(CountOrNames)
    }
}

/// Succeeds if `classes` can be the key of a configuration.
///
/// # Errors
/// `Config`.
pub(super) fn check_classes(classes: Option<&Classes>) -> Result<(), Error> {
    match classes {
        Some(Classes::Names(names)) => check_names(names),
        Some(Classes::Count(count)) if !(1..=MAX_CLASSES).contains(&usize::from(*count)) => {
            Err(Error::config("classes", format!("must be 1 to {MAX_CLASSES}")))
        }
        _ => Ok(()),
    }
}

/// Succeeds if `names` can be the list `classes` of a configuration.
///
/// # Errors
/// `Config`.
pub(crate) fn check_names(names: &[String]) -> Result<(), Error> {
    if !(1..=MAX_CLASSES).contains(&names.len()) {
        let why = format!("has {} names; there must be 1 to {MAX_CLASSES}", names.len());
        return Err(Error::config("classes", why));
    }
    match names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        Some((_, twice)) => Err(Error::config("classes", format!("has `{twice}` twice"))),
        None => Ok(()),
    }
}

/// The names of classes in their order: numbers by value, so that 2 is before 10, if all are numbers, and texts otherwise.
pub(crate) fn sorted<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut names: Vec<String> = names.cloned().collect();
    let number = |name: &String| name.parse::<f64>().ok().filter(|number| number.is_finite());
    names.sort();
    if names.iter().all(|name| number(name).is_some()) {
        names.sort_by(|a, b| number(a).unwrap_or(0.0).total_cmp(&number(b).unwrap_or(0.0)));
    }
    names
}

/// The different labels of a file, numbered as they come.
#[derive(Default)]
pub(super) struct Texts {
    numbers: BTreeMap<String, u8>,
    /// Line in which each came first.
    lines: Vec<u64>,
}

/// The classes of a file's labels.
pub(super) struct ClassList {
    pub(super) count: usize,
    /// Class of each of the [`Texts`].
    pub(super) of_text: Vec<u8>,
    /// Labels in the order of their classes, unless they are integers.
    pub(super) names: Option<Vec<String>>,
}

impl Texts {
    /// The number of `text`, which is in `line`.
    ///
    /// # Errors
    /// If it is one different label too many.
    pub(super) fn number_of(&mut self, text: &str, line: u64) -> Result<u8, String> {
        if let Some(number) = self.numbers.get(text) {
            return Ok(*number);
        }
        let Ok(number) = u8::try_from(self.numbers.len()) else {
            return Err(format!(
                "label `{text}` is the {}th different one; at most {MAX_CLASSES} classes are supported",
                MAX_CLASSES + 1
            ));
        };
        self.numbers.insert(text.to_owned(), number);
        self.lines.push(line);
        Ok(number)
    }

    /// The classes: those `given`, or else integers if all labels are, or else the sorted labels.
    ///
    /// # Errors
    /// Which label is none of them.
    pub(super) fn classes(&self, given: Option<&Classes>) -> Result<ClassList, String> {
        let names: Vec<String> = match given {
            Some(Classes::Names(names)) => names.clone(),
            Some(Classes::Count(count)) => return self.integers(Some(usize::from(*count))),
            None if self.numbers.keys().all(|text| text.parse::<i64>().is_ok()) => return self.integers(None),
            None => sorted(self.numbers.keys()),
        };
        let mut of_text = vec![0; self.numbers.len()];
        for (text, &number) in &self.numbers {
            let class = names.iter().position(|name| name == text);
            of_text[usize::from(number)] = class.ok_or_else(|| {
                format!(
                    "line {}: label `{text}` is none of the classes `{}`; set `classes` to the list of all labels",
                    self.lines[usize::from(number)],
                    names.join("`, `")
                )
            })? as u8;
        }
        Ok(ClassList {
            count: names.len(),
            of_text,
            names: Some(names),
        })
    }

    fn integers(&self, given: Option<usize>) -> Result<ClassList, String> {
        let most = given.unwrap_or(MAX_CLASSES);
        let mut of_text = vec![0; self.numbers.len()];
        for (text, &number) in &self.numbers {
            let class = text.parse::<u8>().ok().filter(|&class| usize::from(class) < most);
            of_text[usize::from(number)] = class.ok_or_else(|| {
                let line = self.lines[usize::from(number)];
                format!(
                    "line {line}: label `{text}`; with {most} classes, labels are 0 to {}",
                    most - 1
                )
            })?;
        }
        let largest = of_text.iter().max().map_or(0, |&class| usize::from(class));
        Ok(ClassList {
            count: given.unwrap_or(largest + 1),
            of_text,
            names: None,
        })
    }
}
