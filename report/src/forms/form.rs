//! A form of a report, as its table registers it, and the answers that forms show.

use std::borrow::Cow;

use crate::against::comparison::Comparison;
use crate::error::Error;
use crate::queries::filter::Filter;
use crate::queries::query::Query;
use crate::report::Report;
use crate::scale::estimate::Scaled;
use crate::table::Table;

/// What was asked of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// The whole report.
    Whole,
    /// One table.
    Table,
    /// A comparison.
    Comparison,
    /// An estimate for another size or another compression.
    Estimate,
}

/// The answer that a form is made of.
#[derive(Debug, Clone, Copy)]
pub enum Answer<'a> {
    /// The whole report.
    Whole(&'a Report),
    /// The answer to a question.
    Table {
        /// The report that was asked.
        report: &'a Report,
        /// The question.
        query: &'static Query,
        /// The lines that were asked for.
        filter: &'a Filter,
        /// The lines, with cost columns if there are prices.
        table: &'a Table,
    },
    /// A comparison of this report.
    Comparison(&'a Report, &'a Comparison),
    /// An estimate.
    Scaled(&'a Scaled),
}

/// How a form is written.
#[derive(Debug, Clone, Copy)]
pub enum Output {
    /// As text, to a terminal too.
    Text,
    /// As a file that no terminal should get.
    Binary,
    /// As a file of this name in a folder.
    Folder(fn(&Report) -> String),
}

/// A form in which an answer is written.
#[derive(Debug)]
pub struct Form {
    /// The name, on the command line too.
    pub name: &'static str,
    /// What the form is, in a few words.
    pub about: &'static str,
    /// What the form can show.
    pub shows: &'static [Asked],
    /// Whether the form shows the costs of a whole report.
    pub costs: bool,
    /// How the form is written.
    pub output: Output,
    pub(super) write: fn(&Answer<'_>) -> Result<Vec<u8>, Error>,
}

impl Asked {
    /// Every answer.
    pub(super) const ALL: &'static [Self] = &[Self::Whole, Self::Table, Self::Comparison, Self::Estimate];
    /// The answers that have one table.
    pub(super) const TABLES: &'static [Self] = &[Self::Whole, Self::Table, Self::Comparison];

    /// The answer in words.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Whole => "the whole run",
            Self::Table => "a table",
            Self::Comparison => "a comparison",
            Self::Estimate => "an estimate",
        }
    }
}

impl Answer<'_> {
    pub(super) fn asked(&self) -> Asked {
        match self {
            Self::Whole(_) => Asked::Whole,
            Self::Table { .. } => Asked::Table,
            Self::Comparison(..) => Asked::Comparison,
            Self::Scaled(_) => Asked::Estimate,
        }
    }

    /// The one table of a form that holds no more, with its name and its report: the rounds, if the whole run was asked for.
    ///
    /// # Errors
    /// `NotKept` for an estimate.
    pub(super) fn table(&self) -> Result<(&Report, &'static str, Cow<'_, Table>), Error> {
        match self {
            Self::Whole(report) => {
                let filter = Filter::default();
                let query = Query::of(&filter);
                let table = report.table(query, &filter)?;
                let table = match &report.costs {
                    Some(costs) => costs.join(table)?,
                    None => table,
                };
                Ok((report, query.name, Cow::Owned(table)))
            }
            Self::Table {
                report, query, table, ..
            } => Ok((report, query.name, Cow::Borrowed(table))),
            Self::Comparison(report, comparison) => Ok((report, "against", Cow::Borrowed(&comparison.rounds))),
            Self::Scaled(_) => Err(Error::NotKept("an estimate is of no report: ask for text or json")),
        }
    }
}

impl Form {
    /// Whether a file in this form holds one table and nothing else.
    pub fn is_table(&self) -> bool {
        self.shows == Asked::TABLES
    }
}
