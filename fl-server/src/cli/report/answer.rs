//! The bytes of an answer: a whole report, one of its tables, or a comparison.

use fl_report::{Against, By, Comparison, Error, Report, Table};

use super::{Args, Form, ask};
use crate::cli::Failure;
use crate::config::server::ServerConfig;

/// The answer in a form of one file.
pub(super) fn of(args: &Args, config: &ServerConfig, report: &Report, form: Form) -> Result<Vec<u8>, Failure> {
    if let Some(with) = &args.against {
        let comparison = match Against::baseline(with) {
            Some(baseline) => report.against(baseline),
            None => report.against(Against::Run(&ask(config, Some(with))?)),
        };
        return Ok(compared(report, &comparison, form)?);
    }
    let Some(by) = args.by() else {
        return Ok(whole(report, form)?);
    };
    let filter = args.filter();
    let table = report.table(by, &filter).map_err(blame)?;
    let table = match &report.costs {
        Some(costs) if args.by.is_some() || form != Form::Text && form != Form::Json => {
            costs.join(table).map_err(blame)?
        }
        _ => table,
    };
    Ok(match form {
        Form::Text => fl_report::table_text(&table).into_bytes(),
        Form::Json => fl_report::table_json(report, by, &filter, &table)?.into_bytes(),
        form => tabular(report, by.name(), &table, form)?,
    })
}

/// A question that no report answers is a wrong argument; one about a round or client that is not there is not.
fn blame(error: Error) -> Failure {
    match error {
        Error::NotKept(_) => Failure::usage(error),
        error => error.into(),
    }
}

fn whole(report: &Report, form: Form) -> Result<Vec<u8>, Error> {
    match form {
        Form::Text => Ok(fl_report::text(report).into_bytes()),
        Form::Json => fl_report::json(report).map(String::into_bytes),
        Form::Html => fl_report::page(report).map(String::into_bytes),
        form => {
            let table = report.table(By::Round, &fl_report::Filter::default())?;
            let table = match &report.costs {
                Some(costs) => costs.join(table)?,
                None => table,
            };
            tabular(report, By::Round.name(), &table, form)
        }
    }
}

fn compared(report: &Report, comparison: &Comparison, form: Form) -> Result<Vec<u8>, Error> {
    match form {
        Form::Text => Ok(comparison.text().into_bytes()),
        Form::Json => fl_report::object_json(comparison).map(String::into_bytes),
        form => tabular(report, "against", &comparison.rounds, form),
    }
}

/// The forms that hold one table.
fn tabular(report: &Report, name: &str, table: &Table, form: Form) -> Result<Vec<u8>, Error> {
    match form {
        Form::Parquet => fl_report::parquet(&report.run, name, table),
        _ => fl_report::csv(table),
    }
}
