//! The tasks of a client.toml: learners, trainers and data.

use std::path::Path;

use fl_cli::findings::Line;

use super::disk;
use super::dry_run;
use super::limits;
use super::subject::{DryRun, Subject};
use crate::client_file::{ClientFile, LearnerEntry, TrainerEntry};
use crate::device::DeviceChoice;
use crate::named::NamedLearner;

pub(super) fn lines(subject: &Subject<'_>) -> Vec<Line> {
    let Subject { file, steps, .. } = subject;
    if file.tasks.is_empty() {
        return vec![Line::wrong(
            "tasks",
            "no [tasks.NAME]: the client could take part in nothing",
            "bind a task to a learner and data (configs/client.toml shows how)",
        )];
    }
    let mut lines = Vec::new();
    let mut largest = 0;
    for (name, entry) in &file.tasks {
        let steps = steps
            .as_ref()
            .filter(|run| run.task.as_ref().is_none_or(|task| task == name));
        let checked = match (&entry.learner, file.named(name)) {
            (LearnerEntry::Trainer(trainer), _) => self::trainer(file, name, trainer, steps),
            (_, Some(learner)) => named(subject, name, learner.as_ref(), steps, &mut largest),
            (LearnerEntry::Named(_), None) => continue,
        };
        let failed = |error: anyhow::Error| vec![Line::failed(format!("task {name}"), format!("{error:#}"))];
        lines.extend(checked.unwrap_or_else(failed));
    }
    if largest > 0 {
        lines.push(disk::room("disk", &file.config.state, largest));
    }
    lines
}

fn named(
    subject: &Subject<'_>,
    name: &str,
    learner: &dyn NamedLearner,
    steps: Option<&DryRun>,
    largest: &mut u64,
) -> anyhow::Result<Vec<Line>> {
    let file = subject.file;
    // Another group reports a device that cannot be used.
    let device = subject.learners.device(file.device);
    let device = device.map_or(DeviceChoice::Cpu, |_| file.device);
    let mut described = learner.describe(device, &format!("--config {} --task {name}", subject.path.display()))?;
    let parameters = described.learner.layout().len() as u64;
    *largest = (*largest).max(parameters);
    let line = Line::good(format!("task {name}"), described.text);
    let mut lines = vec![line.with_details(described.details)];
    lines.extend(limits::lines(&file.config.limits, parameters));
    if let Some(steps) = steps {
        lines.extend(dry_run::named(
            name,
            described.learner.as_mut(),
            described.classes,
            steps,
        )?);
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
