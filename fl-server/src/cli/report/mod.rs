//! `fl-server report FED [RUN]`: what a run cost, in the form that is asked for.

mod answer;
mod args;

use std::path::Path;

use anyhow::Context;
use fl_cli::Format;
use fl_report::signed::{self, Signer};
use fl_report::{Answer, Costs, CostsPlan, Output, Report};

use crate::cli::failure::{Failure, Outcome};
use crate::cli::source::Certificates;
use crate::cli::{source, what_if, write};
use crate::config::server::ServerConfig;

pub(super) use args::Args;

pub(super) fn run(args: &Args) -> Outcome {
    args.check().map_err(Failure::usage)?;
    let config = source::config(&args.fed)?;
    let output = args.output.as_deref();
    if let Some(spec) = &args.what_if {
        let format = match args.format.name {
            "text" => Format::Text,
            _ => Format::Json,
        };
        let text = what_if::run(&config, args.run.as_deref(), spec, args.threads, format)?;
        write::write_to(output, None, text.as_bytes())?;
        return Ok(());
    }
    let costs = args.costs.as_deref().map(read_costs).transpose()?;
    let mut report = source::report(&config, args.run.as_ref())?;
    if args.plan || args.sign {
        let text = if args.plan {
            report.settings.run_toml
        } else {
            signed(&config, &report)?
        };
        write::write_to(output, None, text.as_bytes())?;
        return Ok(());
    }
    if let Some(scale) = args.scale {
        let costs = costs.as_ref().or(config.costs.as_ref());
        let scaled = report.scaled(scale, costs);
        let scaled = scaled.context("no round has closed yet: there is nothing to estimate from")?;
        write::write_to(output, None, &args.format.write(&Answer::Scaled(&scaled))?)?;
        return Ok(());
    }
    // Prices of server.toml are for the whole report: tables and comparisons have only those of --costs.
    let whole = args.query().is_none() && args.against.is_none() && args.format.costs;
    let costs = costs.or_else(|| config.costs.clone().filter(|_| whole && !args.format.is_table()));
    report.costs = costs.map(|plan| Costs::of(&report, &plan));
    let bytes = answer::of(args, &config, &report)?;
    let file = match args.format.output {
        Output::Folder(name) => Some(name(&report)),
        Output::Text | Output::Binary => None,
    };
    write::write_to(output, file.as_deref(), &bytes)?;
    Ok(())
}

fn read_costs(path: &Path) -> Result<CostsPlan, Failure> {
    CostsPlan::from_toml(&source::read(path)?)
        .with_context(|| path.display().to_string())
        .map_err(Failure::usage)
}

/// The signed report, by the key and certificates that `config` names.
fn signed(config: &ServerConfig, report: &Report) -> Result<String, Failure> {
    let Certificates { authority, own } = source::certificates(config)?;
    let signer = Signer::from_pem(&authority, &own.certificate, &own.key).with_context(|| {
        format!(
            "{} and {} cannot sign a report",
            config.certificate.display(),
            config.key.display()
        )
    });
    let signer = signer.map_err(Failure::usage)?;
    Ok(signed::write(report, &signer)?)
}
