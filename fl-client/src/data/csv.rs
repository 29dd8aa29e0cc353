//! Examples in rows of a CSV file: columns of numbers, and a column of labels or of numbers to predict.

mod classes;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::array::check_shape;
use super::csv_file::{CsvFile, Row};
use super::dataset::Dataset;
use super::error::Error;
use super::examples::ClientData;
use super::features::Features;
use super::input::Input;
use super::part::{Held, check_share, shared_set};
use super::scaling::{Numbers, Scaling};
use super::shared::shared;
pub use classes::Classes;
use classes::{Texts, check_classes};
pub(super) use classes::{check_names, sorted};

shared_set! {
    /// Examples in rows of a CSV file whose first line names the columns.
    pub struct Csv {
        /// The file.
        pub file: PathBuf,
        /// Column of the labels: integers from 0, or texts.
        #[serde(default)]
        pub label: Option<String>,
        /// Column of numbers to predict, in place of `label`.
        #[serde(default)]
        pub target: Option<String>,
        /// What is subtracted from the numbers to predict.
        #[serde(default)]
        pub target_mean: Option<f32>,
        /// By what they are then divided.
        #[serde(default)]
        pub target_std: Option<f32>,
        /// Columns of the values, in this order; by default all but `label`, `target` and `ignore`, in the order of the file.
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

impl Csv {
    /// The column to predict. `check` has found one.
    fn wanted(&self) -> &str {
        self.label.as_deref().or(self.target.as_deref()).unwrap_or_default()
    }

    /// What the column to predict is.
    fn what(&self) -> &'static str {
        if self.target.is_some() { "target" } else { "label" }
    }

    fn scaling(&self) -> Scaling<'_> {
        Scaling {
            mean: self.mean.as_ref(),
            std: self.std.as_ref(),
        }
    }
}

pub(super) fn check(csv: &Csv) -> Result<(), Error> {
    check_wanted(csv)?;
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
        if list.iter().any(|name| name == csv.wanted()) {
            let what = if csv.target.is_some() { "target" } else { "label" };
            return Err(Error::config(
                key,
                format!("has `{}`, which is the {what}", csv.wanted()),
            ));
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

fn check_wanted(csv: &Csv) -> Result<(), Error> {
    match (&csv.label, &csv.target) {
        (None, None) => {
            return Err(Error::config(
                "label",
                "is missing; name the column of labels, or a `target` of numbers",
            ));
        }
        (Some(_), Some(_)) => return Err(Error::config("target", "is of numbers; give it or `label`, not both")),
        (None, Some(_)) if csv.classes.is_some() => {
            return Err(Error::config(
                "classes",
                "are of a `label`; numbers to predict have none",
            ));
        }
        (None, Some(_)) => csv.part().split.expect_without_classes(false)?,
        (Some(_), None) if csv.target_mean.or(csv.target_std).is_some() => {
            return Err(Error::config("target_mean", "and `target_std` need `target`"));
        }
        (Some(_), None) => {}
    }
    if csv.target_mean.is_some_and(|mean| !mean.is_finite()) {
        return Err(Error::config("target_mean", "must be a finite number"));
    }
    if csv.target_std.is_some_and(|std| !(std.is_finite() && std > 0.0)) {
        return Err(Error::config("target_std", "must be a finite number above 0"));
    }
    Ok(())
}

pub(super) fn relative_to(csv: &mut Csv, base: &Path) {
    csv.file = base.join(&csv.file);
    csv.test_file = csv.test_file.as_ref().map(|file| base.join(file));
    csv.split.relative_to(base);
}

pub(super) fn of_client(csv: &Csv, client: u32, clients: u32) -> Result<Csv, Error> {
    Ok(csv.for_client(client, clients))
}

pub(super) fn with_seed(csv: &Csv, seed: u64) -> Csv {
    Csv { seed, ..csv.clone() }
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
    let wanted = file.column(csv.wanted())?;
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
            None => format!("has no column of values beside the {}", csv.what()),
        };
        return Err(Error::malformed(&path, why));
    }
    let (mut values, mut truth) = (Vec::new(), Truth::of(csv));
    while let Some(row) = file.next_row()? {
        truth.add(csv, &row, wanted)?;
        for &column in &columns {
            values.push(row.number(column)?);
        }
    }
    if truth.is_empty() {
        return Err(Error::malformed(&path, "has no row after its first line"));
    }
    values.shrink_to_fit();
    truth.with(csv, &path, values, shape, train)
}

/// What is to be predicted, as the rows come.
enum Truth {
    Labels(Vec<u8>, Texts),
    Numbers(Vec<f32>),
}

impl Truth {
    fn of(csv: &Csv) -> Self {
        match csv.target {
            Some(_) => Self::Numbers(Vec::new()),
            None => Self::Labels(Vec::new(), Texts::default()),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Labels(labels, _) => labels.is_empty(),
            Self::Numbers(numbers) => numbers.is_empty(),
        }
    }

    fn add(&mut self, csv: &Csv, row: &Row<'_>, column: usize) -> Result<(), Error> {
        match self {
            Self::Labels(labels, texts) => {
                let text = row.text(column);
                if text.is_empty() {
                    let why = format!("the label `{}` is empty; fill it or remove the row", csv.wanted());
                    return Err(row.wrong(why));
                }
                labels.push(texts.number_of(text, row.line()).map_err(|why| row.wrong(why))?);
            }
            Self::Numbers(numbers) => {
                let (mean, std) = (csv.target_mean.unwrap_or(0.0), csv.target_std.unwrap_or(1.0));
                let number = (row.number(column)? - mean) / std;
                if !number.is_finite() {
                    return Err(row.wrong("the number to predict is too large after `target_mean` and `target_std`"));
                }
                numbers.push(number);
            }
        }
        Ok(())
    }

    /// The set with the values of the file at `path`. A test set has the classes of its training set.
    fn with(
        self,
        csv: &Csv,
        path: &Path,
        mut values: Vec<f32>,
        shape: [usize; 3],
        train: Option<&Arc<Dataset>>,
    ) -> Result<Dataset, Error> {
        let in_file = |error: Error| Error::malformed(path, error.to_string());
        let (labels, texts) = match self {
            Self::Numbers(numbers) => {
                let input = Input::of_numbers(shape, 1);
                csv.scaling().apply(&mut values, input)?;
                return Dataset::of_numbers(Features::Floats(values), numbers, input).map_err(in_file);
            }
            Self::Labels(labels, texts) => (labels, texts),
        };
        let names = train.map(|train| train.class_names()).filter(|names| !names.is_empty());
        let given = match (&csv.classes, names, train) {
            (None, Some(names), _) => Some(Classes::Names(names.to_vec())),
            (None, None, Some(train)) => Some(Classes::Count(train.input().classes as u16)),
            (given, ..) => given.clone(),
        };
        let list = texts
            .classes(given.as_ref())
            .map_err(|why| Error::malformed(path, why))?;
        let input = Input::of_classes(shape, list.count);
        csv.scaling().apply(&mut values, input)?;
        let labels = labels
            .into_iter()
            .map(|number| list.of_text[usize::from(number)])
            .collect();
        let set = Dataset::new(Features::Floats(values), labels, input).map_err(in_file)?;
        match list.names {
            Some(names) => set.with_class_names(names),
            None => Ok(set),
        }
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
    let kept = |name: &&String| **name != csv.wanted() && !csv.ignore.contains(name);
    Ok(file.columns().iter().filter(kept).cloned().collect())
}

#[cfg(test)]
mod tests;
