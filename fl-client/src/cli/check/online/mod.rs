//! What only the server can answer: whether it is reached, whether it is the right one, whether it admits this client, which run it
//! has, and how fast the way is. The client joins nothing.

mod ask;
mod asked;
mod connect;
mod learner;
mod rate;
mod round;

use std::sync::Arc;

use anyhow::Context as _;
use fl_cli::findings::{Findings, Line};

use self::ask::Answer;
use super::{disk, limits};
use crate::client_file::ClientFile;
use crate::config::ClientConfig;
pub(super) use asked::Asked;
pub(super) use round::RoundCost;

/// Asks the server. The checks of the way to it need the ones before them, up to the run: after one that is wrong, no further line
/// follows. Returns what a round takes, if that is known.
///
/// # Errors
/// If a line cannot be printed.
pub(super) fn run(file: &ClientFile, asked: Asked, findings: &mut Findings) -> anyhow::Result<Option<RoundCost>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let config = Arc::new(file.config.clone());
    let tasks: Vec<String> = file.tasks.keys().cloned().collect();
    let Some(answer) = runtime.block_on(Box::pin(reach(&config, tasks, asked, findings)))? else {
        return Ok(None);
    };
    // Trainers and learners block.
    drop(runtime);
    let values = answer.probed.run.layout.len() as u64;
    findings.push(disk::room("disk for the run", &config.state, values))?;
    // The learners' model was compared with the limits already, and the run's may be another.
    let limits = limits::lines(&config.limits, values);
    let new: Vec<Line> = limits
        .into_iter()
        .filter(|line| !findings.lines().contains(line))
        .collect();
    findings.extend(new)?;
    let mut learned = learner::lines(file, &answer.probed, asked.steps);
    findings.extend(std::mem::take(&mut learned.lines))?;
    let (line, cost) = round::line(&answer, &learned, asked.steps.is_some());
    findings.push(line)?;
    Ok(Some(cost))
}

async fn reach(
    config: &Arc<ClientConfig>,
    tasks: Vec<String>,
    asked: Asked,
    findings: &mut Findings,
) -> anyhow::Result<Option<Answer>> {
    let Some(addresses) = note(findings, connect::resolve(&config.server).await)? else {
        return Ok(None);
    };
    let Some(port) = note(findings, connect::port(&config.server, addresses).await)? else {
        return Ok(None);
    };
    let Some(secured) = note(findings, connect::handshake(config, port, asked.now()).await)? else {
        return Ok(None);
    };
    let (lines, answer) = ask::ask(config, secured, tasks, &asked).await;
    findings.extend(lines)?;
    Ok(answer)
}

/// Adds the line of a check; returns what the next one needs, if it is good.
fn note<T>(findings: &mut Findings, checked: Result<(T, Line), Line>) -> anyhow::Result<Option<T>> {
    let (found, line) = match checked {
        Ok((found, line)) => (Some(found), line),
        Err(line) => (None, line.remote()),
    };
    findings.push(line)?;
    Ok(found)
}
