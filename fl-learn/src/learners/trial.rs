//! What is found out about a program's own model before it takes part in a round.

use anyhow::{Context as _, ensure};
use candle_nn::Init;
use fl_proto::Precision;

use super::examples::ModelBatch;
use super::init;
use super::opened::OpenModel;
use super::trained::TrainedModel;
use crate::ops::Tape;

impl TrainedModel {
    /// Finds out what is wrong with a program's own model before a round does. The weights are zero again afterwards.
    pub(super) fn try_out(&self) -> anyhow::Result<()> {
        let OpenModel::Made(_) = self.open()? else {
            return Ok(());
        };
        let own = &self.own;
        let examples = &self.data.train;
        let positions: Vec<u32> = (0..examples.len().min(2) as u32).collect();
        let batch = ModelBatch::of(examples, &positions, &self.device)?;
        // Tensors that begin as constants, too, must differ between the two.
        let inits: Vec<Init> = (own.inits.iter())
            .map(|init| match *init {
                Init::Const(value) => Init::Uniform {
                    lo: value - 0.1,
                    up: value + 0.1,
                },
                other => other,
            })
            .collect();
        let draw = |seed| own.load(&init::fill(&own.layout, &inits, seed));
        let predictions = |opened: &OpenModel<'_>| {
            opened
                .model()
                .forward(&mut Tape::default(), &batch.x)?
                .flatten_all()?
                .to_vec1::<f32>()
                .map(|values| values.into_iter().map(f32::to_bits).collect::<Vec<_>>())
        };
        draw(1)?;
        let early = self.open()?;
        draw(2)?;
        let late = self.open()?;
        ensure!(
            predictions(&early).with_context(|| {
                format!(
                    "its model fails on examples of {:?} {:?}",
                    batch.x.dtype(),
                    batch.x.dims()
                )
            })? == predictions(&late)?,
            "its constructor computes with weights, and so would go on with the first ones; compute in `forward`"
        );
        let loss = |opened: &OpenModel<'_>| -> anyhow::Result<f32> {
            let (loss, grads) = opened.gradients(&batch, own.vars.split_at(own.trained), 1, Precision::F32)?;
            self.expect_all(self.trained_vars(), grads)?;
            Ok(loss.to_scalar()?)
        };
        let first = loss(&late)?;
        let second = loss(&late)?;
        ensure!(
            first.to_bits() == second.to_bits() || first.is_nan(),
            "two steps with the same seed have the losses {first} and {second}: the model draws from a generator that nothing seeds; \
             use `fl_learn::Dropout` in place of the one of candle-nn"
        );
        Ok(own.load(&vec![0.0; own.layout.len()])?)
    }
}
