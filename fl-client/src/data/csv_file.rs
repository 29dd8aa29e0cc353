//! CSV files with a header row, whose errors name the line and the column.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use csv::{ErrorKind, Reader, ReaderBuilder, StringRecord, Trim};

use super::error::Error;
use super::files::DataFile;

/// A CSV file, plain, gzip or xz. White space around fields is ignored.
pub(super) struct CsvFile {
    /// The path with the suffix that was found.
    pub(super) path: PathBuf,
    reader: Reader<DataFile>,
    columns: Vec<String>,
    record: StringRecord,
}

impl CsvFile {
    /// Opens the file and reads the names of its columns.
    ///
    /// # Errors
    /// `Missing` with `hint`, `Io`; `Malformed` if there is no header row or a column occurs twice.
    pub(super) fn open(path: &Path, delimiter: u8, hint: &str) -> Result<Self, Error> {
        let file = DataFile::open(path, hint)?;
        let path = file.path.clone();
        let mut reader = ReaderBuilder::new()
            .delimiter(delimiter)
            .trim(Trim::All)
            .from_reader(file);
        let header = reader.headers().map_err(|error| unreadable(&path, &error))?;
        let columns: Vec<String> = header.iter().map(str::to_owned).collect();
        if columns.is_empty() {
            return Err(Error::malformed(
                &path,
                "is empty; the first line must name the columns",
            ));
        }
        if let Some(twice) = columns
            .iter()
            .enumerate()
            .find(|(at, name)| columns[..*at].contains(name))
        {
            return Err(Error::malformed(
                &path,
                format!("column `{}` occurs twice in the first line", twice.1),
            ));
        }
        Ok(Self {
            path,
            reader,
            columns,
            record: StringRecord::new(),
        })
    }

    /// Names of the columns.
    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Position of the column `name`.
    ///
    /// # Errors
    /// `Malformed`, listing the columns.
    pub(super) fn column(&self, name: &str) -> Result<usize, Error> {
        let found = self.columns.iter().position(|column| column == name);
        found.ok_or_else(|| {
            /// Columns that an error lists.
            const LISTED: usize = 20;
            let mut list = self.columns[..self.columns.len().min(LISTED)].join("`, `");
            if self.columns.len() > LISTED {
                list.push_str(&format!("` and {} more, such as `", self.columns.len() - LISTED));
                list.push_str(&self.columns[self.columns.len() - 1]);
            }
            Error::malformed(
                &self.path,
                format!("has no column `{name}` in its first line; it has `{list}`"),
            )
        })
    }

    /// The next row, or `None` at the end.
    ///
    /// # Errors
    /// `Malformed` if the row has another number of fields than the first line, or is not UTF-8; `Io`.
    pub(super) fn next_row(&mut self) -> Result<Option<Row<'_>>, Error> {
        let more = self.reader.read_record(&mut self.record);
        let more = more.map_err(|error| unreadable(&self.path, &error))?;
        Ok(more.then_some(Row {
            path: &self.path,
            columns: &self.columns,
            record: &self.record,
        }))
    }
}

/// One row of a file. Columns are given by their positions.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    path: &'a Path,
    columns: &'a [String],
    record: &'a StringRecord,
}

impl<'a> Row<'a> {
    /// The field in `column`.
    pub(super) fn text(&self, column: usize) -> &'a str {
        self.record.get(column).unwrap_or_default()
    }

    /// The integer in `column`.
    ///
    /// # Errors
    /// `Malformed` if it is none, or out of the range of `T`.
    pub(super) fn integer<T: FromStr>(&self, column: usize) -> Result<T, Error> {
        let text = self.text(column);
        let wrong = |_| {
            self.wrong(format!(
                "`{}` is `{text}`, which is no such integer",
                self.columns[column]
            ))
        };
        text.parse().map_err(wrong)
    }

    /// The number in `column`.
    ///
    /// # Errors
    /// `Malformed` if it is none, or not finite as f32.
    pub(super) fn number(&self, column: usize) -> Result<f32, Error> {
        let (text, name) = (self.text(column), &self.columns[column]);
        match text.parse::<f32>() {
            Ok(value) if value.is_finite() => Ok(value),
            Ok(_) => Err(self.wrong(format!(
                "`{name}` is `{text}`, which is not finite as f32; remove or replace it"
            ))),
            Err(_) if text.is_empty() => Err(self.wrong(format!("`{name}` is empty; fill it or remove the row"))),
            Err(_) => Err(self.wrong(format!(
                "`{name}` is `{text}`, which is no number; encode it as numbers or leave the column out with `features` or `ignore`"
            ))),
        }
    }

    /// An error about this row.
    pub(super) fn wrong(&self, why: impl std::fmt::Display) -> Error {
        Error::malformed(self.path, format!("line {}: {why}", self.line()))
    }

    /// Line of the file in which the row begins, from 1.
    pub(super) fn line(&self) -> u64 {
        self.record.position().map_or(0, csv::Position::line)
    }
}

fn unreadable(path: &Path, error: &csv::Error) -> Error {
    let line = error.position().map_or(0, csv::Position::line);
    match error.kind() {
        ErrorKind::Io(error) => match error.kind() {
            std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput => {
                Error::malformed(path, format!("cannot be decompressed ({error}); fetch it again"))
            }
            _ => Error::io(path, error),
        },
        ErrorKind::Utf8 { .. } => Error::malformed(path, format!("line {line}: not UTF-8; convert the file")),
        ErrorKind::UnequalLengths { expected_len, len, .. } => Error::malformed(
            path,
            format!("line {line}: {len} fields, but the first line has {expected_len}"),
        ),
        _ => Error::malformed(path, format!("line {line}: {error}")),
    }
}
