//! Values shared by groups of weights, each weight with a sign (hashed weights: Chen et al. 2015).

use crate::rng::KeyedRng;

/// `x_i = s_i z_g(i) / sqrt(weights of group g(i))`. The groups are those of a seeded permutation, dealt out in turn, so their
/// sizes differ by at most one and none is empty. The columns of this map are orthonormal.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shared {
    /// For each weight, twice its group, plus 1 if its sign is negative.
    places: Vec<u32>,
    /// Of the first `larger` groups, which have one weight more, and of the others.
    scales: [f32; 2],
    larger: usize,
}

impl Shared {
    /// `weights` in `groups`; `1 <= groups <= weights`, and twice `groups` fits a `u32`.
    pub(super) fn new(weights: usize, groups: usize, rng: KeyedRng) -> Self {
        let mut places: Vec<u32> = (0..weights).map(|at| 2 * (at % groups) as u32).collect();
        // Fisher and Yates; the product's upper half is uniform below its bound up to 2^-32.
        for left in (1..weights).rev() {
            let draw = u128::from(rng.bits(left)) * (left as u128 + 1);
            places.swap(left, (draw >> 64) as usize);
        }
        let signs = rng.part(1);
        for (at, place) in places.iter_mut().enumerate() {
            *place |= (signs.bits(at) >> 63) as u32;
        }
        let each = weights / groups;
        Self {
            places,
            scales: [each + 1, each].map(|weights| (1.0 / (weights as f64).sqrt()) as f32),
            larger: weights % groups,
        }
    }

    fn scale(&self, group: usize) -> f32 {
        self.scales[usize::from(group >= self.larger)]
    }

    /// Adds the expanded `z` to `x`. Shapes: `z: [values]`, `x: [weights]`.
    pub(super) fn add_expanded(&self, z: &[f32], x: &mut [f32]) {
        let both = z.iter().enumerate().flat_map(|(group, z)| {
            let value = z * self.scale(group);
            [value, -value]
        });
        let scaled: Vec<f32> = both.collect();
        for (x, place) in x.iter_mut().zip(&self.places) {
            *x += scaled[*place as usize];
        }
    }

    /// The transpose. Shapes: `x: [weights]`, `z: [values]`, overwritten.
    pub(super) fn project(&self, x: &[f32], z: &mut [f32]) {
        z.fill(0.0);
        for (x, place) in x.iter().zip(&self.places) {
            let sign = [1.0, -1.0][(place & 1) as usize];
            z[(place >> 1) as usize] += sign * x;
        }
        for (group, z) in z.iter_mut().enumerate() {
            *z *= self.scale(group);
        }
    }
}
