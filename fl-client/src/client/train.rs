//! One round of a client: load, fit, subtract, encode, make durable.

use std::sync::Arc;
use std::time::Instant;

use fl_compress::weights::{handed_out, round_role_to_types};
use fl_compress::{Digest, EncodeOptions, Frame, FrameHeader, FrameKind, Layout, Role};
use fl_proto::{MAX_EXAMPLES, RoundState};
use tokio::sync::watch;

use super::pending_update::PendingUpdate;
use super::run::state_of;
use super::state::ClientState;
use crate::error::Error;
use crate::event::Event;
use crate::learner::{Fit, FitPlan, Learner, Progress};
use crate::optimizer_state::OptimizerState;
use crate::reached::expect_change;
use crate::state::{UpdateMetadata, most_moments};
use crate::summary;

/// What the server asks of a client in a round. It may ask anew during the training.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundRequest {
    pub(crate) attempt: u32,
    /// Most bytes of the update's frame, in place of the run's budget.
    pub(crate) budget: Option<u64>,
    /// Rate of this client's link in millionths of the median of the cohort, as the server measured it.
    pub(crate) bandwidth: Option<u32>,
}

impl From<&RoundState> for RoundRequest {
    fn from(state: &RoundState) -> Self {
        Self {
            attempt: state.attempt,
            budget: state.budget,
            bandwidth: state.bandwidth,
        }
    }
}

impl ClientState {
    /// Trains from the held model and returns the update, which is durable together with the encoder's memory. `asked`: read
    /// at the time of encoding, because the frame belongs to that attempt.
    /// `deadline`: when the round closes.
    ///
    /// # Errors
    /// `Learner` if training fails: the client leaves the round. `NotNow` if `progress` was stopped. `State` if the update
    /// cannot be made durable; it must not be sent then.
    pub(crate) fn train(
        &mut self,
        round: u64,
        asked: &watch::Receiver<RoundRequest>,
        deadline: Option<Instant>,
        progress: &Arc<Progress>,
    ) -> Result<PendingUpdate, Error> {
        self.run()?;
        let run = self.run.as_mut().ok_or_else(moved_on)?;
        let model = run.model.as_ref().ok_or_else(moved_on)?;
        if progress.is_stopped() || run.pending.is_some() {
            return Err(moved_on());
        }
        let seed = |what: &str| derive_seed(what, run.joined.seed, run.joined.client.as_str(), round);
        let plan = FitPlan {
            training: run.joined.training,
            extra: run.joined.extra.clone(),
            round,
            rounds: run.joined.rounds,
            seed: seed("fit"),
            deadline: deadline.map(|at| at.saturating_duration_since(Instant::now())),
            squared_gradients: run.encoder.wants_squared_gradients(),
            kept: run.moments()?.map(Arc::new),
            progress: Arc::clone(progress),
        };

        let started = Instant::now();
        let learner = self.tasks.learner(&run.joined.task)?;
        let failed = |e: anyhow::Error| {
            if progress.is_stopped() {
                moved_on()
            } else {
                Error::Learner(summary::logged(&format!("{e:#}")))
            }
        };
        let before = handed_out(&run.layout, &model.values);
        learner.load(&before).map_err(failed)?;
        let fit = checked(learner.fit(&plan).map_err(failed)?, &run.layout)?;
        if progress.is_stopped() {
            return Err(moved_on());
        }
        let mut delta = vec![0.0; run.layout.len()];
        write_update(learner, &run.layout, &before, &mut delta).map_err(failed)?;
        let trained = (&before[..], &delta[..]);
        if let Some(why) = expect_change(&run.layout, trained, &mut run.largest_change, &fit, &plan).map_err(failed)? {
            tracing::warn!(round, why, "the training left every trained value as it was loaded");
        }
        let buffers = before[run.layout.buffers()].to_vec();
        drop(before);
        let train_ms = started.elapsed().saturating_sub(progress.paused()).as_millis() as u64;

        self.events.send(Event::Encoding { round });
        let started = Instant::now();
        let RoundRequest {
            attempt,
            budget,
            bandwidth,
        } = *asked.borrow();
        // No frame has a byte or none: both ask for the smallest.
        let budget = budget.map(|bytes| bytes.max(1));
        let header = FrameHeader {
            kind: FrameKind::Update,
            round,
            // Frames of different attempts must have different digests, even if training gives the same values.
            seed: match attempt {
                0 | 1 => seed("encode"),
                attempt => seed(&format!("encode in attempt {attempt}")),
            },
        };
        let Fit {
            examples,
            loss,
            metrics,
            squared_gradients,
            kept,
            unchanged_ok: _,
        } = fit;
        if plan.squared_gradients && squared_gradients.is_none() && !std::mem::replace(&mut run.warned, true) {
            tracing::warn!(
                task = run.joined.task,
                "the learner returns no squared gradients, by which the run's compression chooses; it takes magnitudes instead"
            );
        }
        let predictor = model.step.as_deref().map(|step| Frame::parse(step, &run.layout));
        let encoded = predictor.transpose().and_then(|predictor| {
            let options = EncodeOptions {
                predictor: predictor.as_ref(),
                buffers: Some(&buffers),
                squared_gradients: squared_gradients.as_deref(),
                bandwidth: bandwidth.map(|rate| rate.max(1)),
                budget,
                most: self.max_update_bytes,
                ..EncodeOptions::default()
            };
            run.encoder.encode_with(options, &mut delta, header)
        });
        let pending = encoded.map_err(|e| {
            let hint = match e {
                fl_compress::Error::NotFinite(_) => "; a smaller learning_rate may help",
                _ => "",
            };
            Error::Learner(format!("the update of round {round} cannot be encoded: {e}{hint}"))
        })?;
        if let Some(over) = run.watch.look(&pending) {
            let bits = over.used as f64 * 8.0 / run.layout.len().max(1) as f64;
            tracing::info!(
                round,
                asked = over.asked,
                bytes = over.used,
                bits,
                "the update is larger than its budget"
            );
        }
        log_excess(round, pending.frame.len() as u64, budget, self.max_update_bytes);
        let encode_ms = started.elapsed().as_millis() as u64;

        let metadata = UpdateMetadata {
            round,
            attempt,
            digest: pending.digest,
            examples,
            loss,
            train_ms,
            encode_ms,
            metrics: Arc::new(metrics),
        };
        // Neither is needed any more, and the state to be written is as long.
        drop((delta, squared_gradients));
        run.save_moments(pending.digest, kept.as_ref())?;
        drop(kept);
        run.state
            .save_memory(state_of(&run.joined), &run.encoder, &pending, &metadata)?;
        run.pending = Some((Arc::new(pending), metadata));
        let update = run.pending_update().ok_or_else(moved_on)?;
        let bytes = update.header.len;
        self.events.send(Event::Encoded { round, bytes });
        Ok(update)
    }
}

/// A frame that exceeds a limit is the smallest that the run's compression can make.
fn log_excess(round: u64, bytes: u64, budget: Option<u64>, most: Option<u64>) {
    if let Some(budget) = budget.filter(|budget| bytes > *budget) {
        tracing::warn!(
            round,
            bytes,
            budget,
            "the smallest possible update is larger than the server's budget for it"
        );
    }
    if let Some(most) = most.filter(|most| bytes > *most) {
        tracing::warn!(
            round,
            bytes,
            most,
            "the smallest possible update is larger than `max_update_bytes`"
        );
    }
}

/// Writes the update of a learner that was handed `before`. Counters become whole numbers before they are subtracted. Shapes:
/// both `[layout.len()]`.
fn write_update(learner: &dyn Learner, layout: &Layout, before: &[f32], delta: &mut [f32]) -> anyhow::Result<()> {
    if layout.tensors().iter().all(|tensor| tensor.role != Role::Counter) {
        return learner.update(before, delta);
    }
    learner.weights(delta)?;
    round_role_to_types(layout, Role::Counter, delta);
    delta
        .iter_mut()
        .zip(before)
        .for_each(|(after, before)| *after -= before);
    Ok(())
}

/// Refuses here what the server would refuse, because the cause is here.
fn checked(fit: Fit, layout: &Layout) -> Result<Fit, Error> {
    if fit.examples == 0 || fit.examples > MAX_EXAMPLES {
        return Err(Error::Learner(format!(
            "it reports {} examples; the number must be 1 to {MAX_EXAMPLES}",
            fit.examples
        )));
    }
    if !fit.loss.is_finite() {
        return Err(Error::Learner(format!(
            "its training loss is {}; a smaller learning_rate may help",
            fit.loss
        )));
    }
    if let Some(kept) = &fit.kept {
        let count = kept.values.len();
        let most = most_moments(layout);
        if count > most || kept.optimizer.len() > OptimizerState::MAX_NAME {
            return Err(Error::Learner(format!(
                "it keeps {count} moments of optimizer `{}`; a model of {} values has at most {most}, and a name {} bytes",
                kept.optimizer,
                layout.len(),
                OptimizerState::MAX_NAME
            )));
        }
        if !kept.values.iter().all(|value| value.is_finite()) {
            return Err(Error::Learner(
                "its optimizer's moments are not finite; a smaller learning_rate or a clip_norm may help".to_owned(),
            ));
        }
    }
    Ok(fit)
}

fn derive_seed(what: &str, run: u64, client: &str, round: u64) -> u64 {
    let mut bytes = Vec::with_capacity(what.len() + client.len() + 18);
    bytes.extend_from_slice(what.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(&run.to_le_bytes());
    bytes.extend_from_slice(&round.to_le_bytes());
    bytes.extend_from_slice(client.as_bytes());
    Digest::of(&bytes).short()
}

fn moved_on() -> Error {
    Error::NotNow("the round moved on".to_owned())
}

#[cfg(test)]
mod tests {
    use fl_compress::{Dtype, TensorSpec};

    use super::*;

    /// A learner that has trained to these values.
    struct Trained([f32; 6]);

    impl Learner for Trained {
        fn layout(&self) -> Arc<Layout> {
            unreachable!("the run's layout counts")
        }

        fn load(&mut self, _: &[f32]) -> anyhow::Result<()> {
            Ok(())
        }

        fn fit(&mut self, _: &FitPlan) -> anyhow::Result<Fit> {
            Ok(Fit::new(1, 0.0))
        }

        fn weights(&self, out: &mut [f32]) -> anyhow::Result<()> {
            out.copy_from_slice(&self.0[..out.len()]);
            Ok(())
        }

        fn evaluate(&mut self) -> anyhow::Result<Option<crate::learner::Evaluation>> {
            Ok(None)
        }
    }

    #[test]
    fn an_update_without_counters_is_the_learners_own() {
        let layout = Layout::new([("a", vec![3])]).unwrap();
        let mut delta = [f32::NAN; 3];
        write_update(
            &Trained([2.0, 0.4, 1.0, 0.0, 0.0, 0.0]),
            &layout,
            &[1.5, 0.1, 1.0],
            &mut delta,
        )
        .unwrap();
        assert_eq!(delta, [0.5, 0.4f32 - 0.1, 0.0]);
    }

    #[test]
    fn an_update_is_what_training_added_to_the_values_handed_out() {
        let spec = |name: &str, dtype, role| TensorSpec::new(name, &[2], dtype, role);
        let layout = Layout::of([
            spec("a", Dtype::F16, Role::Trained),
            spec("b", Dtype::F32, Role::Buffer),
            spec("c", Dtype::I64, Role::Counter),
        ]);
        let layout = layout.unwrap();
        let model = [2049.0, 0.1, 0.1, -3.0, 7.0, 16_777_210.0];
        let before = handed_out(&layout, &model);
        assert_eq!(*before, [2048.0, 0.099_975_586, 0.1, -3.0, 7.0, 16_777_210.0]);
        // A learner of f32 may return values between those of the type.
        let after = Trained([2048.5, 0.099_975_586, 0.4, -3.5, 9.4, 1e9]);
        let mut delta = [f32::NAN; 6];
        write_update(&after, &layout, &before, &mut delta).unwrap();
        assert_eq!(delta, [0.5, 0.0, 0.4f32 - 0.1, -0.5, 2.0, 6.0]);
    }

    #[test]
    fn seeds_differ_by_purpose_run_client_and_round() {
        let seed = derive_seed("fit", 1, "a", 1);
        assert_eq!(seed, derive_seed("fit", 1, "a", 1));
        for other in [
            derive_seed("encode", 1, "a", 1),
            derive_seed("fit", 2, "a", 1),
            derive_seed("fit", 1, "b", 1),
            derive_seed("fit", 1, "a", 2),
        ] {
            assert_ne!(seed, other);
        }
    }
}
