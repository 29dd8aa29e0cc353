//! CSV files with a header row. One error lists the first faults of a file, each with line and column.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;

use csv::{ErrorKind, Reader, ReaderBuilder, StringRecord, Trim};

use super::error::Error;
use super::files::DataFile;

/// Longest row, in bytes: of a million numbers. A small compressed file could have one of gigabytes.
const MAX_ROW: u64 = 16 * 1024 * 1024;

/// A file of which one row at a time is read, and no more than [`MAX_ROW`] for it.
struct RowLimit {
    file: DataFile,
    /// Bytes that may still be read for the row.
    left: Rc<Cell<u64>>,
}

impl Read for RowLimit {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(out)?;
        match self.left.get().checked_sub(read as u64) {
            Some(left) => self.left.set(left),
            None => {
                return Err(io::Error::new(
                    io::ErrorKind::FileTooLarge,
                    "a row has more than 16 MiB",
                ));
            }
        }
        Ok(read)
    }
}

/// A CSV file, plain, gzip or xz. White space around fields is ignored.
pub(super) struct CsvFile {
    /// The path with the suffix that was found.
    pub(super) path: PathBuf,
    reader: Reader<RowLimit>,
    left: Rc<Cell<u64>>,
    columns: Vec<String>,
    places: HashMap<String, usize>,
    record: StringRecord,
    delimiter: char,
}

impl CsvFile {
    pub(super) fn open(path: &Path, delimiter: u8, hint: &str) -> Result<Self, Error> {
        let file = DataFile::open(path, hint)?;
        let path = file.path.clone();
        let left = Rc::new(Cell::new(MAX_ROW));
        let mut reader = ReaderBuilder::new()
            .delimiter(delimiter)
            .trim(Trim::All)
            .from_reader(RowLimit {
                file,
                left: Rc::clone(&left),
            });
        let header = match reader.headers() {
            Ok(header) => header,
            Err(error) => {
                let fault = unreadable(&path, &error)?;
                let why = format!("line {}: {}; {}", fault.line, fault.what, fault.todo);
                return Err(Error::malformed(&path, why));
            }
        };
        let columns: Vec<String> = header.iter().map(str::to_owned).collect();
        if columns.is_empty() {
            let why = "is empty; the first line must name the columns";
            return Err(Error::malformed(&path, why));
        }
        if let Some(twice) = repeated(&columns) {
            let why = format!("column `{twice}` occurs twice in the first line");
            return Err(Error::malformed(&path, why));
        }
        Ok(Self {
            path,
            reader,
            left,
            places: columns.iter().cloned().zip(0..).collect(),
            columns,
            record: StringRecord::new(),
            delimiter: char::from(delimiter),
        })
    }

    /// Succeeds unless the file has one column that another usual delimiter would split; `todo` says what to do about that one.
    pub(super) fn expect_delimiter(&self, todo: impl Fn(&str) -> String) -> Result<(), Error> {
        let [only] = &self.columns[..] else { return Ok(()) };
        let others = [',', ';', '\t', '|']
            .into_iter()
            .filter(|&other| other != self.delimiter);
        let best = others.map(|other| (only.matches(other).count(), other));
        let Some((count, other)) = best.max_by_key(|(count, _)| *count).filter(|(count, _)| *count > 0) else {
            return Ok(());
        };
        let columns = count + 1;
        let other = other.to_string();
        let why = format!("has one column, which {other:?} would split into {columns}");
        Err(Error::malformed(&self.path, format!("{why}; {}", todo(&other))))
    }

    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    pub(super) fn column(&self, name: &str) -> Result<usize, Error> {
        self.places.get(name).copied().ok_or_else(|| {
            const LISTED: usize = 20;
            let mut list = self.columns[..self.columns.len().min(LISTED)].join("`, `");
            if self.columns.len() > LISTED {
                list.push_str(&format!("` and {} more, such as `", self.columns.len() - LISTED));
                list.push_str(&self.columns[self.columns.len() - 1]);
            }
            let why = format!("has no column `{name}` in its first line; it has `{list}`");
            Error::malformed(&self.path, why)
        })
    }

    /// Gives each row to `read`. Reading continues after a fault, of `read` or of the row itself, such as another number of
    /// fields than the first line has.
    pub(super) fn each_row(
        &mut self,
        mut read: impl FnMut(Row<'_>, &mut Faults) -> Result<(), Fault>,
    ) -> Result<Faults, Error> {
        let Self {
            columns, record, left, ..
        } = self;
        let mut faults = Faults::default();
        loop {
            left.set(MAX_ROW);
            let result = match self.reader.read_record(record) {
                Ok(false) => return Ok(faults),
                Ok(true) => read(Row { columns, record }, &mut faults),
                Err(error) => Err(unreadable(&self.path, &error)?),
            };
            result.unwrap_or_else(|fault| faults.add(fault));
        }
    }
}

#[derive(Debug)]
pub(super) struct Fault {
    line: u64,
    what: String,
    todo: String,
}

impl Fault {
    pub(super) fn new(line: u64, what: impl Into<String>, todo: impl Into<String>) -> Self {
        let what = what.into();
        let todo = todo.into();
        Self { line, what, todo }
    }
}

/// Faults of a file: the first ones, and the number of all.
#[derive(Default)]
pub(super) struct Faults {
    first: Vec<Fault>,
    count: usize,
}

impl Faults {
    const LISTED: usize = 10;

    pub(super) fn add(&mut self, fault: Fault) {
        self.count += 1;
        if self.first.len() < Self::LISTED {
            self.first.push(fault);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Succeeds if there is no fault. The error has the first faults, then each different remedy once.
    pub(super) fn into_result(self, path: &Path) -> Result<(), Error> {
        let lines = self
            .first
            .iter()
            .map(|fault| format!("line {}: {}", fault.line, fault.what));
        let mut parts: Vec<String> = lines.collect();
        if self.count > parts.len() {
            parts.push(format!("and {} more", self.count - parts.len()));
        }
        let mark = if self.count == 1 { "" } else { "-> " };
        for Fault { todo, .. } in self.first {
            let todo = format!("{mark}{todo}");
            if !parts.contains(&todo) {
                parts.push(todo);
            }
        }
        let text = match self.count {
            0 => return Ok(()),
            1 => parts.join("; "),
            count => format!("{count} faults\n  {}", parts.join("\n  ")),
        };
        Err(Error::malformed(path, text))
    }
}

pub(super) fn repeated<T: Eq + Hash>(names: &[T]) -> Option<&T> {
    let mut seen = HashSet::with_capacity(names.len());
    names.iter().find(|name| !seen.insert(*name))
}

/// The first 24 characters of a cell or a name, so that ten faults fit into an error.
pub(super) fn short(text: &str) -> String {
    match text.char_indices().nth(24) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text.to_owned(),
    }
}

const ENCODE: &str = "encode texts as numbers, or leave the column out with `features` or `ignore`";

/// One row of a file. Columns are given by their positions.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    columns: &'a [String],
    record: &'a StringRecord,
}

impl<'a> Row<'a> {
    pub(super) fn text(&self, column: usize) -> &'a str {
        self.record.get(column).unwrap_or_default()
    }

    pub(super) fn integer<T: FromStr>(&self, column: usize) -> Result<T, Fault> {
        let parsed = self.text(column).parse();
        parsed.map_err(|_| self.wrong(format!("{}, which is no such integer", self.cell(column)), "correct it"))
    }

    /// The number in `column`; `None` if it is missing.
    pub(super) fn number(&self, column: usize) -> Result<Option<f32>, Fault> {
        let text = self.text(column);
        if self.is_missing(column) {
            return Ok(None);
        }
        let (why, todo) = match text.parse::<f32>() {
            Ok(value) if value.is_finite() => return Ok(Some(value)),
            Ok(_) => ("not finite as f32", "remove or replace it"),
            Err(_) => ("no number", ENCODE),
        };
        Err(self.wrong(format!("{}, which is {why}", self.cell(column)), todo))
    }

    /// Whether the cell in `column` is empty, or has a usual spelling of a missing value.
    pub(super) fn is_missing(&self, column: usize) -> bool {
        let spellings = ["", "na", "n/a", "<na>", "nan", "null", "?"];
        spellings
            .iter()
            .any(|text| self.text(column).eq_ignore_ascii_case(text))
    }

    pub(super) fn cell(&self, column: usize) -> String {
        let name = short(&self.columns[column]);
        match self.text(column) {
            "" => format!("`{name}` is empty"),
            text => format!("`{name}` is `{}`", short(text)),
        }
    }

    /// A fault of this row, and what to do.
    pub(super) fn wrong(&self, what: impl Into<String>, todo: impl Into<String>) -> Fault {
        Fault::new(self.line(), what, todo)
    }

    /// Line of the file in which the row begins, from 1.
    pub(super) fn line(&self) -> u64 {
        self.record.position().map_or(0, csv::Position::line)
    }
}

fn unreadable(path: &Path, error: &csv::Error) -> Result<Fault, Error> {
    let line = error.position().map_or(0, csv::Position::line);
    match error.kind() {
        ErrorKind::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(Error::malformed(
            path,
            format!("line {line}: {error}; is a quote missing?"),
        )),
        ErrorKind::Io(error) => Err(Error::unread(path, error)),
        ErrorKind::Utf8 { .. } => Ok(Fault::new(line, "not UTF-8", "convert the file to UTF-8")),
        ErrorKind::UnequalLengths { expected_len, len, .. } => Ok(Fault::new(
            line,
            format!("{len} fields, but the first line has {expected_len}"),
            "complete the row, and quote fields that contain the delimiter",
        )),
        _ => Err(Error::malformed(path, format!("line {line}: {error}"))),
    }
}
