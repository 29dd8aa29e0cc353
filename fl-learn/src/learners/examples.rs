//! Between a client's examples and a model: the model's input, its loss and its evaluation.

use anyhow::{bail, ensure};
use candle_core::{Device, Result, Tensor};
use fl_proto::{Metric, Metrics};

use super::model::Model;
use super::out_of_memory::Pieces;
use crate::data::{Examples, Input, Target, Targets, Values};
use crate::ops::{self, IGNORED, Tape, cross_entropy, squared_error};
use fl_client::{Evaluation, Progress};

/// Most examples of a batch of an evaluation.
const MOST_EXAMPLES: usize = 256;
/// Most values that a model returns for such a batch, unless one example has more: 16 MiB.
const MOST_LOGITS: usize = 1 << 22;

/// Some examples as a model takes them.
pub(super) struct ModelBatch {
    /// `[batch, channels, height, width]` f32 on the device of the model, or `[batch, tokens]` u32 on the CPU, where ids are compared
    /// with the vocabulary: read back from a GPU, they would be waited for.
    pub(super) x: Tensor,
    targets: Targets,
}

impl ModelBatch {
    pub(super) fn of(examples: &Examples, positions: &[u32], device: &Device) -> Result<Self> {
        let batch = examples.batch(positions);
        let count = positions.len();
        let [channels, height, width] = examples.input().shape;
        let x = match batch.values {
            Values::Numbers(values) => Tensor::from_vec(values, (count, channels, height, width), device)?,
            Values::Tokens(tokens) => Tensor::from_vec(tokens, (count, width), &Device::Cpu)?,
        };
        Ok(Self {
            x,
            targets: batch.targets,
        })
    }

    /// Mean loss over the targets, a scalar: cross-entropy in nats of classes and tokens, squared error of numbers.
    /// Shapes: `logits: [batch, classes]`, `[batch * tokens, vocabulary]` or `[batch, count]`.
    pub(super) fn loss(&self, tape: &mut Tape, logits: &Tensor) -> Result<Tensor> {
        match &self.targets {
            Targets::Classes(labels) => cross_entropy(tape, logits, labels),
            Targets::Numbers(numbers) => squared_error(tape, logits, numbers),
        }
    }

    pub(super) fn loss_of(&self, tape: &mut Tape, model: &dyn Model) -> Result<Tensor> {
        match &self.targets {
            Targets::Classes(labels) => model.cross_entropy(tape, &self.x, labels),
            Targets::Numbers(_) => {
                let predictions = model.forward(tape, &self.x)?;
                self.loss(tape, &predictions)
            }
        }
    }

    /// Number of targets over which the loss is a mean: examples, or tokens of a text.
    pub(super) fn targets(&self) -> usize {
        match &self.targets {
            Targets::Classes(labels) => labels.iter().filter(|&&label| label != IGNORED).count(),
            Targets::Numbers(_) => self.x.dims().first().copied().unwrap_or(0),
        }
    }
}

/// Evaluates `model` on `examples`; `None` if there are none. The loss of a text is the mean over its tokens, so that
/// its exponential is the perplexity.
pub(super) fn evaluate(
    model: &dyn Model,
    examples: &Examples,
    device: &Device,
    progress: &Progress,
) -> anyhow::Result<Option<Evaluation>> {
    if examples.is_empty() {
        return Ok(None);
    }
    let positions: Vec<u32> = (0..examples.len() as u32).collect();
    let mut pieces = Pieces::new(at_once(examples.input()), "evaluation");
    let mut sums = Sums::default();
    let mut rest = positions.as_slice();
    while !rest.is_empty() {
        if progress.stopped() {
            bail!("the evaluation was stopped");
        }
        let (batch, after) = pieces.first(rest, |positions| {
            Ok(Sums::of(model, &ModelBatch::of(examples, positions, device)?)?)
        })?;
        sums.add(&batch);
        rest = after;
    }
    sums.evaluation(examples.input().target).map(Some)
}

/// Examples of one batch of an evaluation.
fn at_once(input: Input) -> usize {
    let predictions = if input.target == Target::NextToken {
        input.len()
    } else {
        1
    };
    let logits = predictions.saturating_mul(input.classes).max(1);
    (MOST_LOGITS / logits).clamp(1, MOST_EXAMPLES)
}

/// What is summed over the batches of an evaluation.
#[derive(Default)]
struct Sums {
    targets: u64,
    loss: f64,
    correct: u64,
    /// Numbers that were predicted, and the sum of the absolute differences.
    numbers: u64,
    absolute: f64,
}

impl Sums {
    fn of(model: &dyn Model, batch: &ModelBatch) -> Result<Self> {
        let mut tape = Tape::default();
        let logits = model.forward(&mut tape, &batch.x)?;
        let mut sums = Self {
            targets: batch.targets() as u64,
            loss: f64::from(batch.loss(&mut tape, &logits)?.to_scalar::<f32>()?) * batch.targets() as f64,
            ..Self::default()
        };
        match &batch.targets {
            Targets::Classes(labels) => {
                let answers = ops::predicted_classes(&logits)?;
                let right = answers.iter().zip(labels).filter(|(answer, label)| answer == label);
                sums.correct = right.count() as u64;
            }
            Targets::Numbers(numbers) => {
                let answers = logits.flatten_all()?.to_vec1::<f32>()?;
                let differences = answers.iter().zip(numbers).map(|(p, t)| f64::from((p - t).abs()));
                sums.absolute = differences.sum::<f64>();
                sums.numbers = numbers.len() as u64;
            }
        }
        Ok(sums)
    }

    fn add(&mut self, batch: &Self) {
        self.targets += batch.targets;
        self.loss += batch.loss;
        self.correct += batch.correct;
        self.numbers += batch.numbers;
        self.absolute += batch.absolute;
    }

    fn evaluation(self, target: Target) -> anyhow::Result<Evaluation> {
        ensure!(self.targets > 0, "the held-out examples have nothing to predict");
        let weight = self.targets as f64;
        let loss = self.loss / weight;
        let mut metrics = Metrics::new();
        let mut add = |name: &str, value: f64| {
            if value.is_finite() {
                metrics.add(name, Metric { value, weight })
            } else {
                Ok(())
            }
        };
        match target {
            Target::Class => {}
            Target::NextToken => add("token_accuracy", self.correct as f64 / weight)?,
            Target::Numbers => {
                add("rmse", loss.sqrt())?;
                add("mae", self.absolute / self.numbers.max(1) as f64)?;
            }
        }
        Ok(Evaluation {
            examples: self.targets,
            loss,
            correct: (target == Target::Class).then_some(self.correct as f64),
            language: target == Target::NextToken,
            metrics,
        })
    }
}

/// Data marks what the losses ignore.
const _: () = assert!(crate::data::IGNORED == IGNORED);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fl_proto::{Length, Training};

    use super::super::{LearnerChoice, TrainedModel, find};
    use super::*;
    use crate::data::{ClientData, Dataset, Features, Rng, Tokens};
    use fl_client::DeviceChoice;
    use fl_client::{EvaluatePlan, FitPlan, Learner as _};

    const VOCABULARY: usize = 5;

    /// After token t always comes t + 1, except that after the last token comes 0.
    fn text() -> Examples {
        let mut tokens = Tokens::new(VOCABULARY);
        (0..23).for_each(|at| tokens.push(at % VOCABULARY as u32).unwrap());
        let pieces = vec![1..5, 5..9, 9..13, 13..17, 17..20];
        Examples::all(Arc::new(
            Dataset::of_text(Features::Text { tokens, pieces }, 4).unwrap(),
        ))
    }

    /// Gives the logit `sure` to the token after the given one, and 0 to the others.
    #[derive(Debug)]
    struct Successor {
        sure: f32,
    }

    impl Model for Successor {
        fn forward(&self, _: &mut Tape, x: &Tensor) -> Result<Tensor> {
            let tokens = x.flatten_all()?.to_vec1::<u32>()?;
            let logits = tokens.iter().flat_map(|&token| {
                let mut row = [0.0; VOCABULARY];
                row[(token as usize + 1) % VOCABULARY] = self.sure;
                row
            });
            Tensor::from_iter(logits, x.device())?.reshape((tokens.len(), VOCABULARY))
        }
    }

    #[test]
    fn the_loss_of_a_text_is_the_mean_over_its_tokens() {
        for (sure, accuracy) in [(1.0f32, 1.0), (-1.0, 0.0)] {
            let evaluation = evaluate(&Successor { sure }, &text(), &Device::Cpu, &Progress::default());
            let evaluation = evaluation.unwrap().unwrap();
            let sure = f64::from(sure);
            let loss = (sure.exp() + 4.0).ln() - sure;
            assert_eq!((evaluation.examples, evaluation.correct), (19, None));
            assert!((evaluation.loss - loss).abs() < 1e-6, "{evaluation:?}");
            let metric = evaluation.metrics.get("token_accuracy").unwrap();
            assert_eq!((metric.value, metric.weight), (accuracy, 19.0));
        }
    }

    #[test]
    fn an_evaluation_stops_when_told_and_needs_examples() {
        let progress = Progress::default();
        let none = Examples::new(
            Arc::new(Dataset::new(Features::Floats(vec![]), vec![], find("mlp").unwrap().input.unwrap()).unwrap()),
            vec![],
        );
        let model = Successor { sure: 1.0 };
        assert!(
            evaluate(&model, &none.unwrap(), &Device::Cpu, &progress)
                .unwrap()
                .is_none()
        );
        progress.stop();
        let stopped = evaluate(&model, &text(), &Device::Cpu, &progress).unwrap_err();
        assert!(stopped.to_string().contains("stopped"));
    }

    #[test]
    fn batches_of_an_evaluation_are_bounded_by_what_the_model_returns() {
        assert_eq!(at_once(Input::of_classes([3, 32, 32], 256)), 256);
        assert_eq!(at_once(Input::of_text(64, 65)), 256);
        assert_eq!(at_once(Input::of_text(64, 33_278)), 1);
        assert_eq!(at_once(Input::of_text(35, 10_000)), 11);
        assert_eq!(at_once(Input::of_text(65_535, 1 << 20)), 1);
    }

    /// `y = [sum of x, -x0]` of vectors of three numbers.
    fn sums(count: usize) -> Examples {
        let mut rng = Rng::new(4);
        let x: Vec<f32> = (0..count * 3).map(|_| rng.between(-1.0, 1.0) as f32).collect();
        let y = x.chunks(3).flat_map(|x| [x.iter().sum(), -x[0]]).collect();
        let input = Input::of_numbers([1, 1, 3], 2);
        Examples::all(Arc::new(Dataset::of_numbers(Features::Floats(x), y, input).unwrap()))
    }

    #[test]
    fn numbers_are_learned_and_their_errors_measured() {
        let data = ClientData {
            train: sums(200),
            test: sums(60),
        };
        let mut learner =
            TrainedModel::new(find("mlp").unwrap(), &toml::Table::new(), DeviceChoice::Cpu, data).unwrap();
        // Zeros predict zeros.
        let zero = learner.evaluate().unwrap().unwrap();
        let (positions, test) = ((0..60).collect::<Vec<u32>>(), sums(60));
        let numbers = test.batch(&positions).targets.numbers().to_vec();
        let mean = |of: fn(f64) -> f64| numbers.iter().map(|&y| of(f64::from(y))).sum::<f64>() / 120.0;
        assert_eq!((zero.examples, zero.correct), (60, None));
        assert!((zero.loss - mean(|y| y * y)).abs() < 1e-6, "{zero:?}");
        assert!((zero.metrics.get("rmse").unwrap().value - zero.loss.sqrt()).abs() < 1e-9);
        assert!((zero.metrics.get("mae").unwrap().value - mean(f64::abs)).abs() < 1e-6);
        let weights = learner.initial(3, &Arc::default()).unwrap();
        learner.load(&weights).unwrap();
        let training = Training {
            length: Length::Epochs(30),
            ..Training::default()
        };
        let fit = learner.fit(&FitPlan::new(training, 1, 1, 5)).unwrap();
        let after = learner.evaluate_with(&EvaluatePlan::default()).unwrap().unwrap();
        assert!(
            fit.loss.is_finite() && after.loss < 0.05 * zero.loss,
            "{fit:?} {after:?}"
        );
    }

    #[test]
    fn models_of_texts_learn_what_follows() {
        let mut tokens = Tokens::new(VOCABULARY);
        (0..601).for_each(|at| tokens.push(at * at % VOCABULARY as u32).unwrap());
        // The last example is short.
        let pieces = (0..75)
            .map(|at| at * 8 + 1..at * 8 + if at == 74 { 6 } else { 9 })
            .collect();
        let set = Arc::new(Dataset::of_text(Features::Text { tokens, pieces }, 8).unwrap());
        let all = Examples::all(set);
        for learner in [
            "{ name = 'lstm', layers = 1, hidden = 16 }",
            "{ name = 'transformer', layers = 1, width = 16, heads = 2 }",
            "{ name = 'transformer', style = 'llama', layers = 1, width = 16, heads = 2 }",
        ] {
            let choice: LearnerChoice = learner.parse().unwrap();
            let data = ClientData {
                train: all.clone(),
                test: all.clone(),
            };
            let mut model = choice.build(DeviceChoice::Cpu, data).unwrap();
            let weights = model.initial(3, &Arc::default()).unwrap();
            model.load(&weights).unwrap();
            let before = model.evaluate().unwrap().unwrap();
            let training = Training {
                batch_size: 5,
                learning_rate: 0.2,
                momentum: 0.9,
                length: Length::Epochs(5),
                ..Training::default()
            };
            model.fit(&FitPlan::new(training, 1, 1, 5)).unwrap();
            let after = model.evaluate().unwrap().unwrap();
            assert_eq!((after.examples, after.correct), (597, None));
            assert!(after.loss < 0.5 * before.loss, "{learner}: {before:?} {after:?}");
        }
    }
}
