//! `fl-server check FILE`: reads a server.toml or run.toml as `serve` does, and prints its errors.

mod run;
mod server;
mod tensors;

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use fl_cli::{Format, out};
use serde::Serialize;

use crate::cli::check::run::CheckedRun;
use crate::cli::check::server::CheckedServer;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::source;
use crate::config::plan::RunPlan;
use crate::config::server::ServerConfig;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A server.toml or a run.toml, recognized by its keys, or without keys by the file's name; or a federation's folder.
    file: PathBuf,
    /// Format of the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Of a run.toml, check the text alone: its first weights may not exist yet.
    #[arg(long)]
    without_weights: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Run,
    Server,
}

/// Keys of a run.toml.
const RUN: &str = "name task rounds seed stop_at model evaluate cohort train aggregator average optimizer \
    compression limits";
/// Required keys of a run.toml.
const NEEDED: [&str; 5] = ["name", "task", "rounds", "model", "cohort"];
const NEEDS: &str = "a run.toml needs `name`, `task`, `rounds`, `model`, and [cohort] with `min` and `target`";
/// Keys of a server.toml; a client.toml shares some.
const SERVER: &str = "listen admin admin_token address authority_key certificate_days enroll admin_certificate admin_key data \
    authority certificate key revoked costs keep_updates checkpoint_every verify_at_once transfers_at_once stall \
    least_rate connections connections_per_client handshakes handshakes_per_address proxy_protocol \
    handshake_timeout calls_per_client call_rate enroll_connections enroll_connections_per_address \
    enroll_timeout enroll_rate idle ping_every stop_within otlp";
/// Keys of a client.toml only.
const CLIENT: &str = "server state device tasks";

pub(super) fn run(args: &Args) -> Outcome {
    let file = source::server_toml(&args.file)?;
    let text = source::read(&file)?;
    let base = source::base(&file);
    let name = file.display();
    let table: toml::Table = text
        .parse()
        .map_err(|e: toml::de::Error| Failure::usage(anyhow!("{name}: {e}")))?;
    let kind = kind(&table, &file).map_err(|why| Failure::usage(anyhow!("{name}: {why}")))?;
    let mut faults = None;
    let checked = match kind {
        Kind::Run => {
            let whole = NEEDED.iter().all(|key| table.contains_key(*key));
            let load = if args.without_weights {
                RunPlan::from_toml
            } else {
                RunPlan::load
            };
            let plan = load(&text, base)
                .with_context(|| {
                    if whole {
                        name.to_string()
                    } else {
                        format!("{name}: {NEEDS}")
                    }
                })
                .map_err(Failure::usage)?;
            if args.without_weights {
                CheckResult::Plan {
                    task: plan.task,
                    min: plan.cohort.min,
                    weights: plan.model,
                }
            } else {
                CheckResult::Run(Box::new(CheckedRun::new(&file, &plan)?))
            }
        }
        Kind::Server => {
            let config = ServerConfig::from_toml(&text, base)
                .with_context(|| name.to_string())
                .map_err(Failure::usage)?;
            let (checked, wrong) = CheckedServer::new(&file, &config, args.format)?;
            faults = wrong;
            CheckResult::Server(checked)
        }
    };
    match (args.format, &checked) {
        (Format::Json, checked) => out::json(checked)?,
        (Format::Text, CheckResult::Plan { task, .. }) => out::line(format_args!("{name}: valid: task `{task}`"))?,
        (Format::Text, CheckResult::Run(checked)) => out::text(format_args!("{}", checked.text()))?,
        // Its lines were printed one by one.
        (Format::Text, CheckResult::Server(_)) => {}
    }
    faults.map_or(Ok(()), |faults| Err(Failure::usage(anyhow!(faults))))
}

/// The result of `check`; docs/reference/check.md describes its keys.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum CheckResult {
    Run(Box<CheckedRun>),
    /// A run.toml without its weights, for who makes them. `min`: fewest updates of a round.
    Plan {
        task: String,
        min: usize,
        weights: PathBuf,
    },
    Server(CheckedServer),
}

/// The kind of a file by its keys; without keys, as in a server.toml with all keys commented out, by its name.
fn kind(table: &toml::Table, file: &Path) -> Result<Kind, String> {
    let has_any = |keys: &str| keys.split(' ').any(|key| table.contains_key(key));
    if has_any(CLIENT) {
        return Err("this is a client.toml: check it with `fl-client check`".to_owned());
    }
    if has_any(RUN) {
        return Ok(Kind::Run);
    }
    if has_any(SERVER) {
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
        let sorted = |keys: &str| {
            let mut keys: Vec<String> = keys.split(' ').map(str::to_owned).collect();
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
            sorted(&named[1..].join(" "))
        };
        let base = Path::new("");
        let server = ServerConfig::from_toml("zzz = 1", base).unwrap_err().to_string();
        assert_eq!(expected(server), sorted(SERVER));
        let run = RunPlan::from_toml("zzz = 1", base).unwrap_err().to_string();
        assert_eq!(expected(run), sorted(RUN));
        assert!(
            NEEDED
                .iter()
                .all(|key| RUN.split(' ').any(|known| known == *key) && NEEDS.contains(key))
        );
    }
}
