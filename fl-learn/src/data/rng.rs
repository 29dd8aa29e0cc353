//! The only source of randomness of data and learners: a counter with SplitMix64's finalizer.
//!
//! Each number is a function of the seed and of its position in the sequence, on every machine.

use fl_compress::math;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A seeded sequence of numbers.
#[derive(Debug, Clone)]
pub struct Rng {
    counter: u64,
}

impl Rng {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { counter: mix(seed) }
    }

    /// The sequence of several numbers, such as a seed and a client.
    pub fn of(parts: &[u64]) -> Self {
        Self::new(parts.iter().fold(0, |seed, &part| mix(seed ^ part).wrapping_add(STEP)))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(STEP);
        mix(self.counter)
    }

    /// A number from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number from `low` to below `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// A whole number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// A draw from the standard normal distribution (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * math::ln(1.0 - self.unit())).sqrt();
        radius * math::cos(std::f64::consts::TAU * self.unit())
    }

    /// The natural logarithm of a draw from the gamma distribution of shape `alpha` above 0 and scale 1 (Marsaglia and Tsang
    /// 2000). For a small `alpha`, the draw itself may underflow.
    pub fn ln_gamma_draw(&mut self, alpha: f64) -> f64 {
        if alpha < 1.0 {
            let boost = math::ln(1.0 - self.unit()) / alpha;
            return self.ln_gamma_draw(alpha + 1.0) + boost;
        }
        let d = alpha - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = 1.0 + c * x;
            if v <= 0.0 {
                continue;
            }
            let ln_v = 3.0 * math::ln(v);
            if math::ln(1.0 - self.unit()) < 0.5 * x * x + d * (1.0 - v * v * v + ln_v) {
                return math::ln(d) + ln_v;
            }
        }
    }

    /// Shuffles `items` (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            let at = self.below(end as u64 + 1) as usize;
            items.swap(at, end);
        }
    }
}

fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_mean_of_their_distribution() {
        let mut rng = Rng::of(&[1, 2]);
        let mean = |draw: &mut dyn FnMut() -> f64| (0..20_000).map(|_| draw()).sum::<f64>() / 20_000.0;
        assert!((mean(&mut || rng.unit()) - 0.5).abs() < 0.01);
        assert!(mean(&mut || rng.normal()).abs() < 0.03);
        assert!((mean(&mut || rng.ln_gamma_draw(0.3).exp()) - 0.3).abs() < 0.02);
        assert!((mean(&mut || rng.ln_gamma_draw(4.0).exp()) - 4.0).abs() < 0.1);
        assert!((mean(&mut || rng.below(7) as f64) - 3.0).abs() < 0.06);
    }

    #[test]
    fn equal_parts_give_equal_sequences_and_order_matters() {
        assert_eq!(Rng::of(&[1, 2]).bits(), Rng::of(&[1, 2]).bits());
        assert_ne!(Rng::of(&[1, 2]).bits(), Rng::of(&[2, 1]).bits());
    }
}
