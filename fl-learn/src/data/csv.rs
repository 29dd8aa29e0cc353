//! Examples in rows of a CSV file: columns of numbers, and a column of labels or of numbers to predict.

mod classes;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fl_cli::findings::aligned;
use serde::{Deserialize, Serialize};

use super::array::check_shape;
use super::csv_file::{CsvFile, Fault, Faults, Row, repeated, short};
use super::dataset::Dataset;
use super::error::Error;
use super::examples::ClientData;
use super::features::Features;
use super::input::Input;
use super::part::{TestSource, check_share, shared_set};
use super::scaling::{Numbers, Scaling};
use super::set::{DataSet, Keys};
pub use classes::Classes;
use classes::{Texts, check_classes};
pub(super) use classes::{check_names, sorted};

/// What becomes of a missing cell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", expecting = "expected \"mean\", \"drop\" or a number")]
pub enum Missing {
    /// The mean of the column over the rows that this client trains on, in held-out rows too.
    Mean,
    /// The row is dropped.
    Drop,
    /// This number, before it is scaled.
    #[serde(untagged)]
    Value(f32),
}

shared_set! {
    /// Examples in rows of a CSV file whose first line names the columns.
    pub struct Csv(file, test_file) {
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
        /// What becomes of missing cells; by default they are errors.
        #[serde(default)]
        pub missing: Option<Missing>,
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

    fn what(&self) -> &'static str {
        if self.target.is_some() { "target" } else { "label" }
    }

    fn scaling(&self) -> Scaling<'_> {
        Scaling::new(&self.mean, &self.std)
    }
}

fn check_wanted(csv: &Csv) -> Result<(), Error> {
    match (&csv.label, &csv.target) {
        (None, None) => {
            let why = "is missing; name the column of labels, or a `target` of numbers";
            return Err(Error::config("label", why));
        }
        (Some(_), Some(_)) => return Err(Error::config("target", "is of numbers; give it or `label`, not both")),
        (None, Some(_)) if csv.classes.is_some() => {
            let why = "are of a `label`; numbers to predict have none";
            return Err(Error::config("classes", why));
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

impl DataSet for Csv {
    fn load(&self) -> Result<ClientData, Error> {
        let train = self.shared("train", || read(self, &self.file, "file", None))?;
        let held = match &self.test_file {
            Some(file) => TestSource::Dealt(self.shared("test", || read(self, file, "test_file", Some(&train)))?),
            None => TestSource::of_share(self.test),
        };
        let data = self.part().of(train, held)?;
        if self.missing == Some(Missing::Mean) {
            data.filled()
        } else {
            Ok(data)
        }
    }

    fn check(&self) -> Result<(), Error> {
        check_wanted(self)?;
        if self.features.is_some() && !self.ignore.is_empty() {
            let why = "leaves columns out; give it or `features`, not both";
            return Err(Error::config("ignore", why));
        }
        if self.features.as_ref().is_some_and(Vec::is_empty) {
            return Err(Error::config("features", "is empty; name at least one column"));
        }
        for (key, list) in [
            ("features", self.features.as_deref().unwrap_or_default()),
            ("ignore", &self.ignore),
        ] {
            if list.iter().any(|name| name == self.wanted()) {
                let why = format!("has `{}`, which is the {}", self.wanted(), self.what());
                return Err(Error::config(key, why));
            }
            if let Some(twice) = repeated(list) {
                return Err(Error::config(key, format!("has `{twice}` twice")));
            }
        }
        if !self.delimiter.is_ascii() || self.delimiter.is_ascii_alphanumeric() || "\"\r\n.-+".contains(self.delimiter)
        {
            let why = format!(
                "is {:?}, but must be one character such as \",\", \";\" or \"\\t\"",
                self.delimiter
            );
            return Err(Error::config("delimiter", why));
        }
        if matches!(self.missing, Some(Missing::Value(value)) if !value.is_finite()) {
            return Err(Error::config("missing", "must be a finite number"));
        }
        check_classes(self.classes.as_ref())?;
        check_share(self.test, self.test_file.as_ref().map(|_| "test_file"))?;
        check_shape(self.shape)?;
        self.scaling().check()?;
        self.part().check()
    }

    fn keys(&mut self) -> Keys<'_> {
        self.shared_keys()
    }
}

/// Reads the file at `path`, which is the value of `key`. A test set has the classes of its training set.
fn read(csv: &Csv, path: &Path, key: &str, train: Option<&Arc<Dataset>>) -> Result<Dataset, Error> {
    // `check` has refused a delimiter that is not ASCII.
    let delimiter = u8::try_from(csv.delimiter).unwrap_or(b',');
    let mut file = CsvFile::open(path, delimiter, &format!("`{key}` names it"))?;
    let path = file.path.clone();
    file.expect_delimiter(|other| match train {
        None => format!("set `delimiter = {other:?}`"),
        Some(_) => format!("write it with {:?}, as `file`", csv.delimiter.to_string()),
    })?;
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
    let count = columns.len();
    let shape = csv.shape.unwrap_or([1, 1, count]);
    if columns.is_empty() || shape.iter().product::<usize>() != count {
        let why = match csv.shape {
            Some(shape) => format!("has {count} columns of values, which `shape` = {shape:?} does not suit"),
            None => format!("has no column of values beside the {}", csv.what()),
        };
        return Err(Error::malformed(&path, why));
    }
    let mut values = Vec::new();
    let mut truth = Truth::of(csv);
    let mut ranges = vec![Range::default(); columns.len()];
    let mut rows = 0;
    let mut dropped = 0;
    let faults = file.each_row(|row, faults| {
        rows += 1;
        let start = values.len();
        let mut is_kept = true;
        for (&column, range) in columns.iter().zip(&mut ranges) {
            let number = row.number(column).unwrap_or_else(|fault| {
                faults.add(fault);
                Some(0.0)
            });
            range.add(number);
            match (number, csv.missing) {
                (Some(number), _) | (None, Some(Missing::Value(number))) => values.push(number),
                (None, Some(Missing::Mean)) => values.push(f32::NAN),
                (None, Some(Missing::Drop)) => is_kept = false,
                (None, None) => faults.add(row.wrong(row.cell(column), FILL)),
            }
        }
        if !is_kept || !truth.add(csv, &row, wanted)? {
            values.truncate(start);
            dropped += 1;
        }
        Ok(())
    })?;
    if truth.is_empty() && faults.is_empty() {
        let why = match dropped {
            0 => "has no row after its first line".to_owned(),
            _ => format!("a cell is missing in each of the {rows} rows, and `missing` drops them"),
        };
        return Err(Error::malformed(&path, why));
    }
    values.shrink_to_fit();
    let mut set = truth.with(csv, &path, values, shape, train, faults)?;
    let shown = path.display();
    let first = format!("{shown}: {rows} rows, {dropped} dropped because a cell is missing");
    set.notes = notes(csv, &file, &first, &names, &ranges).into();
    Ok(set)
}

#[derive(Debug, Clone, Default)]
struct Range {
    /// `None` without numbers.
    least: Option<f32>,
    most: Option<f32>,
    missing: usize,
}

impl Range {
    fn add(&mut self, number: Option<f32>) {
        let Some(number) = number else {
            self.missing += 1;
            return;
        };
        self.least = Some(self.least.map_or(number, |least| least.min(number)));
        self.most = Some(self.most.map_or(number, |most| most.max(number)));
    }
}

const FILL: &str = "fill the cell, or set `missing` to \"mean\", \"drop\" or a number";

/// What `check` shows of `file` after `first`: its columns by role, with least and largest number and missing cells of features.
fn notes(csv: &Csv, file: &CsvFile, first: &str, names: &[String], ranges: &[Range]) -> Vec<String> {
    const LISTED: usize = 32;
    let known: HashSet<&String> = names.iter().collect();
    let others = file
        .columns()
        .iter()
        .filter(|name| *name != csv.wanted() && !known.contains(name));
    let mut ignored = others
        .take(LISTED)
        .map(|name| shown(name))
        .collect::<Vec<_>>()
        .join(", ");
    if ignored.is_empty() {
        ignored.push_str("none");
    }
    let mut rows = vec![["feature", "min", "max", "missing"].map(str::to_owned)];
    for (name, range) in names.iter().zip(ranges).take(LISTED) {
        let [least, most] = [range.least, range.most].map(|number| number.map_or(String::new(), |n| n.to_string()));
        rows.push([shown(name), least, most, range.missing.to_string()]);
    }
    let what = csv.what();
    let wanted = csv.wanted();
    let mut lines = vec![format!("{first}; {what}: `{wanted}`; ignored: {ignored}")];
    lines.extend(aligned(&rows, &[1, 2, 3]));
    if names.len() > LISTED {
        let missing: usize = ranges[LISTED..].iter().map(|range| range.missing).sum();
        let more = names.len() - LISTED;
        lines.push(format!("and {more} more features, {missing} cells missing"));
    }
    lines
}

fn shown(name: &str) -> String {
    format!("`{}`", short(name).escape_debug())
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

    /// Whether the row has what is to be predicted; if not, it is to be dropped.
    fn add(&mut self, csv: &Csv, row: &Row<'_>, column: usize) -> Result<bool, Fault> {
        let text = row.text(column);
        let is_class = matches!(&csv.classes, Some(Classes::Names(names)) if names.iter().any(|name| name == text));
        if row.is_missing(column) && !is_class {
            let todo = match self {
                Self::Labels(..) if !text.is_empty() => "set `missing = \"drop\"`, or list the label in `classes`",
                _ => "fill it, or set `missing = \"drop\"`",
            };
            return match csv.missing {
                Some(Missing::Drop) => Ok(false),
                _ => Err(row.wrong(format!("the {} {}", csv.what(), row.cell(column)), todo)),
            };
        }
        match self {
            Self::Labels(labels, texts) => labels.push(texts.number_of(text, row.line())?),
            Self::Numbers(numbers) => {
                let mean = csv.target_mean.unwrap_or(0.0);
                let std = csv.target_std.unwrap_or(1.0);
                let number = (row.number(column)?.unwrap_or_default() - mean) / std;
                if !number.is_finite() {
                    let what = "the number to predict is too large after `target_mean` and `target_std`";
                    return Err(row.wrong(what, "raise `target_std`"));
                }
                numbers.push(number);
            }
        }
        Ok(true)
    }

    /// The set with the values of the file at `path`. A test set has the classes of its training set.
    fn with(
        self,
        csv: &Csv,
        path: &Path,
        mut values: Vec<f32>,
        shape: [usize; 3],
        train: Option<&Arc<Dataset>>,
        mut faults: Faults,
    ) -> Result<Dataset, Error> {
        let in_file = |error: Error| Error::malformed(path, error.to_string());
        let (labels, texts) = match self {
            Self::Numbers(numbers) => {
                faults.into_result(path)?;
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
        let list = texts.classes(given.as_ref(), &mut faults);
        faults.into_result(path)?;
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
fn feature_names(csv: &Csv, file: &CsvFile) -> Result<Vec<String>, Error> {
    if let Some(names) = &csv.features {
        names.iter().try_for_each(|name| file.column(name).map(drop))?;
        return Ok(names.clone());
    }
    csv.ignore.iter().try_for_each(|name| file.column(name).map(drop))?;
    let left_out: HashSet<&String> = csv.ignore.iter().collect();
    let names: Vec<String> = file
        .columns()
        .iter()
        .filter(|name| **name != csv.wanted() && !left_out.contains(name))
        .cloned()
        .collect();
    // The second is how pandas names the first when it reads such a file.
    match names.iter().find(|name| ["", "Unnamed: 0"].contains(&name.as_str())) {
        None => Ok(names),
        Some(name) => {
            let why = "has a column without a name, such as the row numbers that `to_csv` of pandas writes first";
            let todo = format!("leave it out with `ignore = [{name:?}]`, or name it");
            Err(Error::malformed(&file.path, format!("{why}; {todo}")))
        }
    }
}

#[cfg(test)]
mod tests;
