//! From the labels of a file to classes.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::data::csv_file::{Fault, Faults, repeated, short};
use crate::data::dataset::MAX_CLASSES;
use crate::data::error::Error;

/// Number of classes, or the label of each class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected the number of classes, or the list of their labels")]
pub enum Classes {
    /// Labels are integers from 0 to below this.
    #[serde(deserialize_with = "count")]
    Count(u16),
    /// Labels are these texts, class 0 first.
    Names(Vec<String>),
}

/// Numbers out of range become 0, which `check` refuses.
fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    i64::deserialize(deserializer).map(|count| u16::try_from(count).unwrap_or_default())
}

pub(super) fn check_classes(classes: Option<&Classes>) -> Result<(), Error> {
    match classes {
        Some(Classes::Names(names)) => check_names(names),
        Some(Classes::Count(count)) if !(1..=MAX_CLASSES).contains(&usize::from(*count)) => {
            Err(Error::config("classes", format!("must be 1 to {MAX_CLASSES}")))
        }
        _ => Ok(()),
    }
}

pub(crate) fn check_names(names: &[String]) -> Result<(), Error> {
    if !(1..=MAX_CLASSES).contains(&names.len()) {
        let why = format!("has {} names; there must be 1 to {MAX_CLASSES}", names.len());
        return Err(Error::config("classes", why));
    }
    match repeated(names) {
        Some(twice) => Err(Error::config("classes", format!("has `{twice}` twice"))),
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
    /// Each label, with the line in which it came first.
    lines: Vec<(String, u64)>,
    is_full: bool,
}

pub(super) struct ClassList {
    pub(super) count: usize,
    /// Class of each of the [`Texts`].
    pub(super) of_text: Vec<u8>,
    /// Labels in the order of their classes, unless they are integers.
    pub(super) names: Option<Vec<String>>,
}

impl Texts {
    pub(super) fn number_of(&mut self, text: &str, line: u64) -> Result<u8, Fault> {
        if let Some(number) = self.numbers.get(text) {
            return Ok(*number);
        }
        let Ok(number) = u8::try_from(self.numbers.len()) else {
            if std::mem::replace(&mut self.is_full, true) {
                return Ok(0);
            }
            let what = format!("label `{}` is the {}th different one", short(text), MAX_CLASSES + 1);
            let todo = format!("at most {MAX_CLASSES} classes are supported; numbers to predict are a `target`");
            return Err(Fault::new(line, what, todo));
        };
        self.numbers.insert(text.to_owned(), number);
        self.lines.push((text.to_owned(), line));
        Ok(number)
    }

    /// The classes: those `given`, or else integers if all labels are, or else the sorted labels. Labels that are none of them
    /// are added to `faults`.
    pub(super) fn classes(&self, given: Option<&Classes>, faults: &mut Faults) -> ClassList {
        let (names, most) = match given {
            Some(Classes::Names(names)) => (Some(names.clone()), names.len()),
            Some(Classes::Count(count)) => (None, usize::from(*count)),
            None if self.numbers.keys().all(|text| text.parse::<i64>().is_ok()) => (None, MAX_CLASSES),
            None => (Some(sorted(self.numbers.keys())), self.numbers.len()),
        };
        let rule = match &names {
            Some(names) => {
                let list = names.join("`, `");
                // RowLimit, so that ten faults fit into the error too.
                let list = &list[..list.floor_char_boundary(200)];
                format!("the classes are `{list}`; set `classes` to the list of all labels")
            }
            None => format!(
                "with {most} classes, labels are 0 to {}; raise or list `classes`",
                most - 1
            ),
        };
        let of_text = self.lines.iter().map(|(text, line)| {
            let class = match &names {
                Some(names) => names.iter().position(|name| name == text),
                None => text.parse().ok().filter(|&class| class < most),
            };
            class.unwrap_or_else(|| {
                faults.add(Fault::new(
                    *line,
                    format!("label `{}` is none of the classes", short(text)),
                    &rule,
                ));
                0
            }) as u8
        });
        let of_text: Vec<u8> = of_text.collect();
        let largest = of_text.iter().max().map_or(0, |&class| usize::from(class));
        let count = if given.is_none() && names.is_none() {
            largest + 1
        } else {
            most
        };
        ClassList { count, of_text, names }
    }
}
