//! `fl-server check FILE`: reads a server.toml or run.toml as `serve` does, and prints its errors.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use fl_cli::out;
use fl_compress::{Budget, BudgetEstimate, Encoder, Layout, snapshot};
use fl_report::size;

use crate::cli::failure::{Failure, Outcome};
use crate::cli::issued::Issued;
use crate::cli::{source, tensors};
use crate::config::plan::RunPlan;
use crate::config::revoked;
use crate::config::server::ServerConfig;
use crate::storage::weights::{self, FirstWeights};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A server.toml or a run.toml, recognized by its keys, or without keys by the file's name.
    file: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Run,
    Server,
}

/// Keys of a run.toml.
const RUN: [&str; 13] = [
    "name",
    "task",
    "rounds",
    "seed",
    "model",
    "evaluate",
    "cohort",
    "train",
    "aggregator",
    "optimizer",
    "strategy",
    "compression",
    "limits",
];
/// Required keys of a run.toml.
const NEEDED: [&str; 5] = ["name", "task", "rounds", "model", "cohort"];
const NEEDS: &str = "a run.toml needs `name`, `task`, `rounds`, `model`, and [cohort] with `min` and `target`";
/// Keys of a server.toml; a client.toml shares some.
const SERVER: [&str; 24] = [
    "listen",
    "admin",
    "admin_token",
    "admin_certificate",
    "admin_key",
    "data",
    "authority",
    "certificate",
    "key",
    "revoked",
    "costs",
    "keep_updates",
    "checkpoint_every",
    "verify_at_once",
    "transfers_at_once",
    "stall",
    "least_rate",
    "connections",
    "connections_per_client",
    "handshakes",
    "handshakes_per_address",
    "idle",
    "stop_within",
    "otlp",
];
/// Keys of a client.toml only.
const CLIENT: [&str; 4] = ["server", "state", "device", "tasks"];

pub(super) fn run(args: &Args) -> Outcome {
    let (text, base) = source::read(&args.file)?;
    let name = args.file.display();
    let table: toml::Table = text
        .parse()
        .map_err(|e: toml::de::Error| Failure::usage(anyhow!("{name}: {e}")))?;
    match kind(&table, &args.file).map_err(|why| Failure::usage(anyhow!("{name}: {why}")))? {
        Kind::Run => {
            let whole = NEEDED.iter().all(|key| table.contains_key(*key));
            let plan = RunPlan::load(&text, &base)
                .with_context(|| {
                    if whole {
                        name.to_string()
                    } else {
                        format!("{name}: {NEEDS}")
                    }
                })
                .map_err(Failure::usage)?;
            let model = weights::read(&plan.model, &|tensors| plan.roles.assign(tensors));
            let model = model.map_err(|why| Failure::usage(anyhow!("{name}: {why}")))?;
            let compression = [("uplink", &plan.uplink), ("downlink", &plan.downlink)];
            for (table, spec) in compression {
                Encoder::new(Arc::new(model.layout.clone()), spec)
                    .map_err(|why| Failure::usage(anyhow!("{name}: compression.{table}: {why}")))?;
            }
            out::line(format_args!(
                "{name}: valid: run `{}`, task `{}`, {} rounds",
                plan.name, plan.task, plan.rounds
            ))?;
            out::line(format_args!(
                "  memory of updates: {}; of model updates: {}",
                plan.uplink.memory.name(),
                plan.downlink.memory.name()
            ))?;
            let path = plan.model.display();
            out::line(format_args!("  its model {path} has {} parameters", model.layout.len()))?;
            for line in tensors::lines(&model) {
                out::line(format_args!("  {line}"))?;
            }
            if let Some(line) = frozen(&plan, &model) {
                out::line(format_args!("  {line}"))?;
            }
            out::line(format_args!("  {}", downloads(&plan, &model)))?;
            for (table, spec) in compression {
                if let Some(estimate) = spec.budget_estimate(&model.layout) {
                    out::line(format_args!("  {}", budget(table, &estimate, &model.layout)))?;
                }
            }
        }
        Kind::Server => {
            let config = ServerConfig::from_toml(&text, &base)
                .with_context(|| name.to_string())
                .map_err(Failure::usage)?;
            let files = [&config.authority, &config.certificate, &config.key];
            if files.iter().all(|file| file.exists()) {
                source::certificates(&config)?;
            }
            if let Some(address) = config.admin {
                source::page(&config, address)?;
            }
            let listen = config.listen;
            out::line(format_args!("{name}: valid: listens on {listen}"))?;
            let issued = args.file.parent().and_then(|folder| Issued::of(folder).names());
            for fault in revoked::faults(&config.revoked, issued.as_ref()) {
                out::line(format_args!("  WARNING: {fault}"))?;
            }
            for path in files {
                if !path.exists() {
                    out::line(format_args!("  note: {} is not there yet", path.display()))?;
                }
            }
        }
    }
    Ok(())
}

/// A line about where clients get the frozen tensors from, if there are any or run.toml says that there are.
fn frozen(plan: &RunPlan, model: &FirstWeights) -> Option<String> {
    match (&model.base, plan.serve_base) {
        (Some(base), true) => Some(format!(
            "frozen tensors: clients without them download {} once",
            size(base.bytes.len() as u64)
        )),
        (Some(_), false) => Some(
            "frozen tensors: each client needs a file of them in `models` of its client.toml, or a trainer that loads the same \
             ones; or set `serve_base = true` in [model]"
                .to_owned(),
        ),
        (None, true) => Some(
            "WARNING: `serve_base = true` has no effect, because no tensor is frozen; name some in `model.frozen`, or remove the \
             key"
                .to_owned(),
        ),
        (None, false) => None,
    }
}

/// A line about the download of the initial weights. A client generates them itself if its learner gives the same weights from
/// the run's seed.
fn downloads(plan: &RunPlan, model: &FirstWeights) -> String {
    let (seed, target) = (plan.seed, plan.cohort.target as u64);
    // A snapshot has every value uncompressed, and a few bytes for each tensor.
    let each = snapshot(&model.layout, &model.values, 0).map_or(0, |frame| frame.len() as u64);
    let cost = format!("{} each, {} for {target} clients", size(each), size(each * target));
    let origin = &model.origin;
    let learner = match &origin.learner {
        Some(learner) => format!("learner `{learner}`"),
        None => "the learner that made them".to_owned(),
    };
    match origin.seed {
        Some(made) if made == seed => format!(
            "first weights: clients with {learner} make them from seed {seed} and download nothing; others download {cost}"
        ),
        Some(made) => format!(
            "WARNING: the first weights were made from seed {made}, and the run has seed {seed}: every client downloads \
             {cost}; remove `seed`, or set it to {made}"
        ),
        None => format!(
            "first weights: clients whose learner starts from exactly these weights download nothing; others download {cost}"
        ),
    }
}

/// A line about a budget, with a warning if it leaves next to nothing for the model's tensors.
fn budget(table: &str, estimate: &BudgetEstimate, layout: &Layout) -> String {
    let BudgetEstimate {
        budget,
        values,
        aside,
        asked,
        least,
        sharing: (tensors, shared),
        bits_left,
    } = estimate;
    let mut text = match budget {
        Budget::Bytes(_) => format!("compression.{table}: a frame takes at most {asked} bytes"),
        Budget::Bits(_) | Budget::Adaptive { .. } => {
            let bytes = asked - aside;
            let bits = bytes as f64 * 8.0 / *values as f64;
            let mut text =
                format!("compression.{table}: {bits:.2} bits for each of {values} values are {bytes} bytes a frame");
            if *aside > 0 {
                let _ = write!(text, ", and up to {aside} bytes more for buffers and counters");
            }
            text
        }
    };
    if *shared > 0 {
        let _ = write!(text, ", of which the headers leave {bits_left:.2} bits for each value");
    }
    if let Some(error) = budget.error() {
        let _ = write!(
            text,
            "; frames take more where a section would otherwise have a relative error above {error}"
        );
    }
    if !estimate.starves() {
        return text;
    }
    let names: Vec<&str> = tensors.iter().map(|&at| layout.tensors()[at].name.as_str()).collect();
    let named = match names.as_slice() {
        [] => String::new(),
        [names @ .., last] if names.len() < 4 => {
            let and = if names.is_empty() { "" } else { " and " };
            format!(", and next to nothing is left for {}{and}{last}", names.join(", "))
        }
        [first, second, third, rest @ ..] => {
            format!(
                ", and next to nothing is left for {first}, {second}, {third} and {} more tensors",
                rest.len()
            )
        }
        [..] => String::new(),
    };
    let enough = estimate.enough_bits();
    let _ = write!(
        text,
        "\n  WARNING: compression.{table}: the budget cannot be met: up to {least} bytes go to headers and to tensors whose \
         codec has no step or density to choose{named}; a budget of {enough:.2} bits is enough"
    );
    text
}

/// The kind of a file by its keys; without keys, as in a server.toml with all keys commented out, by its name.
fn kind(table: &toml::Table, file: &Path) -> Result<Kind, String> {
    let any = |keys: &[&str]| keys.iter().any(|key| table.contains_key(*key));
    if any(&CLIENT) {
        return Err("this is a client.toml: check it with `fl-client check`".to_owned());
    }
    if any(&RUN) {
        return Ok(Kind::Run);
    }
    if any(&SERVER) {
        return Ok(Kind::Server);
    }
    match file.file_name().and_then(|name| name.to_str()) {
        Some("run.toml") => Ok(Kind::Run),
        Some("server.toml") => Ok(Kind::Server),
        _ => {
            let found: Vec<String> = table.keys().map(|key| format!("`{key}`")).collect();
            let found = if found.is_empty() {
                "it has no key".to_owned()
            } else {
                format!("neither has {}", found.join(", "))
            };
            Err(format!(
                "neither a run.toml nor a server.toml: {found}; {NEEDS}; a server.toml has `listen`, `data` and others \
                 (`fl-server init` writes one that explains them all)"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(text: &str, file: &str) -> Result<Kind, String> {
        kind(&text.parse().unwrap(), Path::new(file))
    }

    #[test]
    fn a_key_tells_what_a_file_is_and_its_name_only_where_no_key_does() {
        for (text, file, is) in [
            ("rounds = 3", "x.toml", Kind::Run),
            ("[cohort]", "server.toml", Kind::Run),
            ("stall = '3s'", "run.toml", Kind::Server),
            ("# nothing", "fed/server.toml", Kind::Server),
            ("# nothing", "run.toml", Kind::Run),
            ("spede = 3", "server.toml", Kind::Server),
        ] {
            assert_eq!(kind_of(text, file), Ok(is), "{text} in {file}");
        }
        assert!(kind_of("# nothing", "x.toml").unwrap_err().contains("it has no key"));
        assert!(kind_of("spede = 3", "x.toml").unwrap_err().contains("`spede`"));
        assert!(kind_of("[tasks.a]", "x.toml").unwrap_err().contains("fl-client check"));
    }

    #[test]
    fn the_keys_are_those_that_the_files_may_have() {
        let sorted = |keys: &[&str]| {
            let mut keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
            keys.sort();
            keys
        };
        // "unknown field `zzz`, expected one of `listen`, `data`, .."
        let expected = |error: String| {
            let named: Vec<&str> = error
                .split('`')
                .skip(1)
                .step_by(2)
                .skip_while(|name| *name != "zzz")
                .collect();
            sorted(&named[1..])
        };
        let base = Path::new("");
        let server = ServerConfig::from_toml("zzz = 1", base).unwrap_err().to_string();
        assert_eq!(expected(server), sorted(&SERVER));
        let run = RunPlan::from_toml("zzz = 1", base).unwrap_err().to_string();
        assert_eq!(expected(run), sorted(&RUN));
        assert!(NEEDED.iter().all(|key| RUN.contains(key) && NEEDS.contains(key)));
    }
}
