//! `fl-client check --dry-run`: a few steps with a trainer, without a server.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use fl_cli::out;
use fl_compress::{Layout, TensorSpec};
use fl_proto::{Length, Training};

use super::evaluate::text_of;
use crate::learner::{FitPlan, Learner as _};
use crate::trainer::{Footprint, Hello, TrainerConfig, TrainerLearner, own_run};

/// Starts the trainer of `task`, trains `steps` steps from its own first weights, evaluates, and prints what was measured.
///
/// # Errors
/// What a round would be left for.
pub(super) fn dry_run(task: &str, config: TrainerConfig, steps: u32) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut trainer = TrainerLearner::new(config)?;
    let (hello, group) = trainer.hello()?;
    let values: usize = hello.tensors.iter().filter_map(TensorSpec::values).sum();
    out::line(format_args!(
        "task {task}: ready after {:.1} s; {} tensors, {values} values{}",
        begun.elapsed().as_secs_f64(),
        hello.tensors.len(),
        if hello.evaluates { "" } else { "; does not evaluate" }
    ))?;
    let run = own_run(task, &hello)?;
    ensure!(
        !run.layout.trained().is_empty(),
        "the model has no floating-point tensor that could be trained"
    );
    trainer.join(&run)?;
    let before = first_weights(&trainer, &hello, &run.layout)?;
    trainer.load(&before)?;

    let training = Training {
        length: Length::Steps(steps),
        ..Training::default()
    };
    let begun = Instant::now();
    let fit = trainer.fit(&FitPlan::new(training, 1, 1, run.seed))?;
    let mut after = vec![0.0; run.layout.len()];
    trainer.weights(&mut after)?;
    let seconds = begun.elapsed().as_secs_f64();
    out::line(format_args!(
        "task {task}: {steps} steps in {seconds:.2} s, {:.2} steps/s; {} examples, loss {:.4}",
        f64::from(steps) / seconds,
        fit.examples,
        fit.loss
    ))?;
    if let Some(footprint) = group.and_then(Footprint::of_group) {
        out::line(format_args!(
            "task {task}: at most {} MiB in {} process(es)",
            footprint.bytes >> 20,
            footprint.processes
        ))?;
    }
    table(&run.layout, &run.aside, &before, &after)?;
    trainer.load(&after)?;
    if let Some(evaluation) = trainer.evaluate()? {
        out::line(format_args!("task {task}: {}", text_of(&evaluation)))?;
    }
    Ok(())
}

/// The trainer's own first weights, or zeros if it has none.
fn first_weights(trainer: &TrainerLearner, hello: &Hello, layout: &Arc<Layout>) -> anyhow::Result<Vec<f32>> {
    match trainer.own_weights(hello, layout, u64::MAX)? {
        Some(weights) => Ok(weights),
        None => Ok(vec![0.0; layout.len()]),
    }
}

fn table(layout: &Layout, aside: &[TensorSpec], before: &[f32], after: &[f32]) -> anyhow::Result<()> {
    let mut rows = vec![["tensor", "type", "shape", "role", "change"].map(str::to_owned)];
    for tensor in layout.tensors() {
        let range = tensor.offset..tensor.offset + tensor.len;
        let squares = after[range.clone()].iter().zip(&before[range]);
        let norm = squares.map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt();
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
    for [a, b, c, d, e] in &rows {
        let line = format!("{a:name$}  {b:dtype$}  {c:shape$}  {d:role$}  {e}");
        out::line(format_args!("{}", line.trim_end())).context("the table was not written")?;
    }
    Ok(())
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
