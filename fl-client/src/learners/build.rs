//! From a row of the table to a learner, and to the first weights of a run.

use std::sync::Arc;

use anyhow::Context as _;
use fl_compress::Layout;

use super::classifier::Classifier;
use super::device::DeviceChoice;
use super::info::LearnerInfo;
use super::init;
use super::params::Params;
use crate::data::{ClientData, Input};
use crate::learner::Learner;

impl LearnerInfo {
    /// Builds the learner for `data`, whose shape and classes shape the model. Its weights are zero until they are loaded.
    ///
    /// # Errors
    /// If the model does not suit the data's shape, there is nothing to train on, or the device cannot be used.
    pub fn build(&self, device: DeviceChoice, data: ClientData) -> anyhow::Result<Box<dyn Learner>> {
        Ok(Box::new(Classifier::new(self, device, data)?))
    }

    /// Layout and seeded first weights of the model for its usual input. The same on every machine.
    ///
    /// # Errors
    /// If the layout passes a limit of [`Layout`].
    pub fn initial_weights(&self, seed: u64) -> anyhow::Result<(Arc<Layout>, Vec<f32>)> {
        self.initial_weights_for(self.input, seed)
    }

    /// As [`LearnerInfo::initial_weights`], for a given input.
    ///
    /// # Errors
    /// If the model does not suit the input.
    pub fn initial_weights_for(&self, input: Input, seed: u64) -> anyhow::Result<(Arc<Layout>, Vec<f32>)> {
        let mut params = Params::new(&candle_core::Device::Cpu);
        (self.model)(input, &mut params).with_context(|| format!("model `{}` for {input:?}", self.name))?;
        let (layout, _) = params.finish()?;
        let weights = init::fill(&layout, seed);
        Ok((Arc::new(layout), weights))
    }
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::*;

    #[test]
    fn models_have_the_sizes_they_are_known_by() {
        for (name, len) in [("mlp", 159_010), ("cnn", 582_026), ("lenet", 61_706), ("har", 34_740)] {
            let (layout, weights) = find(name).unwrap().initial_weights(1).unwrap();
            assert_eq!((layout.len(), weights.len()), (len, len), "{name}");
        }
    }

    #[test]
    fn tensors_have_the_usual_names_and_shapes() {
        let (layout, _) = find("cnn").unwrap().initial_weights(1).unwrap();
        let shapes: Vec<_> = layout
            .tensors()
            .iter()
            .map(|t| (t.name.as_str(), t.shape.as_slice()))
            .collect();
        assert_eq!(shapes[0], ("conv1.bias", &[32][..]));
        assert_eq!(shapes[1], ("conv1.weight", &[32, 1, 5, 5][..]));
        assert_eq!(shapes[5], ("fc1.weight", &[512, 1024][..]));
        let (layout, _) = find("har").unwrap().initial_weights(1).unwrap();
        assert_eq!(layout.tensors()[1].shape, [24, 6, 5]);
    }

    #[test]
    fn images_of_other_shapes_fit_or_are_refused() {
        let colour = Input::of_classes([3, 32, 32], 10);
        assert_eq!(
            find("lenet").unwrap().initial_weights_for(colour, 1).unwrap().1.len(),
            62_006
        );
        assert!(find("cnn").unwrap().initial_weights_for(colour, 1).is_ok());
        assert!(find("har").unwrap().initial_weights_for(colour, 1).is_err());
        assert!(
            find("cnn")
                .unwrap()
                .initial_weights_for(Input::of_classes([1, 8, 8], 10), 1)
                .is_err()
        );
        let error = find("resnet").unwrap_err().to_string();
        assert!(error.contains("mlp, cnn, lenet, har"), "{error}");
    }
}
