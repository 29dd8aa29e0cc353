//! The models by name.

use candle_core::{Result, Tensor};

use super::cnn::Cnn;
use super::har::Har;
use super::lenet::LeNet;
use super::mlp::Mlp;
use super::params::Params;
use crate::data::Input;
use crate::ops::Tape;

/// Names of the built-in models.
pub const NAMES: &[&str] = &["mlp", "cnn", "lenet", "har"];

/// One of the built-in models.
#[derive(Debug)]
pub(super) enum Model {
    Mlp(Mlp),
    Cnn(Cnn),
    LeNet(LeNet),
    Har(Har),
}

impl Model {
    /// Puts the model called `name` together; its tensors are added to `params`.
    ///
    /// # Errors
    /// If there is no such name or the model does not suit `input`.
    pub(super) fn new(name: &str, input: Input, params: &mut Params) -> anyhow::Result<Self> {
        Ok(match name {
            "mlp" => Self::Mlp(Mlp::new(input, params)?),
            "cnn" => Self::Cnn(Cnn::new(input, params)?),
            "lenet" => Self::LeNet(LeNet::new(input, params)?),
            "har" => Self::Har(Har::new(input, params)?),
            _ => return Err(unknown(name)),
        })
    }

    /// Shapes: `x: [batch, channels, height, width]`; returns `[batch, classes]`, before softmax.
    pub(super) fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Mlp(model) => model.forward(tape, x),
            Self::Cnn(model) => model.forward(tape, x),
            Self::LeNet(model) => model.forward(tape, x),
            Self::Har(model) => model.forward(tape, x),
        }
    }
}

/// What the model called `name` is fed when no data says otherwise.
pub(super) fn default_input(name: &str) -> anyhow::Result<Input> {
    match name {
        "mlp" | "cnn" | "lenet" => Ok(Input {
            shape: [1, 28, 28],
            classes: 10,
        }),
        "har" => Ok(Input {
            shape: [6, 1, 128],
            classes: 12,
        }),
        _ => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> anyhow::Error {
    anyhow::anyhow!("no learner is called `{name}`; there are {}", NAMES.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::{initial_weights, initial_weights_for};
    use super::*;

    #[test]
    fn models_have_the_sizes_they_are_known_by() {
        for (name, len) in [("mlp", 159_010), ("cnn", 582_026), ("lenet", 61_706), ("har", 34_740)] {
            let (layout, weights) = initial_weights(name, 1).unwrap();
            assert_eq!((layout.len(), weights.len()), (len, len), "{name}");
        }
    }

    #[test]
    fn tensors_have_the_usual_names_and_shapes() {
        let (layout, _) = initial_weights("cnn", 1).unwrap();
        let shapes: Vec<_> = layout
            .tensors()
            .iter()
            .map(|t| (t.name.as_str(), t.shape.as_slice()))
            .collect();
        assert_eq!(shapes[0], ("conv1.bias", &[32][..]));
        assert_eq!(shapes[1], ("conv1.weight", &[32, 1, 5, 5][..]));
        assert_eq!(shapes[5], ("fc1.weight", &[512, 1024][..]));
        let (layout, _) = initial_weights("har", 1).unwrap();
        assert_eq!(layout.tensors()[1].shape, [24, 6, 5]);
    }

    #[test]
    fn images_of_other_shapes_fit_or_are_refused() {
        let colour = Input {
            shape: [3, 32, 32],
            classes: 10,
        };
        assert_eq!(initial_weights_for("lenet", colour, 1).unwrap().1.len(), 62_006);
        assert!(initial_weights_for("cnn", colour, 1).is_ok());
        assert!(initial_weights_for("har", colour, 1).is_err());
        assert!(
            initial_weights_for(
                "cnn",
                Input {
                    shape: [1, 8, 8],
                    classes: 10
                },
                1
            )
            .is_err()
        );
        let error = initial_weights("resnet", 1).unwrap_err().to_string();
        assert!(error.contains("mlp, cnn, lenet, har"), "{error}");
    }
}
