//! Seeded first weights.

use fl_compress::Layout;

use crate::data::Rng;

/// Uniform within `1 / sqrt(fan in)` for weights and biases alike, as PyTorch does for convolutions and linear layers
/// (He et al. 2015 with `a = sqrt(5)`). A tensor's values depend on `seed` and its name only.
/// Returns `[layout.len()]`.
///
/// Server and clients make these weights independently and compare digests, so every machine must get the same bits. Only
/// integers, `+ - * /`, square roots and conversions of IEEE 754 are used, which round exactly: no `ln`, `cos`, `powf` or
/// `mul_add`, and therefore no normal draws.
pub(super) fn fill(layout: &Layout, seed: u64) -> Vec<f32> {
    let mut weights = Vec::with_capacity(layout.len());
    for tensor in layout.tensors() {
        let bound = 1.0 / (fan_in(layout, &tensor.name).max(1) as f64).sqrt();
        let name = tensor
            .name
            .bytes()
            .fold(0u64, |hash, byte| Rng::of(&[hash, u64::from(byte)]).bits());
        let mut rng = Rng::of(&[seed, name]);
        weights.extend((0..tensor.len).map(|_| rng.between(-bound, bound) as f32));
    }
    weights
}

/// Fan-in of the layer that tensor `name` belongs to: the inputs of `layer.weight`, also for `layer.bias`.
fn fan_in(layout: &Layout, name: &str) -> usize {
    let weight = match name.strip_suffix(".bias") {
        Some(layer) => format!("{layer}.weight"),
        None => name.to_owned(),
    };
    let tensor = layout.tensors().iter().find(|t| t.name == weight);
    tensor.map_or(1, |t| t.shape.iter().skip(1).product())
}

#[cfg(test)]
mod tests {
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
        ];
        assert!(
            LEARNERS
                .iter()
                .map(|learner| learner.name)
                .eq(golden.map(|(name, _)| name))
        );
        let found = golden.map(|(name, _)| {
            (
                name,
                Digest::of_f32(&find(name).unwrap().initial_weights(42).unwrap().1).to_string(),
            )
        });
        assert_eq!(found.each_ref().map(|(name, digest)| (*name, digest.as_str())), golden);
    }

    #[test]
    fn weights_lie_within_their_bound_and_depend_on_the_seed() {
        let layout = Layout::new([("a.weight", vec![50, 100]), ("a.bias", vec![50])]).unwrap();
        let weights = fill(&layout, 1);
        assert!(weights.iter().all(|w| w.abs() <= 0.1));
        let mean = weights.iter().sum::<f32>() / weights.len() as f32;
        let square = weights.iter().map(|w| w * w).sum::<f32>() / weights.len() as f32;
        assert!(
            mean.abs() < 0.003 && (square - 0.01 / 3.0).abs() < 2e-4,
            "{mean} {square}"
        );
        assert_eq!(weights, fill(&layout, 1));
        assert_ne!(weights, fill(&layout, 2));
    }
}
