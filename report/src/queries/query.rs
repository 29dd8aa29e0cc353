//! A question to a report, as its table registers it.

use crate::error::Error;
use crate::queries::filter::Filter;
use crate::report::Report;
use crate::table::Table;
use crate::table::schema::Schema;

/// A question whose answer is one table.
#[derive(Debug)]
pub struct Query {
    /// The name in every form and on the command line.
    pub name: &'static str,
    /// Describes one line of the answer.
    pub about: &'static str,
    /// The kinds of table that only this question is answered with.
    pub schemas: &'static [Schema],
    pub(super) answer: fn(&Report, &Filter) -> Result<Table, Error>,
}

impl Report {
    /// Answers a question.
    ///
    /// # Errors
    /// `NoRound` and `NoClient` if the run does not have what `filter` names, `NotKept` if a report does not hold the answer.
    pub fn table(&self, query: &Query, filter: &Filter) -> Result<Table, Error> {
        filter.check(self)?;
        (query.answer)(self, filter)
    }
}
