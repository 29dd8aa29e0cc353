//! The command `fl-sim sweep`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use fl_cli::out;
use fl_client::DeviceChoice;
use serde::Serialize;

use super::file::{Points, Sweep};
use super::files;
use super::folder::Folder;
use super::markdown;
use super::outcome::{Outcome, PhaseOutcome};
use super::phase::Phase;
use super::run::{self, Workers, named_point};
use super::several::{self, NamedOutcome};
use super::summary::Group;
use super::text::table;
use crate::wrong::{self, wrong};

/// Options of `fl-sim sweep`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SweepCommand {
    /// The sweep, such as configs/experiments/sweep-fashion-mlp.toml, or a folder: all its sweeps, one after another
    #[arg(value_name = "PATH")]
    file: PathBuf,
    /// Folder of the results; a sweep that was stopped is resumed here. Of a folder of sweeps: where each has its own
    /// [default: the file's name without .toml, with -quick for `--quick`, in the current folder]
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Only this phase [default: first choose, where a variant has several points, then report]
    #[arg(long, value_enum)]
    phase: Option<Phase>,
    /// Report this point instead of the chosen one: VARIANT=NUMBER, as the table of the choice numbers them
    #[arg(long, value_name = "VARIANT=NUMBER")]
    point: Vec<String>,
    /// Trials at once, and learners at work at once [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// The file's short form: the seeds and keys of its `[quick]` table
    #[arg(long)]
    quick: bool,
    /// A Markdown file in which the tables become the section of this sweep, in place of an earlier one
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Where and when it ran, for `--page`
    #[arg(long, value_name = "TEXT", default_value = "", requires = "page")]
    note: String,
    /// Where learners compute: cpu or cuda:0
    #[arg(long, default_value = "cpu")]
    device: DeviceChoice,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum SweepOutcome {
    One(Box<Outcome>),
    Several(Vec<NamedOutcome>),
}

impl SweepCommand {
    /// Runs the sweep, or those of the folder, and returns the tables, as data and as text.
    pub(crate) async fn run(&self) -> anyhow::Result<(SweepOutcome, String)> {
        if !self.file.is_dir() {
            let (outcome, text) = Box::pin(self.run_one()).await?;
            return Ok((SweepOutcome::One(Box::new(outcome)), text));
        }
        if let Some(point) = self.point.first() {
            let why = "name the sweep's file instead of the folder";
            return Err(wrong(format_args!("`--point {point}`"), why).into());
        }
        self.run_each().await
    }

    /// Runs the sweeps of the folder, one after another. All files are read before the first trial. A sweep that fails stops
    /// no other.
    async fn run_each(&self) -> anyhow::Result<(SweepOutcome, String)> {
        let commands = self.each()?;
        for command in &commands {
            command.read()?;
        }
        let mut found = Vec::new();
        let mut failed = Vec::new();
        for command in &commands {
            let sweep = command.title();
            out::note(format_args!("sweep {sweep}"));
            match Box::pin(command.run_one()).await {
                Ok((outcome, text)) => {
                    out::note(format_args!("{text}\n"));
                    found.push(NamedOutcome { sweep, outcome });
                }
                Err(error) => {
                    out::note(format_args!("sweep {sweep}: {error:#}"));
                    failed.push(sweep);
                }
            }
        }
        let text = several::summary(&found);
        if !failed.is_empty() {
            out::text(format_args!("{text}\n"))?;
            let failed = failed.join(", ");
            bail!("failed sweeps: {failed}; the reasons are above, and the same command resumes them");
        }
        Ok((SweepOutcome::Several(found), text))
    }

    /// A command for each sweep of the folder, or this one.
    fn each(&self) -> anyhow::Result<Vec<Self>> {
        if !self.file.is_dir() {
            return Ok(vec![self.clone()]);
        }
        let mut commands = Vec::new();
        for file in several::files(&self.file)? {
            let mut one = Self {
                file,
                keep: None,
                ..self.clone()
            };
            one.keep = self.keep.as_ref().map(|keep| keep.join(one.folder()));
            commands.push(one);
        }
        Ok(commands)
    }

    /// Reads the file: its sweep and its text.
    fn read(&self) -> anyhow::Result<(Sweep, String)> {
        let text = wrong::read(&self.file)?;
        let base = self.file.parent().unwrap_or(Path::new("."));
        let sweep = Sweep::from_toml(&text, base, self.quick);
        let sweep = sweep.map_err(|e| wrong(self.file.display(), format_args!("{e:#}")))?;
        if self.phase == Some(Phase::Choose) && sweep.choose.is_empty() {
            let why = "`choose` is empty: list the seeds to choose on";
            return Err(wrong(self.file.display(), why).into());
        }
        Ok((sweep, text))
    }

    fn title(&self) -> String {
        self.file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    async fn run_one(&self) -> anyhow::Result<(Outcome, String)> {
        let (sweep, text) = self.read()?;
        let named = self.point.iter().map(|text| named_point(&sweep, text));
        let named: anyhow::Result<Vec<(String, usize)>> = named.collect();
        let named = named.map_err(|e| wrong(self.file.display(), format_args!("{e:#}")))?;
        let folder = Folder::open(&self.folder(), &sweep, &text)?;
        let workers = Workers {
            jobs: self.jobs.map_or_else(crate::demo::cores, usize::from).max(1),
            device: self.device,
        };
        let (outcome, groups) = self.phases(&sweep, &folder, &named, &workers).await?;
        let title = self.title();
        files::write(&folder, &title, &outcome, &groups)?;
        if let Some(page) = &self.page {
            self.write_page(page, &title, &outcome)?;
        }
        let phases = outcome.phases.iter();
        let reported = phases.filter(|phase| phase.phase == Phase::Report);
        let failed: usize = reported.flat_map(|phase| &phase.rows).map(|row| row.failed).sum();
        let texts: Vec<String> = outcome.phases.iter().map(table).collect();
        if outcome.builds.len() > 1 {
            let builds = outcome.builds.join(", ");
            out::note(format_args!(
                "warning: the trials were run by several builds of the program: {builds}"
            ));
        }
        let text = format!(
            "{}\nresults: {}",
            texts.join("\n"),
            folder.path().join("sweep.html").display()
        );
        if failed > 0 {
            out::text(format_args!("{text}\n"))?;
            bail!("failed trials: {failed}; the reasons are above, and the same command runs them again");
        }
        Ok((outcome, text))
    }

    fn write_page(&self, page: &Path, name: &str, outcome: &Outcome) -> anyhow::Result<()> {
        let before = if page.try_exists().is_ok_and(|exists| !exists) {
            String::new()
        } else {
            wrong::read(page)?
        };
        let mut command = format!("fl-sim sweep {}", self.file.display());
        if self.quick {
            command.push_str(" --quick");
        }
        if self.phase == Some(Phase::Choose) {
            command.push_str(" --phase choose");
        }
        for point in &self.point {
            command.extend([" --point ", point]);
        }
        let section = markdown::section(name, &command, &self.note, outcome);
        let after = markdown::place(&before, name, &section);
        let after = after.map_err(|e| wrong(page.display(), format_args!("{e:#}")))?;
        std::fs::write(page, after).with_context(|| format!("write {}", page.display()))
    }

    /// Deletes what trials at work have left, once nothing writes to it any more. Best effort: the next start does the
    /// same.
    pub(crate) fn clean_up(&self) {
        for command in self.each().unwrap_or_default() {
            Folder::clean_up(&command.folder());
        }
    }

    fn folder(&self) -> PathBuf {
        self.keep.clone().unwrap_or_else(|| {
            let name = self.title();
            PathBuf::from(format!("{name}{}", if self.quick { "-quick" } else { "" }))
        })
    }

    /// The points that will run whatever is chosen.
    fn planned(&self, sweep: &Sweep, named: &[(String, usize)], chooses: bool) -> Vec<(Phase, Vec<(String, usize)>)> {
        let mut planned = Vec::new();
        if chooses && self.phase != Some(Phase::Report) {
            planned.push((Phase::Choose, points_to_choose(sweep, named)));
        }
        if self.phase != Some(Phase::Choose) {
            let fixed = sweep.variants.iter();
            let fixed = fixed.filter_map(|variant| Some((variant.name.clone(), fixed_point(variant, named)?)));
            planned.push((Phase::Report, fixed.collect()));
        }
        planned
    }

    /// Runs the phases that are asked for. Returns their tables, and the trials of each.
    async fn phases(
        &self,
        sweep: &Sweep,
        folder: &Folder,
        named: &[(String, usize)],
        workers: &Workers,
    ) -> anyhow::Result<(Outcome, Vec<Vec<Group>>)> {
        let mut phases = Vec::new();
        let mut all = Vec::new();
        let any_open = sweep.variants.iter().any(|variant| is_open(variant, named));
        let chooses = self.phase == Some(Phase::Choose) || any_open;
        run::check(sweep, folder, &self.planned(sweep, named, chooses)).await?;
        let choice = if chooses {
            let points = points_to_choose(sweep, named);
            let groups = match self.phase {
                Some(Phase::Report) => finished(sweep, folder, &points)?,
                _ => run::run(sweep, folder, Phase::Choose, &points, workers).await?,
            };
            let outcome = PhaseOutcome::of(sweep, Phase::Choose, &groups);
            phases.push(outcome.clone());
            all.push(groups);
            Some(outcome)
        } else {
            None
        };
        if self.phase != Some(Phase::Choose) {
            let mut points = Vec::new();
            for variant in &sweep.variants {
                let name = &variant.name;
                let point = fixed_point(variant, named).or_else(|| choice.as_ref()?.chosen(name));
                let point = point.with_context(|| format!("variant `{name}`: no point has finished all its trials"))?;
                points.push((name.clone(), point));
            }
            let groups = run::run(sweep, folder, Phase::Report, &points, workers).await?;
            phases.push(PhaseOutcome::of(sweep, Phase::Report, &groups));
            all.push(groups);
        }
        let records = all.iter().flatten().flat_map(|group| &group.records);
        let mut builds: Vec<String> = records.map(|record| record.build.clone()).collect();
        builds.sort();
        builds.dedup();
        let outcome = Outcome {
            quick: sweep.quick,
            builds,
            phases,
        };
        Ok((outcome, all))
    }
}

/// The point of a variant that is reported without a choice: the one named last, or the only one.
fn fixed_point(variant: &Points, named: &[(String, usize)]) -> Option<usize> {
    let mut last = named.iter().rev();
    let named = last.find(|(name, _)| *name == variant.name).map(|(_, point)| *point);
    named.or((variant.points.len() == 1).then_some(0))
}

/// Whether a variant has several points, none of which is named.
fn is_open(variant: &Points, named: &[(String, usize)]) -> bool {
    variant.points.len() > 1 && !named.iter().any(|(name, _)| *name == variant.name)
}

/// The points of the phase `choose`: those of the baseline, and of every variant that has several and whose point is not named.
fn points_to_choose(sweep: &Sweep, named: &[(String, usize)]) -> Vec<(String, usize)> {
    let needed = sweep.variants.iter();
    let needed = needed.filter(|variant| variant.name == sweep.baseline || is_open(variant, named));
    let points = needed.flat_map(|variant| (0..variant.points.len()).map(|point| (variant.name.clone(), point)));
    points.collect()
}

/// The results of the phase `choose`, which have to be there.
fn finished(sweep: &Sweep, folder: &Folder, points: &[(String, usize)]) -> anyhow::Result<Vec<Group>> {
    let trials = run::trials(sweep, Phase::Choose, points)?;
    let groups = run::collect(sweep, folder, points, &trials)?;
    let missing: usize = groups.iter().map(|group| group.failed).sum();
    ensure!(
        missing == 0,
        "{missing} trials of the choice have no result; run `--phase choose` first, or name the points with `--point`"
    );
    Ok(groups)
}
