//! `fl-server report FED [RUN]`: what a run cost, in the form that is asked for.

mod answer;
mod write;

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::ValueEnum;
use fl_report::{By, Costs, CostsPlan, Filter, Report, Scale};

use super::{Failure, Format, Outcome, source, what_if};
use crate::admin::socket::{Answer, Ask};
use crate::config::server::ServerConfig;

pub(super) use write::replace;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The federation's folder, or its server.toml.
    fed: PathBuf,
    /// The run; not needed if there is only one.
    run: Option<String>,
    /// One table instead of the whole report: a line for each of these.
    #[arg(long, value_enum)]
    by: Option<Lines>,
    /// Only what was moved in this round. Without --by: client by client.
    #[arg(long, value_name = "R")]
    round: Option<u64>,
    /// Only what this client moved. Without --by: round by round.
    #[arg(long, value_name = "C")]
    client: Option<String>,
    /// Beside it fedavg-fp32, fedavg-fp16 (or fp16), or another run of this federation.
    #[arg(long, value_name = "BASELINE|RUN2", conflicts_with_all = ["by", "round", "client", "costs"])]
    against: Option<String>,
    /// What bytes cost in money and carbon; configs/costs.toml explains its keys.
    #[arg(long, value_name = "COSTS.toml")]
    costs: Option<PathBuf>,
    /// Encode the run's stored updates by this spec (as of `fl-compress encode --spec`) and show what it would have moved.
    #[arg(long, value_name = "SPEC.toml", conflicts_with_all = ["by", "round", "client", "against", "costs", "sign"])]
    what_if: Option<PathBuf>,
    /// Threads for that; as many as there are cores if not given. Each takes the memory of a few models.
    #[arg(long, requires = "what_if", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// What the run would move with other numbers of devices and rounds, with --costs also at what price.
    #[arg(long, value_name = "devices=N,rounds=M", conflicts_with_all = ["by", "round", "client", "against", "what_if", "sign"])]
    scale: Option<Scale>,
    /// How to write it.
    #[arg(long, value_enum, default_value_t = Form::Text)]
    format: Form,
    /// File to write to instead of stdout, replaced as a whole; `-` is stdout. For TensorBoard a folder.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Write it as JSON lines, each sealed with all before it, signed with the server's key: `verify` checks them.
    #[arg(long, conflicts_with_all = ["format", "by", "round", "client", "against", "costs"])]
    sign: bool,
}

/// The forms of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Text,
    Json,
    Csv,
    Parquet,
    Tensorboard,
    Html,
}

/// What has a line of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Lines {
    Round,
    Client,
    Participation,
    Tensor,
    Stage,
    Direction,
    Saving,
}

impl From<Lines> for By {
    fn from(lines: Lines) -> Self {
        match lines {
            Lines::Round => Self::Round,
            Lines::Client => Self::Client,
            Lines::Participation => Self::Participation,
            Lines::Tensor => Self::Tensor,
            Lines::Stage => Self::Stage,
            Lines::Direction => Self::Direction,
            Lines::Saving => Self::Saving,
        }
    }
}

pub(super) fn run(args: &Args) -> Outcome {
    args.check().map_err(Failure::usage)?;
    let (_, config) = source::federation(&args.fed)?;
    if let Some(spec) = &args.what_if {
        let format = match args.format {
            Form::Text => Format::Text,
            _ => Format::Json,
        };
        let text = what_if::run(&config, args.run.as_deref(), spec, args.threads, format)?;
        write::write(args.output.as_deref(), None, text.as_bytes())?;
        return Ok(());
    }
    let costs = args.costs.as_deref().map(read_costs).transpose()?;
    let mut report = ask(&config, args.run.as_ref())?;
    if args.sign {
        let signed = super::sign::signed(&config, &report)?;
        write::write(args.output.as_deref(), None, signed.as_bytes())?;
        return Ok(());
    }
    if let Some(scale) = args.scale {
        let costs = costs.as_ref().or(config.costs.as_ref());
        let none = || anyhow!("no round has closed yet: there is nothing to reckon from");
        let scaled = report.scaled(scale, costs).ok_or_else(none)?;
        let text = match args.format {
            Form::Text => scaled.text(),
            _ => fl_report::object_json(&scaled)?,
        };
        write::write(args.output.as_deref(), None, text.as_bytes())?;
        return Ok(());
    }
    // Prices of server.toml are for the whole report: tables and comparisons have them when they are asked for.
    let whole = args.by().is_none() && args.against.is_none();
    let costs = costs.or_else(|| {
        config
            .costs
            .clone()
            .filter(|_| whole && args.format != Form::Tensorboard)
    });
    report.costs = costs.map(|plan| Costs::of(&report, &plan));
    let (bytes, folder) = match args.format {
        Form::Tensorboard => {
            let file = fl_report::tensorboard(&report);
            (file.bytes, Some(file.name))
        }
        form => (answer::of(args, &config, &report, form)?, None),
    };
    write::write(args.output.as_deref(), folder.as_deref(), &bytes)?;
    Ok(())
}

impl Args {
    /// Combinations that no answer has, and forms that must not reach a terminal.
    fn check(&self) -> anyhow::Result<()> {
        let stdout = self.output.as_deref().is_none_or(write::is_stdout);
        match self.format {
            form if self.scale.is_some() && !matches!(form, Form::Text | Form::Json) => {
                Err(anyhow!("an answer to --scale is text or JSON"))
            }
            form if self.what_if.is_some() && !matches!(form, Form::Text | Form::Json) => {
                Err(anyhow!("an answer to --what-if is text or JSON"))
            }
            Form::Tensorboard if stdout => Err(anyhow!("say where event files are to be: `-o DIR`")),
            Form::Tensorboard if self.costs.is_some() => Err(anyhow!("event files hold no costs: ask without --costs")),
            Form::Tensorboard | Form::Html
                if self.by.is_some() || self.filter() != Filter::default() || self.against.is_some() =>
            {
                Err(anyhow!(
                    "pages and event files are made of the whole run: ask without --by, --round, --client and --against"
                ))
            }
            Form::Parquet if self.output.is_none() => Err(anyhow!("Parquet is no text: say where to with `-o FILE`")),
            Form::Parquet if stdout && write::is_terminal() => {
                Err(anyhow!("Parquet is no text and is not written to a terminal"))
            }
            _ => Ok(()),
        }
    }

    fn filter(&self) -> Filter {
        Filter {
            round: self.round,
            client: self.client.clone(),
        }
    }

    /// The table that is asked for; none is the whole report, which has no form of its own in tables.
    fn by(&self) -> Option<By> {
        let tables = matches!(self.format, Form::Csv | Form::Parquet);
        match self.by {
            Some(lines) => Some(lines.into()),
            None if self.filter() != Filter::default() => Some(By::Participation),
            None => tables.then_some(By::Round),
        }
    }
}

/// The report of a run, or of the only one.
fn ask(config: &ServerConfig, run: Option<&String>) -> Result<Report, Failure> {
    match source::ask(config, &Ask::Report { run: run.cloned() })? {
        Answer::Report(report) => Ok(*report),
        _ => Err(source::unexpected().into()),
    }
}

fn read_costs(path: &Path) -> Result<CostsPlan, Failure> {
    let (text, _) = source::read(path)?;
    let plan = CostsPlan::from_toml(&text).with_context(|| path.display().to_string());
    plan.map_err(Failure::usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_names_that_a_report_gives_them() {
        let names = |by: By| by.name().to_owned();
        let own = Lines::value_variants().iter().map(|lines| names((*lines).into()));
        let given = Lines::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        assert!(own.eq(given.map(|value| value.get_name().to_owned())));
        assert_eq!(Lines::value_variants().len(), By::ALL.len());
    }
}
