//! Energy and cosine between two vectors: sums of squares and products, in `f64`.

/// Values in a block: the blocks of all vectors fit the L1 cache.
const BLOCK: usize = 2048;
/// Accumulators, so that the loop vectorizes.
const LANES: usize = 8;

/// Sums over the values to send, `x`, and the decoded values, `y`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Energy {
    /// Of `x x`.
    pub(super) sent: f64,
    /// Of `y y`.
    pub(super) received: f64,
    /// Of `x y`.
    pub(super) product: f64,
    /// Of `(x - y) (x - y)`.
    pub(super) error: f64,
}

impl Energy {
    pub(super) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.product += other.product;
        self.error += other.error;
    }

    /// Relative squared error, at least 0; `None` if `x` is zero.
    pub(super) fn relative_error(&self) -> Option<f64> {
        (self.sent > 0.0).then(|| self.error / self.sent)
    }

    /// Cosine of the angle between both; `None` if one of them is zero.
    pub(super) fn cosine(&self) -> Option<f64> {
        let norms = (self.sent * self.received).sqrt();
        (norms > 0.0).then(|| (self.product / norms).clamp(-1.0, 1.0))
    }
}

/// The sums for `x` and `y = x - missed`. Shapes: equal.
pub(super) fn energy(x: &[f32], missed: &[f32]) -> Energy {
    let len = x.len().min(missed.len());
    let (x_lanes, x_rest) = x[..len].as_chunks::<LANES>();
    let (missed_lanes, missed_rest) = missed[..len].as_chunks::<LANES>();
    let mut sums = [[0.0f64; LANES]; 4];
    for (x, missed) in x_lanes.iter().zip(missed_lanes) {
        for lane in 0..LANES {
            add(&mut sums, lane, x[lane], missed[lane]);
        }
    }
    for (lane, (x, missed)) in x_rest.iter().zip(missed_rest).enumerate() {
        add(&mut sums, lane, *x, *missed);
    }
    let [sent, received, product, error] = sums.map(|lanes| lanes.iter().sum());
    Energy {
        sent,
        received,
        product,
        error,
    }
}

fn add(sums: &mut [[f64; LANES]; 4], lane: usize, x: f32, missed: f32) {
    let y = f64::from(x - missed);
    let x = f64::from(x);
    let missed = f64::from(missed);
    sums[0][lane] += x * x;
    sums[1][lane] += y * y;
    sums[2][lane] += x * y;
    sums[3][lane] += missed * missed;
}

/// Sums over a chain of frames: the values to send, and the values not received.
#[derive(Debug)]
pub(super) struct Sums {
    sent: Vec<f32>,
    missed: Vec<f32>,
}

impl Sums {
    /// Of no frame yet. Shapes: `len` values each.
    pub(super) fn new(len: usize) -> Self {
        Self {
            sent: vec![0.0; len],
            missed: vec![0.0; len],
        }
    }

    /// Adds one frame with the values `x`, of which `x - missed` is received. Returns its own sums.
    pub(super) fn take(&mut self, x: &[f32], missed: &[f32]) -> Energy {
        let mut out = Energy::default();
        let blocks = x.chunks(BLOCK).zip(missed.chunks(BLOCK));
        let sums = self.sent.chunks_mut(BLOCK).zip(self.missed.chunks_mut(BLOCK));
        for ((x, missed), (sent, all_missed)) in blocks.zip(sums) {
            out.add(&energy(x, missed));
            add_to(sent, x);
            add_to(all_missed, missed);
        }
        out
    }

    /// As [`Sums::take`], for an encoder with error feedback: `x + decay * before` was encoded,
    /// and `after` is the new residual. `before` becomes `missed`.
    pub(super) fn take_residual(&mut self, x: &[f32], before: &mut [f32], after: &[f32], decay: f32) -> Energy {
        let mut out = Energy::default();
        let blocks = x.chunks(BLOCK).zip(before.chunks_mut(BLOCK).zip(after.chunks(BLOCK)));
        let sums = self.sent.chunks_mut(BLOCK).zip(self.missed.chunks_mut(BLOCK));
        for ((x, (before, after)), (sent, all_missed)) in blocks.zip(sums) {
            for (before, after) in before.iter_mut().zip(after) {
                *before = after - decay * *before;
            }
            out.add(&energy(x, before));
            add_to(sent, x);
            add_to(all_missed, before);
        }
        out
    }

    pub(super) fn whole(&self) -> Energy {
        let blocks = self.sent.chunks(BLOCK).zip(self.missed.chunks(BLOCK));
        let mut out = Energy::default();
        blocks.for_each(|(sent, missed)| out.add(&energy(sent, missed)));
        out
    }
}

fn add_to(sum: &mut [f32], values: &[f32]) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(seed: f32, len: usize) -> Vec<f32> {
        (0..len).map(|i| (i as f32 * seed).sin()).collect()
    }

    fn reference(x: &[f32], missed: &[f32]) -> Energy {
        let mut out = Energy::default();
        for (&x, &missed) in x.iter().zip(missed) {
            let (x, y, missed) = (f64::from(x), f64::from(x - missed), f64::from(missed));
            out.add(&Energy {
                sent: x * x,
                received: y * y,
                product: x * y,
                error: missed * missed,
            });
        }
        out
    }

    fn close(a: &Energy, b: &Energy) -> bool {
        let pairs = [
            (a.sent, b.sent),
            (a.received, b.received),
            (a.product, b.product),
            (a.error, b.error),
        ];
        pairs.iter().all(|(a, b)| (a - b).abs() <= 1e-9 * b.abs().max(1.0))
    }

    #[test]
    fn sums_are_those_of_the_definition_at_every_length() {
        for len in [0, 1, 7, 8, 9, 2047, 2048, 2049, 5000] {
            let (x, missed) = (values(0.37, len), values(0.11, len));
            let found = Sums::new(len).take(&x, &missed);
            assert!(close(&found, &reference(&x, &missed)), "{len}: {found:?}");
        }
    }

    #[test]
    fn what_is_received_whole_has_no_error_and_cosine_one() {
        let x = values(0.37, 5000);
        let found = energy(&x, &vec![0.0; x.len()]);
        assert_eq!((found.relative_error(), found.cosine()), (Some(0.0), Some(1.0)));
        let nothing = energy(&x, &x);
        assert_eq!((nothing.relative_error(), nothing.cosine()), (Some(1.0), None));
        assert_eq!(Energy::default().relative_error(), None);
    }

    #[test]
    fn residuals_tell_what_was_missed() {
        let (x, before, after) = (values(0.37, 3000), values(0.11, 3000), values(0.23, 3000));
        let missed: Vec<f32> = before
            .iter()
            .zip(&after)
            .map(|(before, after)| after - 0.5 * before)
            .collect();
        let (mut one, mut other) = (Sums::new(3000), Sums::new(3000));
        let mut scratch = before.clone();
        assert_eq!(
            one.take_residual(&x, &mut scratch, &after, 0.5),
            other.take(&x, &missed)
        );
        assert_eq!((scratch, one.whole()), (missed, other.whole()));
    }

    #[test]
    fn huge_values_do_not_overflow() {
        let found = energy(&[1e36; 3], &[-1e36; 3]);
        assert_eq!(found.relative_error(), Some(1.0));
        assert!(found.received.is_finite());
    }
}
