//! `fl-server verify --report FILE`: verifies a signed report, without federation or network.
//! `fl-server verify FED [RUN]`: audits a run in its store.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use fl_cli::out;
use fl_report::signed::{Verified, verify};
use time::OffsetDateTime;

use crate::cli::failure::{Failure, Outcome};
use crate::cli::source;
use crate::reporting::audit::{Audit, Finding, audit};
use crate::storage::store::Store;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The federation's folder, or its server.toml, to audit a run in its store; its server must be stopped.
    #[arg(required_unless_present = "report", conflicts_with = "report")]
    fed: Option<PathBuf>,
    /// The run; not needed if there is only one.
    #[arg(requires = "fed")]
    run: Option<String>,
    /// A run.toml to compare with the plan of the run; required only if this program cannot read the plan that is stored with the run.
    #[arg(long, requires = "fed")]
    plan: Option<PathBuf>,
    /// A report that `fl-server report --sign` wrote.
    #[arg(long)]
    report: Option<PathBuf>,
    /// The authority.pem of the federation. Without it, the one in the report is used, which proves integrity but not
    /// the signer.
    #[arg(long, requires = "report")]
    authority: Option<PathBuf>,
}

/// Largest signed report in bytes: more than a million lines.
const MAX_BYTES: u64 = 1 << 30;
/// Largest certificate file in bytes.
const MAX_PEM: u64 = 1 << 20;

pub(super) fn run(args: &Args) -> Outcome {
    match (&args.fed, &args.report) {
        (Some(fed), _) => store(fed, args.run.as_deref(), args.plan.as_deref()),
        (None, Some(file)) => report(file, args.authority.as_deref()),
        (None, None) => Err(Failure::usage(anyhow!("give a federation, or --report FILE"))),
    }
}

fn store(fed: &Path, run: Option<&str>, plan: Option<&Path>) -> Outcome {
    let config = source::config(fed)?;
    let plan = plan.map(source::plan).transpose()?;
    if !Store::is_at(&config.data)? {
        return Err(anyhow!("{} holds no run yet", config.data.display()).into());
    }
    let audit = audit(&config.data, run, plan)?;
    out::text(format_args!("{}", audited(&audit)))?;
    if !audit.is_good() {
        return Err(Failure::corrupt(anyhow!(
            "run `{}` is not what was recorded",
            audit.run
        )));
    }
    let unchecked = unchecked(&audit);
    if unchecked.is_empty() {
        let run = &audit.run;
        out::line(format_args!("run `{run}` is what was recorded: everything was checked"))?;
        return Ok(());
    }
    Err(Failure::Unchecked(anyhow!(
        "run `{}`: nothing is wrong in what was checked; not checked: {unchecked}",
        audit.run
    )))
}

/// What was not checked, as `aggregation of rounds 1 to 8, checkpoint of version 8`.
fn unchecked(audit: &Audit) -> String {
    let checks = audit.unchecked().into_iter();
    let checks = checks.map(|(check, first, last)| match check {
        "checkpoint" | "snapshot" => format!("{check} of version {first}"),
        "plan" | "first weights" | "base" => check.to_owned(),
        _ if first == last => format!("{check} of round {first}"),
        _ => format!("{check} of rounds {first} to {last}"),
    });
    checks.collect::<Vec<_>>().join(", ")
}

fn found(found: &Finding) -> String {
    match found {
        Finding::Good => "ok".to_owned(),
        Finding::Bad(why) => format!("DIFFERS: {why}"),
        Finding::Unknown(why) => format!("not checked: {why}"),
    }
}

fn audited(audit: &Audit) -> String {
    let plan = found(&audit.plan);
    let initial = found(&audit.initial);
    let base = audit.base.as_ref().map(|base| format!("; base {}", found(base)));
    let base = base.unwrap_or_default();
    let mut out = format!("run `{}`: plan {plan}; version 0: {initial}{base}\n", audit.run);
    for note in &audit.notes {
        let _ = writeln!(out, "note: {note}");
    }
    for round in &audit.rounds {
        let checks = [
            ("link", &round.link),
            ("model", &round.model),
            ("aggregation", &round.aggregation),
        ];
        let checks = checks.map(|(name, check)| format!("{name} {}", found(check)));
        let _ = writeln!(out, "round {:>4}: {}", round.round, checks.join("; "));
    }
    for (what, checks) in [("checkpoint", &audit.checkpoints), ("snapshot", &audit.snapshots)] {
        for (version, check) in checks {
            let _ = writeln!(out, "{what} of version {version}: {}", found(check));
        }
    }
    out
}

fn report(file: &Path, authority: Option<&Path>) -> Outcome {
    let name = file.display();
    let authority = authority.map(|path| {
        let bytes = source::bytes(path, MAX_PEM)?;
        String::from_utf8(bytes).map_err(|_| Failure::usage(anyhow!("{} is not a certificate in PEM", path.display())))
    });
    let authority = authority.transpose()?;
    let file = source::bytes(file, MAX_BYTES)?;
    let now = OffsetDateTime::now_utc().unix_timestamp();
    let verified = verify(&file, authority.as_deref(), now).map_err(|error| {
        let kind = if error.is_corruption() {
            Failure::Corrupt
        } else {
            Failure::Usage
        };
        kind(anyhow::Error::from(error).context(name.to_string()))
    })?;
    out::text(format_args!("{name}: {}", text(&verified)))?;
    let differences = &verified.differences;
    if differences.is_empty() {
        return Ok(());
    }
    let count = differences.found.len() + differences.more;
    Err(Failure::corrupt(anyhow!(
        "{name}: the file is what was signed, but {count} of its figures contradict others"
    )))
}

fn text(verified: &Verified) -> String {
    let whose = if verified.trusted {
        "issued by the one given"
    } else {
        "from the file itself"
    };
    let mut out = format!("intact, {} lines signed by `{}`\n", verified.lines, verified.signer);
    let run = verified.run.escape_debug();
    let _ = writeln!(out, "  run          `{run}`, {}", verified.state.escape_debug());
    let _ = writeln!(out, "  chain        {}", verified.chain.escape_debug());
    let _ = writeln!(out, "  certificate  SHA-256 {}", verified.fingerprint);
    let fingerprint = &verified.authority_fingerprint;
    let _ = writeln!(
        out,
        "  authority    `{}`, {whose}, SHA-256 {fingerprint}",
        verified.authority
    );
    if !verified.trusted {
        out.push_str(
            "  note: this proves that nothing was changed since it was signed, and not who signed it; for that give \
             the federation's own authority.pem with --authority\n",
        );
    }
    for warning in &verified.warnings {
        let _ = writeln!(out, "  warning: {warning}");
    }
    let differences = &verified.differences;
    if differences.is_empty() {
        out.push_str("  figures      agree with each other\n");
    }
    for difference in &differences.found {
        let _ = writeln!(out, "  difference: {difference}");
    }
    if differences.more > 0 {
        let _ = writeln!(out, "  and {} more differences", differences.more);
    }
    out
}
