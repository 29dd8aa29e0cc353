//! `fl-client check --dry-run`: a few steps without a server.

use std::sync::Arc;
use std::time::Instant;

use anyhow::ensure;
use fl_cli::findings::Line;
use fl_compress::{Layout, TensorSpec, doubtful};
use fl_proto::{Length, Training};

use crate::cli::evaluate::text_of;
use crate::learner::{Fit, FitPlan, Learner};
use crate::reached::expect_change;
use crate::trainer::{Footprint, Hello, TrainerConfig, TrainerLearner, own_run};

/// Seed of the first weights and of the steps.
const SEED: u64 = 42;

/// Trains `steps` steps with a built-in learner from its own first weights.
///
/// # Errors
/// What a round would be left for.
pub(super) fn built_in(task: &str, learner: &mut dyn Learner, steps: u32) -> anyhow::Result<Line> {
    let first = learner.initial(SEED, &Arc::default());
    learner.load(&first.unwrap_or_else(|| vec![0.0; learner.layout().len()]))?;
    let begun = Instant::now();
    let fit = learner.fit(&plan(steps, SEED))?;
    Ok(trained(task, steps, begun.elapsed().as_secs_f64(), &fit))
}

/// Starts the trainer of `task`, trains `steps` steps from its own first weights, and evaluates.
///
/// # Errors
/// What a round would be left for.
pub(super) fn trainer(task: &str, config: TrainerConfig, steps: u32) -> anyhow::Result<Vec<Line>> {
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
    let run = own_run(task, &hello)?;
    ensure!(
        !run.layout.trained().is_empty(),
        "the model has no floating-point tensor that could be trained"
    );
    trainer.join(&run)?;
    let before = first_weights(&trainer, &hello, &run.layout)?;
    trainer.load(&before)?;
    let begun = Instant::now();
    let plan = plan(steps, run.seed);
    let fit = trainer.fit(&plan)?;
    let mut after = vec![0.0; run.layout.len()];
    trainer.weights(&mut after)?;
    let seconds = begun.elapsed().as_secs_f64();
    let pairs = after.iter().zip(&before);
    let change: Vec<f32> = pairs.map(|(after, before)| after - before).collect();
    let unchanged = expect_change(&run.layout, (&before, &change), &mut 0.0, &fit, &plan)?;
    lines.push(trained(task, steps, seconds, &fit).with_details(table(&run.layout, &run.aside, &change)));
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
    if let Some(evaluation) = trainer.evaluate()? {
        lines.push(Line::good(&check, text_of(&evaluation)));
    }
    Ok(lines)
}

fn plan(steps: u32, seed: u64) -> FitPlan {
    let training = Training {
        length: Length::Steps(steps),
        ..Training::default()
    };
    FitPlan::new(training, 1, 1, seed)
}

fn trained(task: &str, steps: u32, seconds: f64, fit: &Fit) -> Line {
    let text = format!(
        "{steps} steps in {seconds:.2} s, {:.2} steps/s; {} examples, loss {:.4}",
        f64::from(steps) / seconds,
        fit.examples,
        fit.loss
    );
    Line::good(format!("task {task}"), text)
}

/// The trainer's own first weights, or zeros if it has none.
fn first_weights(trainer: &TrainerLearner, hello: &Hello, layout: &Arc<Layout>) -> anyhow::Result<Vec<f32>> {
    match trainer.own_weights(hello, layout, u64::MAX)? {
        Some(weights) => Ok(weights),
        None => Ok(vec![0.0; layout.len()]),
    }
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
        rows.push(row(
            &tensor.name,
            tensor.dtype.name(),
            &tensor.shape,
            tensor.role.name(),
            change,
        ));
    }
    for tensor in aside {
        rows.push(row(
            &tensor.name,
            tensor.dtype.name(),
            &tensor.shape,
            tensor.role.name(),
            String::new(),
        ));
    }
    let width = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or(0);
    let [name, dtype, shape, role] = [0, 1, 2, 3].map(width);
    let line = |[a, b, c, d, e]: &[String; 5]| format!("{a:name$}  {b:dtype$}  {c:shape$}  {d:role$}  {e}");
    rows.iter().map(|row| line(row).trim_end().to_owned()).collect()
}

fn row(name: &str, dtype: &str, shape: &[usize], role: &str, change: String) -> [String; 5] {
    [
        name.to_owned(),
        dtype.to_owned(),
        format!("{shape:?}"),
        role.to_owned(),
        change,
    ]
}
