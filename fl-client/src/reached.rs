//! Whether a training reached the model that the learner was given. A framework that trains a copy returns the loaded weights
//! in every round: without this check, such rounds look like good ones.

use fl_compress::{Dtype, Layout, Role};

use crate::learner::{Fit, FitPlan};

/// Changes of this share of the largest weight are a few steps of `f32` from none at all.
const NEARLY_NONE: f32 = 2e-6;

/// Succeeds if the training changed a trained value, or may rightly have changed none; then returns why, for the log. `last`: the
/// largest change of this client's training before, 0 if there was none; replaced. Shapes: `loaded` and `change`, what training
/// added to it: `[layout.len()]`.
pub(crate) fn expect_change(
    layout: &Layout,
    (loaded, change): (&[f32], &[f32]),
    last: &mut f32,
    fit: &Fit,
    plan: &FitPlan,
) -> anyhow::Result<Option<&'static str>> {
    let now = largest(&change[layout.trained()]);
    // Also of values that are not finite, which the encoder refuses.
    if now != 0.0 || !change[layout.trained()].iter().all(|value| value.is_finite()) {
        *last = now;
        return Ok(None);
    }
    let tensors = layout.tensors().iter();
    let trained: Vec<_> = tensors.filter(|tensor| tensor.role == Role::Trained).collect();
    let are_halves = trained
        .iter()
        .all(|tensor| matches!(tensor.dtype, Dtype::F16 | Dtype::Bf16));
    let why = match fit.unchanged_ok {
        Some(true) => "its learner reports this as right",
        _ if plan.training.learning_rate_in(plan.round, plan.rounds) == 0.0 => "the learning rate of the round is 0",
        _ if fit.loss == 0.0 => "its loss is 0",
        None if are_halves => "16 bits may round every step to nothing",
        None if *last > 0.0 && *last <= NEARLY_NONE * largest(&loaded[layout.trained()]) => "it has converged",
        None if largest(&change[layout.buffers()]) > 0.0 => "running statistics changed",
        _ => {
            let first = trained.first().map_or("", |tensor| tensor.name.as_str());
            anyhow::bail!(
                "the training did not reach the model: {} examples and loss {}, but all {} trained tensors, such as `{first}`, \
                 equal the loaded weights to the bit. Train the tensors that were loaded, or copy the result into them \
                 before it is returned: a framework may have trained a copy, replaced its arrays, or finished its epochs in \
                 an earlier round. Where an unchanged model is right, report `unchanged_ok`",
                fit.examples,
                fit.loss,
                trained.len()
            )
        }
    };
    Ok(Some(why))
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, value| most.max(value.abs()))
}

#[cfg(test)]
mod tests {
    use fl_compress::TensorSpec;
    use fl_proto::{Schedule, Training};

    use super::*;

    fn outcome(
        dtype: Dtype,
        change: [f32; 4],
        unchanged_ok: Option<bool>,
        loss: f64,
    ) -> Result<Option<&'static str>, String> {
        let layout = Layout::of([
            TensorSpec::new("w", &[2], dtype, Role::Trained),
            TensorSpec::new("mean", &[1], Dtype::F32, Role::Buffer),
            TensorSpec::new("seen", &[1], Dtype::I64, Role::Counter),
        ]);
        let fit = Fit {
            unchanged_ok,
            ..Fit::new(10, loss)
        };
        let plan = FitPlan::new(Training::default(), 2, 3, 1);
        expect_change(&layout.unwrap(), (&[1.0; 4], &change), &mut 0.0, &fit, &plan).map_err(|e| e.to_string())
    }

    #[test]
    fn a_training_that_changes_no_trained_value_did_not_reach_the_model() {
        for dtype in [Dtype::F32, Dtype::F64] {
            assert_eq!(outcome(dtype, [0.0, 1e-30, 0.0, 0.0], None, 0.5), Ok(None));
            // A counter that moved is no sign that weights did.
            let why = outcome(dtype, [0.0, -0.0, 0.0, 7.0], None, 0.5).unwrap_err();
            assert!(
                why.contains("10 examples and loss 0.5") && why.contains("such as `w`"),
                "{why}"
            );
        }
        // The trainer has seen that nothing was written.
        for change in [[0.0; 4], [0.0, 0.0, 0.1, 0.0]] {
            assert!(outcome(Dtype::F16, change, Some(false), 0.5).is_err());
        }
    }

    #[test]
    fn an_unchanged_model_is_right_where_nothing_had_to_change() {
        let is_right = |dtype, change, unchanged_ok, loss| {
            let why = outcome(dtype, change, unchanged_ok, loss);
            assert!(matches!(why, Ok(Some(_))), "{why:?}");
        };
        is_right(Dtype::F32, [0.0; 4], Some(true), 0.5);
        is_right(Dtype::F32, [0.0; 4], None, 0.0);
        is_right(Dtype::F16, [0.0; 4], None, 0.5);
        is_right(Dtype::Bf16, [0.0; 4], None, 0.5);
        is_right(Dtype::F32, [0.0, 0.0, 0.1, 0.0], None, 0.5);
    }

    #[test]
    fn a_round_without_a_learning_rate_changes_nothing() {
        let layout = Layout::new([("w", vec![2])]).unwrap();
        let schedule = Schedule::Step { every: 1, factor: 0.0 };
        let training = Training {
            schedule,
            ..Training::default()
        };
        let plan = |round| FitPlan::new(training, round, 3, 1);
        let fit = Fit::new(10, 0.5);
        let outcome = |round| expect_change(&layout, (&[1.0; 2], &[0.0; 2]), &mut 0.0, &fit, &plan(round));
        assert!(outcome(1).is_err());
        assert!(outcome(2).is_ok());
    }

    #[test]
    fn changes_that_shrink_to_nothing_are_convergence_and_those_that_stop_are_not() {
        let layout = Layout::new([("w", vec![2])]).unwrap();
        let plan = FitPlan::new(Training::default(), 2, 3, 1);
        let fit = Fit::new(10, 0.5);
        for (before, is_right) in [(1e-7, true), (1e-3, false)] {
            let mut last = 0.0;
            let mut outcome =
                |change: f32| expect_change(&layout, (&[0.5, 1.0], &[change, 0.0]), &mut last, &fit, &plan);
            assert_eq!(outcome(-before).unwrap(), None);
            for _ in 0..2 {
                assert_eq!(outcome(0.0).is_ok(), is_right, "{before}");
            }
        }
    }
}
