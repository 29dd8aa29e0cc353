//! The tasks of a client.toml: learners, trainers and data.

use std::path::Path;

use fl_cli::findings::Line;

use super::disk;
use super::dry_run;
use super::examples::examples;
use super::limits;
use super::subject::{DryRun, Subject};
use crate::client_file::{ClientFile, LearnerEntry, TaskEntry, TrainerEntry};

pub(super) fn lines(subject: &Subject<'_>) -> Vec<Line> {
    let Subject { file, path, steps, .. } = subject;
    if file.tasks.is_empty() {
        return vec![Line::wrong(
            "tasks",
            "no [tasks.NAME]: the client could take part in nothing",
            "bind a task to a learner and data (configs/client.toml shows how)",
        )];
    }
    let (mut lines, mut largest) = (Vec::new(), 0);
    for (name, entry) in &file.tasks {
        let is_for = |run: &&DryRun| run.task.as_ref().is_none_or(|task| task == name);
        let steps = steps.as_ref().filter(is_for);
        let checked = match &entry.learner {
            LearnerEntry::BuiltIn(_) => built_in(file, path, name, entry, steps, &mut largest),
            LearnerEntry::Trainer(trainer) => self::trainer(file, name, trainer, steps),
        };
        let failed = |error: anyhow::Error| vec![Line::failed(format!("task {name}"), format!("{error:#}"))];
        lines.extend(checked.unwrap_or_else(failed));
    }
    if largest > 0 {
        lines.push(disk::room("disk", &file.config.state, largest));
    }
    lines
}

fn built_in(
    file: &ClientFile,
    path: &Path,
    name: &str,
    entry: &TaskEntry,
    steps: Option<&DryRun>,
    largest: &mut u64,
) -> anyhow::Result<Vec<Line>> {
    let Some((learner, data)) = entry.built_in() else {
        return Ok(Vec::new());
    };
    // Another group reports a device that cannot be used.
    let device = file
        .device
        .found()
        .map_or(crate::learners::DeviceChoice::Cpu, |_| file.device);
    let data = data.load()?;
    let mut built = learner.build(device, data.clone())?;
    let parameters = built.layout().len();
    *largest = (*largest).max(parameters as u64);
    let (train, test) = (data.train.len(), data.test.len());
    let text = format!("{learner}, {parameters} parameters; {train} examples to train on, {test} held out");
    let options = format!("--config {} --task {name}", path.display());
    let line = Line::good(format!("task {name}"), text).with_details(examples(learner, &data, &options));
    let mut lines = vec![line];
    lines.extend(limits::lines(&file.config.limits, parameters as u64));
    if let Some(steps) = steps {
        lines.push(dry_run::built_in(name, built.as_mut(), data.train.input(), steps)?);
    }
    Ok(lines)
}

fn trainer(file: &ClientFile, name: &str, trainer: &TrainerEntry, steps: Option<&DryRun>) -> anyhow::Result<Vec<Line>> {
    let text = match (&trainer.command, steps) {
        (Some(_), Some(steps)) => return dry_run::trainer(name, file.trainer_aside(name)?, steps),
        (Some(command), None) => format!("trainer `{}`; `--dry-run 3` starts it", command.join(" ")),
        (None, _) => format!(
            "a trainer attaches to {}; a dry run needs `command`",
            file.config
                .state
                .join(trainer.attach.as_deref().unwrap_or(Path::new("")))
                .display()
        ),
    };
    Ok(vec![Line::good(format!("task {name}"), text)])
}
