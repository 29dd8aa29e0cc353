//! The bytes of an answer: a whole report, one of its tables, or a comparison.

use fl_report::{Against, Answer, Error, Report};

use crate::cli::failure::Failure;
use crate::cli::report::args::Args;
use crate::cli::source;
use crate::config::server::ServerConfig;

/// Answers from this report, in the form that is asked for.
pub(super) fn of(args: &Args, config: &ServerConfig, report: &Report) -> Result<Vec<u8>, Failure> {
    let form = args.format;
    if let Some(with) = &args.against {
        let comparison = match Against::baseline(with) {
            Some(baseline) => report.against(baseline),
            None => report.against(Against::Run(&source::report(config, Some(with))?)),
        };
        return Ok(form.write(&Answer::Comparison(report, &comparison))?);
    }
    let Some(query) = args.query() else {
        return Ok(form.write(&Answer::Whole(report))?);
    };
    let filter = args.filter();
    let mut table = report.table(query, &filter).map_err(failure)?;
    if let Some(costs) = report.costs.as_ref().filter(|_| args.by.is_some() || form.is_table()) {
        table = costs.join(table).map_err(failure)?;
    }
    Ok(form.write(&Answer::Table {
        report,
        query,
        filter: &filter,
        table: &table,
    })?)
}

/// A question that no report answers is a wrong argument; a round or client that the run does not have is not.
fn failure(error: Error) -> Failure {
    match error {
        Error::NotKept(_) => Failure::usage(error),
        error => error.into(),
    }
}
