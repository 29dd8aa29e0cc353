//! Seeded first weights.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

use candle_core::Shape;
use candle_nn::Init;
use candle_nn::init::NormalOrUniform;
use fl_compress::Layout;

use crate::data::Rng;

/// Uniform within `1 / sqrt(inputs)`, as PyTorch draws weights and biases of convolutions and linear layers (He et al. 2015 with
/// `a = sqrt(5)`).
pub(super) fn fan_in(inputs: usize) -> Init {
    uniform(1.0 / (inputs.max(1) as f64).sqrt())
}

/// Uniform between the bound and its negative.
pub(super) fn uniform(bound: f64) -> Init {
    Init::Uniform { lo: -bound, up: bound }
}

/// Normal with mean 0.
pub(super) fn normal(stdev: f64) -> Init {
    Init::Randn { mean: 0.0, stdev }
}

/// A number as `init` says, for a tensor of this shape.
///
/// Server and clients make these weights independently and compare digests, so every machine must get the same bits. Only
/// integers, `+ - * /`, square roots and conversions of IEEE 754 are used, which round exactly: no `ln`, `cos`, `powf` or
/// `mul_add`. A normal number is therefore nearly one: a sum of twelve uniform numbers, within 6 deviations.
fn draw(init: Init, shape: &Shape, rng: &mut Rng) -> f32 {
    match init {
        Init::Const(value) => value as f32,
        Init::Uniform { lo, up } => rng.between(lo, up) as f32,
        Init::Randn { mean, stdev } => {
            let sum: f64 = (0..12).map(|_| rng.unit()).sum();
            ((sum - 6.0) * stdev + mean) as f32
        }
        Init::Kaiming {
            dist,
            fan,
            non_linearity,
        } => {
            let stdev = non_linearity.gain() / (fan.for_shape(shape).max(1) as f64).sqrt();
            let drawn = match dist {
                NormalOrUniform::Normal => normal(stdev),
                NormalOrUniform::Uniform => uniform(3f64.sqrt() * stdev),
            };
            draw(drawn, shape, rng)
        }
    }
}

/// The first weights of a model; a tensor's values depend on `seed` and its name only. Shapes: one of `inits` for each tensor
/// of `layout`; returns `[layout.len()]`.
pub(super) fn fill(layout: &Layout, inits: &[Init], seed: u64) -> Vec<f32> {
    let mut weights = Vec::with_capacity(layout.len());
    for (tensor, init) in layout.tensors().iter().zip(inits) {
        let name = tensor
            .name
            .bytes()
            .fold(0u64, |hash, byte| Rng::of(&[hash, u64::from(byte)]).bits());
        let mut rng = Rng::of(&[seed, name]);
        let shape = Shape::from(tensor.shape.as_slice());
        weights.extend((0..tensor.len).map(|_| draw(*init, &shape, &mut rng)));
    }
    weights
}

#[cfg(test)]
mod tests {
    use candle_nn::init::{FanInOut, NonLinearity, ONE, ZERO};
    use fl_compress::Digest;

    use super::super::{LEARNERS, find};
    use super::*;

    #[test]
    fn first_weights_are_these_bits_on_every_machine() {
        let golden = [
            (
                "mlp",
                "2b4201fb6e4a914e6d57ee1d224a1340ee5c88937bccef0b7893f693211d400d",
            ),
            (
                "cnn",
                "0bccac5bd76e784919aeb0de72bb152cdd18b5dacd9967d12db8403192232517",
            ),
            (
                "lenet",
                "a119625a1f04101fec705daee85aca827992d2477970b5fc8bff9df80d449939",
            ),
            (
                "har",
                "751e992ef084950e03e6bc4038d47ad70de49402a50561129af475e21930dc1b",
            ),
            (
                "resnet8",
                "cced9fc3eadd5f2fce8caf3f6ecf27bb12bd461be9bd824971dfb82dc07c514e",
            ),
            (
                "resnet18",
                "68a4a78e6c15ec5b9765c927f54ebf1b22e1567293bd0e8701cda43df4173fe5",
            ),
            (
                "resnet50",
                "252dc2bfa811f021cbb8c832b16be3796e9c3d049d633fbd27d3f191ee4a0880",
            ),
            (
                "lstm",
                "105a26f306a52606ed1f10a7e3de4c9339cd55624d4410f50e0505f726075499",
            ),
            (
                "transformer",
                "13737512ba8a6403e1a4d41ca485538cefc31ba0bf60e776f793d79f5db7c531",
            ),
        ];
        assert!(
            LEARNERS
                .iter()
                .map(|learner| &*learner.name)
                // Its size is that of the model it adapts.
                .filter(|name| *name != "lora")
                .eq(golden.map(|(name, _)| name))
        );
        let found = golden.map(|(name, _)| {
            let info = find(name).unwrap();
            let (_, weights) = info
                .initial_weights_with(&toml::Table::new(), info.input.unwrap(), 42)
                .unwrap();
            (name, Digest::of_f32(&weights).to_string())
        });
        assert_eq!(found.each_ref().map(|(name, digest)| (*name, digest.as_str())), golden);
    }

    #[test]
    fn weights_lie_within_their_bound_and_depend_on_the_seed() {
        let layout = Layout::new([("a.weight", vec![50, 100]), ("a.bias", vec![50])]).unwrap();
        for init in [fan_in(100), normal(0.1 / 3.0f64.sqrt())] {
            let fill = |seed| fill(&layout, &[init; 2], seed);
            let weights = fill(1);
            assert!(weights.iter().all(|w| w.abs() <= 0.35));
            let mean = weights.iter().sum::<f32>() / weights.len() as f32;
            let square = weights.iter().map(|w| w * w).sum::<f32>() / weights.len() as f32;
            assert!(
                mean.abs() < 0.003 && (square - 0.01 / 3.0).abs() < 2e-4,
                "{mean} {square}"
            );
            assert_eq!(weights, fill(1));
            assert_ne!(weights, fill(2));
        }
        assert_eq!(fill(&layout, &[ONE, ZERO], 1)[49..51], [1.0, 0.0]);
    }

    #[test]
    fn kaiming_is_uniform_or_normal_by_the_inputs() {
        let layout = Layout::new([("a.weight", vec![50, 100])]).unwrap();
        for (dist, same) in [
            (NormalOrUniform::Uniform, fan_in(100)),
            (NormalOrUniform::Normal, normal(0.1 / 3f64.sqrt())),
        ] {
            let kaiming = Init::Kaiming {
                dist,
                fan: FanInOut::FanIn,
                non_linearity: NonLinearity::ExplicitGain((1.0f64 / 3.0).sqrt()),
            };
            let (found, wanted) = (fill(&layout, &[kaiming], 1), fill(&layout, &[same], 1));
            assert!(found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-7));
        }
    }
}
