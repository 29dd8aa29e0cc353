//! The command `fl-sim sweep`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use fl_cli::out;
use fl_client::DeviceChoice;
use fl_client::Error;
use serde::Serialize;

use super::file::{Points, Sweep};
use super::files;
use super::folder::Folder;
use super::markdown;
use super::outcome::{Outcome, PhaseOutcome};
use super::phase::Phase;
use super::run::{self, Workers, named_point};
use super::several::{self, Named};
use super::summary::Group;
use super::text::table;
use super::trial::Trial;

/// Options of `fl-sim sweep`.
#[derive(Debug, Clone, Args)]
pub struct SweepCommand {
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

/// What a command found.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Swept {
    /// The tables of one sweep.
    One(Box<Outcome>),
    /// Those of the sweeps of a folder.
    Several(Vec<Named>),
}

impl SweepCommand {
    /// Runs the sweep, or those of the folder, and returns the tables, as data and as text.
    ///
    /// # Errors
    /// If file or folder cannot be used, or a trial that is needed fails.
    pub async fn run(&self) -> anyhow::Result<(Swept, String)> {
        if !self.file.is_dir() {
            let (outcome, text) = Box::pin(self.run_one()).await?;
            return Ok((Swept::One(Box::new(outcome)), text));
        }
        if let Some(point) = self.point.first() {
            let why = format!("`--point {point}`: name the sweep's file instead of the folder");
            return Err(Error::Config(why).into());
        }
        self.run_each().await
    }

    /// Runs the sweeps of the folder, one after another. All files are read before the first trial. A sweep that fails stops
    /// no other.
    async fn run_each(&self) -> anyhow::Result<(Swept, String)> {
        let commands = self.each()?;
        for command in &commands {
            command.read()?;
        }
        let (mut found, mut failed) = (Vec::new(), Vec::new());
        for command in &commands {
            let sweep = command.title();
            out::note(format_args!("sweep {sweep}"));
            match Box::pin(command.run_one()).await {
                Ok((outcome, text)) => {
                    out::note(format_args!("{text}\n"));
                    found.push(Named { sweep, outcome });
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
        Ok((Swept::Several(found), text))
    }

    /// A command for each sweep of the folder, or this one.
    fn each(&self) -> anyhow::Result<Vec<Self>> {
        if !self.file.is_dir() {
            return Ok(vec![self.clone()]);
        }
        let own = |file: PathBuf| {
            let one = Self {
                file,
                keep: None,
                ..self.clone()
            };
            let keep = self.keep.as_ref().map(|keep| keep.join(one.folder()));
            Self { keep, ..one }
        };
        Ok(several::files(&self.file)?.into_iter().map(own).collect())
    }

    /// Reads the file: its sweep and its text.
    fn read(&self) -> anyhow::Result<(Sweep, String)> {
        let wrong = |why: String| Error::Config(format!("{}: {why}", self.file.display()));
        let text = std::fs::read_to_string(&self.file).map_err(|e| wrong(format!("cannot read: {e}")))?;
        let base = self.file.parent().unwrap_or(Path::new("."));
        let sweep = Sweep::from_toml(&text, base, self.quick).map_err(|e| wrong(format!("{e:#}")))?;
        if self.phase == Some(Phase::Choose) && sweep.choose.is_empty() {
            return Err(wrong("`choose` is empty: list the seeds to choose on".into()).into());
        }
        Ok((sweep, text))
    }

    /// The name of the sweep.
    fn title(&self) -> String {
        self.file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Runs the sweep of one file.
    ///
    /// # Errors
    /// As [`SweepCommand::run`].
    async fn run_one(&self) -> anyhow::Result<(Outcome, String)> {
        let wrong = |why: String| Error::Config(format!("{}: {why}", self.file.display()));
        let (sweep, text) = self.read()?;
        let named: anyhow::Result<Vec<(String, usize)>> =
            self.point.iter().map(|text| named_point(&sweep, text)).collect();
        let named = named.map_err(|e| wrong(format!("{e:#}")))?;
        let folder = Folder::open(&self.folder(), &sweep, &text)?;
        let workers = Workers {
            jobs: self.jobs.map_or_else(crate::demo::cores, usize::from).max(1),
            device: self.device,
        };
        let done = self.phases(&sweep, &folder, &named, &workers).await;
        let (outcome, groups) = done?;
        let title = self.title();
        files::write(&folder, &title, &outcome, &groups)?;
        if let Some(page) = &self.page {
            self.write_page(page, &title, &outcome)?;
        }
        let is_reported = |phase: &&PhaseOutcome| phase.phase == Phase::Report;
        let rows = outcome.phases.iter().filter(is_reported).flat_map(|phase| &phase.rows);
        let failed: usize = rows.map(|row| row.failed).sum();
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

    /// Puts the section of this sweep into a Markdown file.
    fn write_page(&self, page: &Path, name: &str, outcome: &Outcome) -> anyhow::Result<()> {
        let wrong = |why: String| Error::Config(format!("{}: {why}", page.display()));
        let before = match std::fs::read_to_string(page) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(wrong(format!("cannot read: {error}")).into()),
        };
        let mut command = format!("fl-sim sweep {}", self.file.display());
        let options = [
            ("--quick", self.quick),
            ("--phase choose", self.phase == Some(Phase::Choose)),
        ];
        let points = self.point.iter().map(|point| format!("--point {point}"));
        let options = options
            .into_iter()
            .filter(|(_, is_set)| *is_set)
            .map(|(option, _)| option.to_owned());
        for option in options.chain(points) {
            command.extend([" ", &option]);
        }
        let section = markdown::section(name, &command, &self.note, outcome);
        let after = markdown::place(&before, name, &section).map_err(|e| wrong(format!("{e:#}")))?;
        std::fs::write(page, after).with_context(|| format!("write {}", page.display()))
    }

    /// Deletes what trials at work have left, once nothing writes to it any more. Best effort: the next start does the
    /// same.
    pub fn clean_up(&self) {
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
        let open = |name: &str| !named.iter().any(|(variant, _)| variant == name);
        let several = |name: &str| sweep.points(name).len() > 1 && open(name);
        let (mut phases, mut all) = (Vec::new(), Vec::new());
        let chooses = self.phase == Some(Phase::Choose) || sweep.variants.iter().any(|variant| several(&variant.name));
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
                let chosen = || choice.as_ref().and_then(|choice| choice.chosen(name));
                let point = fixed_point(variant, named).or_else(chosen);
                let point = point.with_context(|| format!("variant `{name}`: no point has finished all its trials"))?;
                points.push((name.clone(), point));
            }
            let groups = run::run(sweep, folder, Phase::Report, &points, workers).await?;
            phases.push(PhaseOutcome::of(sweep, Phase::Report, &groups));
            all.push(groups);
        }
        let mut builds: Vec<String> = all
            .iter()
            .flatten()
            .flat_map(|group| &group.records)
            .map(|record| record.build.clone())
            .collect();
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

/// The points of the phase `choose`: those of the baseline, and of every variant that has several and whose point is not named.
fn points_to_choose(sweep: &Sweep, named: &[(String, usize)]) -> Vec<(String, usize)> {
    let is_open = |name: &str| !named.iter().any(|(variant, _)| variant == name);
    let needed = sweep
        .variants
        .iter()
        .filter(|variant| variant.name == sweep.baseline || variant.points.len() > 1 && is_open(&variant.name));
    let points = needed.flat_map(|variant| (0..variant.points.len()).map(|point| (variant.name.clone(), point)));
    points.collect()
}

/// The results of the phase `choose`, which have to be there.
fn finished(sweep: &Sweep, folder: &Folder, points: &[(String, usize)]) -> anyhow::Result<Vec<Group>> {
    let trials = points.iter().flat_map(|(variant, point)| {
        let seeds = sweep.seeds(Phase::Choose);
        seeds
            .iter()
            .map(move |&seed| Trial::new(sweep, Phase::Choose, variant, *point, seed))
    });
    let trials: Vec<Trial> = trials.collect::<anyhow::Result<_>>()?;
    let groups = run::collect(sweep, folder, points, &trials)?;
    let missing: usize = groups.iter().map(|group| group.failed).sum();
    ensure!(
        missing == 0,
        "{missing} trials of the choice have no result; run `--phase choose` first, or name the points with `--point`"
    );
    Ok(groups)
}
