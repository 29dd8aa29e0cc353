//! The arguments of `fl-server report`. The names of questions and forms come from the tables of fl-report.

use std::path::PathBuf;

use anyhow::{anyhow, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use fl_report::{Asked, FORMS, Filter, Form, Output, QUERIES, Query, Scale};

use crate::cli::write;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The federation's folder, or its server.toml.
    pub(super) fed: PathBuf,
    /// The run; not needed if there is only one.
    pub(super) run: Option<String>,
    /// One table instead of the whole report, with a line for each of these.
    #[arg(long, value_parser = queries())]
    pub(super) by: Option<&'static Query>,
    /// Only bytes of this round. Without --by: client by client.
    #[arg(long, value_name = "R")]
    pub(super) round: Option<u64>,
    /// Only bytes of this client. Without --by: round by round.
    #[arg(long, value_name = "C")]
    pub(super) client: Option<String>,
    /// Print the run.toml that the run began with. `settings.plan` of `--format json` has every default, too.
    #[arg(long, conflicts_with_all = ["by", "round", "client", "against", "costs", "what_if", "scale", "format", "sign"])]
    pub(super) plan: bool,
    /// Compare with fedavg-fp32, fedavg-fp16 (or fp16), or another run of this federation.
    #[arg(long, value_name = "BASELINE|RUN2", conflicts_with_all = ["by", "round", "client", "costs"])]
    pub(super) against: Option<String>,
    /// Prices of bytes in money and carbon; configs/costs.toml explains its keys.
    #[arg(long, value_name = "COSTS.toml")]
    pub(super) costs: Option<PathBuf>,
    /// Encode the run's stored updates by this spec (as for `fl-compress encode --spec`) and show what it would have moved.
    #[arg(long, value_name = "SPEC.toml", conflicts_with_all = ["by", "round", "client", "against", "costs", "sign"])]
    pub(super) what_if: Option<PathBuf>,
    /// Threads for --what-if; default: one per core. Each takes the memory of a few models.
    #[arg(long, requires = "what_if", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) threads: Option<u16>,
    /// Estimate what the run would move with other numbers of devices and rounds, with --costs also at what price.
    #[arg(long, value_name = "devices=N,rounds=M", conflicts_with_all = ["by", "round", "client", "against", "what_if", "sign"])]
    pub(super) scale: Option<Scale>,
    /// The form of the answer.
    #[arg(long, value_parser = forms(), default_value = "text")]
    pub(super) format: &'static Form,
    /// File to write to instead of stdout, replaced as a whole; `-` is stdout. For TensorBoard a folder.
    #[arg(short, long)]
    pub(super) output: Option<PathBuf>,
    /// Write JSON lines, each sealed with all before it, signed with the server's key; `verify` checks them.
    #[arg(long, conflicts_with_all = ["format", "by", "round", "client", "against", "costs"])]
    pub(super) sign: bool,
}

fn queries() -> impl TypedValueParser<Value = &'static Query> {
    let names = QUERIES
        .iter()
        .map(|query| PossibleValue::new(query.name).help(query.about));
    PossibleValuesParser::new(names).try_map(|name| Query::named(&name).ok_or("not a question"))
}

fn forms() -> impl TypedValueParser<Value = &'static Form> {
    let names = FORMS.iter().map(|form| PossibleValue::new(form.name).help(form.about));
    PossibleValuesParser::new(names).try_map(|name| Form::named(&name).ok_or("not a form"))
}

impl Args {
    /// Refuses combinations that no answer has, and forms that a terminal must not get.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.format.check(self.asked())?;
        let name = self.format.name;
        ensure!(
            self.format.costs || self.costs.is_none(),
            "{name} shows no costs: ask without --costs"
        );
        let stdout = self.output.as_deref().is_none_or(write::is_stdout);
        match self.format.output {
            Output::Folder(_) if stdout => Err(anyhow!("{name} is written to a folder: name it with `-o DIR`")),
            Output::Binary if self.output.is_none() || stdout && write::is_terminal() => Err(anyhow!(
                "{name} is binary and is not written to a terminal: name a file with `-o FILE`"
            )),
            _ => Ok(()),
        }
    }

    fn asked(&self) -> Asked {
        if self.scale.is_some() || self.what_if.is_some() {
            Asked::Estimate
        } else if self.against.is_some() {
            Asked::Comparison
        } else if self.query().is_some() {
            Asked::Table
        } else {
            Asked::Whole
        }
    }

    pub(super) fn filter(&self) -> Filter {
        Filter {
            round: self.round,
            client: self.client.clone(),
        }
    }

    /// The question that is asked; `None` asks for the whole report.
    pub(super) fn query(&self) -> Option<&'static Query> {
        let filter = self.filter();
        let filtered = (filter != Filter::default()).then(|| Query::of(&filter));
        self.by.or(filtered)
    }
}
