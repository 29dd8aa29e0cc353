//! Examples in rows of a CSV file: columns of numbers, and a column of labels.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::array::check_shape;
use super::csv_file::CsvFile;
use super::dataset::{ClientData, Dataset, Features, Input, MAX_CLASSES};
use super::error::Error;
use super::part::{Held, check_share, shared_set};
use super::scaling::{Numbers, Scaling};
use super::shared::shared;

shared_set! {
    /// Examples in rows of a CSV file whose first line names the columns.
    pub struct Csv {
        /// The file.
        pub file: PathBuf,
        /// Column of the labels: integers from 0, or texts.
        pub label: String,
        /// Columns of the values, in this order; by default all but `label` and `ignore`, in the order of the file.
        #[serde(default)]
        pub features: Option<Vec<String>>,
        /// Columns that are not values.
        #[serde(default)]
        pub ignore: Vec<String>,
        /// File of held-out examples, with the same columns in any order.
        #[serde(default)]
        pub test_file: Option<PathBuf>,
        /// Share of the client's examples that is held out, in place of `test_file`.
        #[serde(default)]
        pub test: Option<f64>,
        /// Number of classes, or the labels in the order of their classes; by default by the labels in `file`.
        #[serde(default)]
        pub classes: Option<Classes>,
        /// What separates the fields.
        #[serde(default = "comma")]
        pub delimiter: char,
        /// Channels, height and width of an example; by default one row of values.
        #[serde(default)]
        pub shape: Option<[usize; 3]>,
        /// What is subtracted from the values; a list has a number for each column.
        #[serde(default)]
        pub mean: Option<Numbers>,
        /// By what they are then divided.
        #[serde(default)]
        pub std: Option<Numbers>,
    }
}

fn comma() -> char {
    ','
}

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

impl Csv {
    fn scaling(&self) -> Scaling<'_> {
        Scaling {
            mean: self.mean.as_ref(),
            std: self.std.as_ref(),
        }
    }
}

pub(super) fn check(csv: &Csv) -> Result<(), Error> {
    if csv.features.is_some() && !csv.ignore.is_empty() {
        return Err(Error::config(
            "ignore",
            "leaves columns out; give it or `features`, not both",
        ));
    }
    if csv.features.as_ref().is_some_and(Vec::is_empty) {
        return Err(Error::config("features", "is empty; name at least one column"));
    }
    for (key, list) in [
        ("features", csv.features.as_deref().unwrap_or_default()),
        ("ignore", &csv.ignore),
    ] {
        if list.contains(&csv.label) {
            return Err(Error::config(key, format!("has `{}`, which is the label", csv.label)));
        }
        if let Some((_, twice)) = list.iter().enumerate().find(|(at, name)| list[..*at].contains(name)) {
            return Err(Error::config(key, format!("has `{twice}` twice")));
        }
    }
    if !csv.delimiter.is_ascii() || csv.delimiter.is_ascii_alphanumeric() || "\"\r\n.-+".contains(csv.delimiter) {
        let why = format!(
            "is {:?}, but must be one character such as \",\", \";\" or \"\\t\"",
            csv.delimiter
        );
        return Err(Error::config("delimiter", why));
    }
    check_classes(csv.classes.as_ref())?;
    check_share(csv.test, csv.test_file.as_ref().map(|_| "test_file"))?;
    check_shape(csv.shape)?;
    csv.scaling().check()?;
    csv.part().check()
}

fn check_classes(classes: Option<&Classes>) -> Result<(), Error> {
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
pub(super) fn check_names(names: &[String]) -> Result<(), Error> {
    if !(1..=MAX_CLASSES).contains(&names.len()) {
        let why = format!("has {} names; there must be 1 to {MAX_CLASSES}", names.len());
        return Err(Error::config("classes", why));
    }
    match names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        Some((_, twice)) => Err(Error::config("classes", format!("has `{twice}` twice"))),
        None => Ok(()),
    }
}

pub(super) fn relative_to(csv: &mut Csv, base: &Path) {
    csv.file = base.join(&csv.file);
    csv.test_file = csv.test_file.as_ref().map(|file| base.join(file));
    csv.split.relative_to(base);
}

pub(super) fn of_client(csv: &Csv, client: u32, clients: u32) -> Result<Csv, Error> {
    Ok(csv.for_client(client, clients))
}

pub(super) fn load(csv: &Csv) -> Result<ClientData, Error> {
    let key = |part: &str| format!("csv {part} {}", csv.identity());
    let train = shared(key("train"), || read(csv, &csv.file, "file", None))?;
    let held = match (&csv.test_file, csv.test) {
        (Some(file), _) => Held::Dealt(shared(key("test"), || read(csv, file, "test_file", Some(&train)))?),
        (_, Some(share)) => Held::Share(share),
        _ => Held::None,
    };
    csv.part().of(train, held)
}

/// Reads the file at `path`, which is the value of `key`. A test set has the classes of its training set.
fn read(csv: &Csv, path: &Path, key: &str, train: Option<&Arc<Dataset>>) -> Result<Dataset, Error> {
    // `check` has refused a delimiter that is not ASCII.
    let delimiter = u8::try_from(csv.delimiter).unwrap_or(b',');
    let mut file = CsvFile::open(path, delimiter, &format!("`{key}` names it"))?;
    let path = file.path.clone();
    let label = file.column(&csv.label)?;
    let names = match train {
        None => feature_names(csv, &file)?,
        // The columns are those of the training file, in its order.
        Some(_) => feature_names(csv, &CsvFile::open(&csv.file, delimiter, "`file` names it")?)?,
    };
    let columns = names
        .iter()
        .map(|name| file.column(name))
        .collect::<Result<Vec<_>, _>>()?;
    let shape = csv.shape.unwrap_or([1, 1, columns.len()]);
    if columns.is_empty() || shape.iter().product::<usize>() != columns.len() {
        let why = match csv.shape {
            Some(shape) => format!(
                "has {} columns of values, which `shape` = {shape:?} does not suit",
                columns.len()
            ),
            None => "has no column of values beside the label".to_owned(),
        };
        return Err(Error::malformed(&path, why));
    }
    let (mut values, mut labels, mut texts) = (Vec::new(), Vec::new(), Texts::default());
    while let Some(row) = file.next_row()? {
        let text = row.text(label);
        if text.is_empty() {
            return Err(row.wrong(format!("the label `{}` is empty; fill it or remove the row", csv.label)));
        }
        labels.push(texts.number_of(text, row.line()).map_err(|why| row.wrong(why))?);
        for &column in &columns {
            values.push(row.number(column)?);
        }
    }
    if labels.is_empty() {
        return Err(Error::malformed(&path, "has no row after its first line"));
    }
    let names = train.map(|train| train.class_names()).filter(|names| !names.is_empty());
    let given = match (&csv.classes, names, train) {
        (None, Some(names), _) => Some(Classes::Names(names.to_vec())),
        (None, None, Some(train)) => Some(Classes::Count(train.input().classes as u16)),
        (given, ..) => given.clone(),
    };
    let list = texts
        .classes(given.as_ref())
        .map_err(|why| Error::malformed(&path, why))?;
    let input = Input::of_classes(shape, list.count);
    values.shrink_to_fit();
    csv.scaling().apply(&mut values, input)?;
    let labels = labels
        .into_iter()
        .map(|number| list.of_text[usize::from(number)])
        .collect();
    let set = Dataset::new(Features::Floats(values), labels, input);
    let set = set.map_err(|error| Error::malformed(&path, error.to_string()))?;
    match list.names {
        Some(names) => set.with_class_names(names),
        None => Ok(set),
    }
}

/// Names of the columns of values.
///
/// # Errors
/// `Malformed` if `features` or `ignore` names a column that the file lacks.
fn feature_names(csv: &Csv, file: &CsvFile) -> Result<Vec<String>, Error> {
    if let Some(names) = &csv.features {
        names.iter().try_for_each(|name| file.column(name).map(drop))?;
        return Ok(names.clone());
    }
    csv.ignore.iter().try_for_each(|name| file.column(name).map(drop))?;
    let kept = |name: &&String| **name != csv.label && !csv.ignore.contains(name);
    Ok(file.columns().iter().filter(kept).cloned().collect())
}

/// The different labels of a file, numbered as they come.
#[derive(Default)]
struct Texts {
    numbers: BTreeMap<String, u8>,
    /// Line in which each came first.
    lines: Vec<u64>,
}

/// The classes of a file's labels.
struct ClassList {
    count: usize,
    /// Class of each of the [`Texts`].
    of_text: Vec<u8>,
    /// Labels in the order of their classes, unless they are integers.
    names: Option<Vec<String>>,
}

impl Texts {
    fn number_of(&mut self, text: &str, line: u64) -> Result<u8, String> {
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
    fn classes(&self, given: Option<&Classes>) -> Result<ClassList, String> {
        let names: Vec<String> = match given {
            Some(Classes::Names(names)) => names.clone(),
            Some(Classes::Count(count)) => return self.integers(Some(usize::from(*count))),
            None if self.numbers.keys().all(|text| text.parse::<i64>().is_ok()) => return self.integers(None),
            None => self.numbers.keys().cloned().collect(),
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

#[cfg(test)]
mod tests;
