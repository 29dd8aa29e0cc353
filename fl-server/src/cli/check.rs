//! `fl-server check FILE`: reads a server.toml or run.toml as `serve` would, and says what is wrong with it.

use std::path::PathBuf;

use anyhow::Context;

use super::{Failure, Outcome, source};
use crate::config::ServerConfig;
use crate::plan::RunPlan;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A server.toml or a run.toml; told apart by their keys.
    file: PathBuf,
}

pub(super) fn run(args: &Args) -> Outcome {
    let (text, base) = source::read(&args.file)?;
    let name = args.file.display();
    let table: toml::Table = text
        .parse()
        .map_err(|e: toml::de::Error| Failure::usage(anyhow::anyhow!("{name}: {e}")))?;
    // Only a run has rounds or tables; a server.toml is a flat list of facts.
    let is_run =
        table.contains_key("rounds") || table.contains_key("task") || table.values().any(toml::Value::is_table);
    if is_run {
        let plan = RunPlan::from_toml(&text, &base)
            .with_context(|| name.to_string())
            .map_err(Failure::usage)?;
        println!(
            "{name}: a good run: `{}`, task `{}`, {} rounds",
            plan.name, plan.task, plan.rounds
        );
        if !plan.model.exists() {
            println!("  note: its model {} is not there yet", plan.model.display());
        }
    } else {
        let config = ServerConfig::from_toml(&text, &base)
            .with_context(|| name.to_string())
            .map_err(Failure::usage)?;
        println!("{name}: a good server configuration: listens on {}", config.listen);
        for path in [&config.authority, &config.certificate, &config.key] {
            if !path.exists() {
                println!("  note: {} is not there yet", path.display());
            }
        }
    }
    Ok(())
}
