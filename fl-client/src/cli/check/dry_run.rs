//! `fl-client check --dry-run`: a few steps without a server.

use std::sync::Arc;
use std::time::Instant;

use anyhow::ensure;
use fl_cli::findings::{Line, aligned};
use fl_compress::{Layout, TensorSpec, doubtful};
use fl_proto::{Length, TrainTable, Training};

use super::subject::DryRun;
use crate::cli::evaluate::text_of;
use crate::learner::{Fit, FitPlan, Learner};
use crate::reached::expect_change;
use crate::trainer::{Footprint, TrainerConfig, TrainerLearner, own_run};

/// Seed of the first weights and of the steps.
const SEED: u64 = 42;

/// Trains `steps` steps with a named learner from its own first weights. `classes`: among how many it chooses.
///
/// # Errors
/// What a round would be left for.
pub(super) fn named(
    task: &str,
    learner: &mut dyn Learner,
    classes: Option<usize>,
    dry_run: &DryRun,
) -> anyhow::Result<Vec<Line>> {
    let first = learner.initial(SEED, &Arc::default());
    learner.load(&first.unwrap_or_else(|| vec![0.0; learner.layout().len()]))?;
    let doubts = learner.doubts(SEED)?.into_iter();
    let doubts = doubts.map(|doubt| {
        Line::warning(
            format!("task {task}"),
            doubt,
            "training would go astray: mend the model",
        )
    });
    let begun = Instant::now();
    let fit = learner.fit(&plan(dry_run, SEED))?;
    let line = trained(task, dry_run, begun.elapsed().as_secs_f64(), &fit);
    Ok(std::iter::once(judged(line, fit.loss, classes)).chain(doubts).collect())
}

/// Starts the trainer of `task`, trains `steps` steps from its own first weights, and evaluates.
///
/// # Errors
/// What a round would be left for.
pub(super) fn trainer(task: &str, config: TrainerConfig, dry_run: &DryRun) -> anyhow::Result<Vec<Line>> {
    let check = format!("task {task}");
    let begun = Instant::now();
    let mut trainer = TrainerLearner::new(config)?;
    let (hello, group) = trainer.hello()?;
    let values: usize = hello.tensors.iter().filter_map(TensorSpec::values).sum();
    let mut lines = vec![Line::good(
        &check,
        format!(
            "ready after {:.1} s; {} tensors, {values} values{}",
            begun.elapsed().as_secs_f64(),
            hello.tensors.len(),
            if hello.evaluates { "" } else { "; does not evaluate" }
        ),
    )];
    let run = own_run(task, &hello, |_| true)?;
    ensure!(
        !run.layout.trained().is_empty(),
        "the model has no floating-point tensor that could be trained"
    );
    trainer.join(&run)?;
    let own = trainer.own_weights(&hello, &run.layout, u64::MAX)?;
    let before = own.unwrap_or_else(|| vec![0.0; run.layout.len()]);
    trainer.load(&before)?;
    let first = trainer.evaluate()?;
    trainer.load(&before)?;
    let begun = Instant::now();
    let plan = plan(dry_run, run.seed);
    let fit = trainer.fit(&plan)?;
    let mut after = vec![0.0; run.layout.len()];
    trainer.weights(&mut after)?;
    let seconds = begun.elapsed().as_secs_f64();
    let pairs = after.iter().zip(&before);
    let change: Vec<f32> = pairs.map(|(after, before)| after - before).collect();
    let unchanged = expect_change(&run.layout, (&before, &change), &mut 0.0, &fit, &plan)?;
    lines.push(trained(task, dry_run, seconds, &fit).with_details(table(&run.layout, &run.aside, &change)));
    let doubtful = doubtful(&run.layout, &hello.kinds);
    if !doubtful.is_empty() {
        let todo = "name statistics in `buffer`, and constants of this client in `local`, of [model] in run.toml";
        let text = format!("trained tensors that may be statistics: {doubtful}");
        lines.push(Line::warning(&check, text, todo));
    }
    if let Some(why) = unchanged {
        let todo = "see whether the training should have changed the model";
        lines.push(Line::warning(&check, format!("no trained value changed: {why}"), todo));
    }
    if let Some(footprint) = group.and_then(Footprint::of_group) {
        let (mib, processes) = (footprint.bytes >> 20, footprint.processes);
        lines.push(Line::good(
            &check,
            format!("at most {mib} MiB in {processes} process(es)"),
        ));
    }
    trainer.load(&after)?;
    if let Some((evaluation, first)) = trainer.evaluate()?.zip(first) {
        let text = format!("{}; before the steps: loss {:.4}", text_of(&evaluation), first.loss);
        let rise = evaluation.loss - first.loss;
        lines.push(match rise > 0.5 * first.loss.abs() {
            true => Line::warning(&check, format!("the loss rises: {text}"), DIVERGES),
            false => Line::good(&check, text),
        });
    }
    Ok(lines)
}

const DIVERGES: &str =
    "lower `learning_rate` in [train] of run.toml, or scale the data; `--run run.toml` takes the run's settings";

/// A line about a training, which warns if its loss is more than twice that of a constant guess.
pub(super) fn judged(line: Line, loss: f64, classes: Option<usize>) -> Line {
    match classes.map(|classes| (classes, (classes as f64).ln())) {
        Some((classes, guess)) if classes > 1 && loss > 2.0 * guess => {
            let text = format!("{}; a constant guess among {classes} has {guess:.4}", line.text);
            Line::warning(line.check, text, DIVERGES)
        }
        _ => line,
    }
}

fn plan(dry_run: &DryRun, seed: u64) -> FitPlan {
    let TrainTable { training, extra } = dry_run.train.clone();
    let training = Training {
        length: Length::Steps(dry_run.steps),
        ..training
    };
    FitPlan {
        extra,
        ..FitPlan::new(training, 1, 1, seed)
    }
}

fn trained(task: &str, dry_run: &DryRun, seconds: f64, fit: &Fit) -> Line {
    let steps = dry_run.steps;
    let settings = dry_run.task.as_ref().map_or("the defaults of", |_| "the run's");
    let text = format!(
        "{steps} steps in {seconds:.2} s, {:.2} steps/s; {} examples, loss {:.4}, with {settings} [train]",
        f64::from(steps) / seconds,
        fit.examples,
        fit.loss
    );
    Line::good(format!("task {task}"), text)
}

fn table(layout: &Layout, aside: &[TensorSpec], change: &[f32]) -> Vec<String> {
    let mut rows = vec![["tensor", "type", "shape", "role", "change"].map(str::to_owned)];
    for tensor in layout.tensors() {
        let range = tensor.offset..tensor.offset + tensor.len;
        let squares = change[range].iter().map(|value| f64::from(*value).powi(2));
        let norm = squares.sum::<f64>().sqrt();
        let change = if norm > 0.0 {
            format!("{norm:.2e}")
        } else {
            "none".to_owned()
        };
        rows.push(row(&tensor.into(), change));
    }
    rows.extend(aside.iter().map(|tensor| row(tensor, String::new())));
    aligned(&rows, &[])
}

fn row(tensor: &TensorSpec, change: String) -> [String; 5] {
    let dtype = tensor.dtype.name().to_owned();
    let role = tensor.role.name().to_owned();
    [tensor.name.clone(), dtype, format!("{:?}", tensor.shape), role, change]
}
