//! Runs the trials that have no result yet, several at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use fl_cli::out;
use fl_client::DeviceChoice;
use fl_compress::Digest;
use fl_learn::data::ClientData;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::task::JoinSet;

use super::file::Sweep;
use super::folder::Folder;
use super::phase::Phase;
use super::summary::Group;
use super::trial::{Record, Trial};
use crate::experiment::Place;
use crate::federation;
use crate::score::bytes;
use crate::statistics::Quality;

#[derive(Debug, Clone)]
pub(super) struct Workers {
    /// Trials at once, and learners at work at once over all of them.
    pub(super) jobs: usize,
    pub(super) device: DeviceChoice,
}

/// Runs the trials of `phase` for `points` (variant, index) that have no result yet, and returns the results of all. A
/// failed trial stops no other; it is counted and its reason printed.
pub(super) async fn run(
    sweep: &Sweep,
    folder: &Folder,
    phase: Phase,
    points: &[(String, usize)],
    workers: &Workers,
) -> anyhow::Result<Vec<Group>> {
    let trials = trials(sweep, phase, points)?;
    let mut missing = Vec::new();
    for trial in &trials {
        if folder.find(trial)?.is_none() {
            missing.push(trial.clone());
        }
    }
    let held = match missing.first() {
        Some(trial) => Some(hold(sweep, trial).await?),
        None => None,
    };
    let progress = Progress::new(phase, trials.len(), trials.len() - missing.len());
    run_missing(sweep, folder, missing, workers, &progress).await?;
    progress.bar.finish_and_clear();
    drop(held);
    collect(sweep, folder, points, &trials)
}

/// The trials of `phase` for `points`.
pub(super) fn trials(sweep: &Sweep, phase: Phase, points: &[(String, usize)]) -> anyhow::Result<Vec<Trial>> {
    let mut trials = Vec::new();
    for (variant, point) in points {
        for &seed in sweep.seeds(phase) {
            trials.push(Trial::new(sweep, phase, variant, *point, seed)?);
        }
    }
    Ok(trials)
}

/// Checks the budgets of every point of which a trial has no result yet, before any of them runs, and prints the warnings.
///
/// # Errors
/// The first point whose budget cannot be kept.
pub(super) async fn check(
    sweep: &Sweep,
    folder: &Folder,
    phases: &[(Phase, Vec<(String, usize)>)],
) -> anyhow::Result<()> {
    let mut first: BTreeMap<(&str, usize), Trial> = BTreeMap::new();
    for (phase, points) in phases {
        for (variant, point) in points {
            for &seed in sweep.seeds(*phase) {
                let trial = Trial::new(sweep, *phase, variant, *point, seed)?;
                if folder.find(&trial)?.is_none() {
                    first.entry((variant, *point)).or_insert(trial);
                    break;
                }
            }
        }
    }
    let Some(trial) = first.values().next() else {
        return Ok(());
    };
    let _held = hold(sweep, trial).await?;
    for ((variant, at), trial) in first {
        let point = sweep.points(variant)[at].clone();
        let dir = folder.workplace(&trial);
        let name = match point.label.as_str() {
            "" => format!("variant `{variant}`"),
            label => format!("variant `{variant}`, {label}"),
        };
        let checked = tokio::task::spawn_blocking(move || {
            let checked = point.experiment.check_budgets(point.variant(), trial.seed, &dir);
            // What stays is deleted when the folder is opened the next time.
            let _ = std::fs::remove_dir_all(&dir);
            checked
        });
        let warnings = checked.await?.with_context(|| name.clone())?;
        for warning in warnings {
            out::note(format_args!("{name}: {warning}"));
        }
    }
    Ok(())
}

/// The results of the trials, by point. They are read from their files, whether they were run now or earlier.
pub(super) fn collect(
    sweep: &Sweep,
    folder: &Folder,
    points: &[(String, usize)],
    trials: &[Trial],
) -> anyhow::Result<Vec<Group>> {
    let mut groups = Vec::new();
    for (variant, point) in points {
        let mut records = Vec::new();
        let mut failed = 0;
        let own = trials.iter();
        for trial in own.filter(|trial| (&trial.variant, trial.point) == (variant, *point)) {
            match folder.find(trial)? {
                // The grids may have been written anew since the trial ran.
                Some(record) => records.push(Record {
                    settings: sweep.points(variant)[*point].settings.clone(),
                    ..record
                }),
                None => failed += 1,
            }
        }
        groups.push(Group {
            variant: variant.clone(),
            point: *point,
            label: sweep.points(variant)[*point].label.clone(),
            records,
            failed,
        });
    }
    Ok(groups)
}

/// Reads the data of a trial, so that a file that is missing stops the sweep and others are read once for all trials.
async fn hold(sweep: &Sweep, trial: &Trial) -> anyhow::Result<ClientData> {
    let point = &sweep.points(&trial.variant)[trial.point];
    let workload = point.experiment.workload_of(point.variant());
    tokio::task::spawn_blocking(move || workload.hold()).await?
}

async fn run_missing(
    sweep: &Sweep,
    folder: &Folder,
    missing: Vec<Trial>,
    workers: &Workers,
    progress: &Progress,
) -> anyhow::Result<()> {
    let gate = federation::gate(workers.jobs);
    // Only needed for new results: reading a large program takes a while.
    let build = if missing.is_empty() { String::new() } else { build()? };
    let mut waiting = missing.into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < workers.jobs
            && let Some(trial) = waiting.next()
        {
            let point = sweep.points(&trial.variant)[trial.point].clone();
            let dir = folder.workplace(&trial);
            let build = build.clone();
            let place = Place {
                gate: Arc::clone(&gate),
                device: workers.device,
            };
            running.spawn(Box::pin(async move {
                let ran = trial.run(&point, &dir, &place, build).await;
                // What stays is deleted when the folder is opened the next time.
                let _ = tokio::fs::remove_dir_all(&dir).await;
                (trial, point.label, ran)
            }));
        }
        let Some(ended) = running.join_next().await else { break };
        let (trial, label, ran) = ended?;
        match ran {
            Ok(record) => {
                folder.keep(&trial, &record)?;
                progress.done(&trial, &label, &record);
            }
            Err(error) => progress.failed(&trial, &label, &error),
        }
    }
    Ok(())
}

/// A bar on stderr, and a row for each trial that ends.
#[derive(Debug)]
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn new(phase: Phase, trials: usize, finished: usize) -> Self {
        let template = "{prefix} [{bar:32}] {pos}/{len} trials  {elapsed}, {eta} left";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(Some(trials as u64), ProgressDrawTarget::stderr()).with_style(style);
        bar.set_prefix(phase.to_string());
        bar.set_position(finished as u64);
        bar.reset_eta();
        bar.enable_steady_tick(Duration::from_millis(500));
        let progress = Self { bar };
        if finished > 0 {
            progress.note(&format!("{phase}: {finished} of {trials} trials have finished earlier"));
        }
        progress
    }

    fn note(&self, line: &str) {
        if self.bar.is_hidden() {
            out::note(format_args!("{line}"));
        } else {
            self.bar.suspend(|| out::note(format_args!("{line}")));
        }
    }

    fn done(&self, trial: &Trial, label: &str, record: &Record) {
        self.bar.inc(1);
        let score = &record.score;
        let quality = Quality::of(&std::iter::once(score)).and_then(|quality| quality.tail(score));
        let tail = quality.map_or(String::new(), |tail| format!(" ({tail:.2} over 3 rounds)"));
        self.note(&format!(
            "{}: {}{tail}, {}, {:.1}x",
            name(trial, label),
            score.quality(),
            bytes(score.sent()),
            score.ratio()
        ));
    }

    fn failed(&self, trial: &Trial, label: &str, error: &anyhow::Error) {
        self.bar.inc(1);
        self.note(&format!("{}: FAILED: {error:#}", name(trial, label)));
    }
}

fn name(trial: &Trial, label: &str) -> String {
    let at = if label.is_empty() {
        String::new()
    } else {
        format!(" {label}")
    };
    format!("{} {}{at} seed {}", trial.phase, trial.variant, trial.seed)
}

/// The point that `VARIANT=N` on a command line names.
pub(super) fn named_point(sweep: &Sweep, text: &str) -> anyhow::Result<(String, usize)> {
    let (variant, number) = text
        .rsplit_once('=')
        .with_context(|| format!("`--point {text}`: give VARIANT=NUMBER, with the number of the table"))?;
    let points = sweep.points(variant);
    let number: Option<usize> = number.trim().parse().ok().filter(|number| *number < points.len());
    match number {
        Some(number) => Ok((variant.to_owned(), number)),
        None if points.is_empty() => bail!("`--point {text}`: there is no such variant"),
        None => {
            let all = points.iter().enumerate();
            let all: Vec<String> = all.map(|(at, point)| format!("{at}: {}", point.label)).collect();
            let all = all.join("; ");
            bail!("`--point {text}`: there is no such point; there are {all}")
        }
    }
}

fn build() -> anyhow::Result<String> {
    let path = std::env::current_exe().context("find this program")?;
    let digest = std::fs::File::open(&path).and_then(Digest::of_reader);
    let digest = digest.with_context(|| format!("read {}", path.display()))?;
    Ok(digest.to_string()[..16].to_owned())
}
