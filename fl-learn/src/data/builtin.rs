//! The built-in set: synthetic 28x28 digits; each client writes in its own style, so the data is non-IID.
//!
//! The set needs no file and no network. Clients differ in slant, width, thickness, ink, noise and the shape of each digit. The
//! same seed and client give the same bytes on every machine.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::dataset::Dataset;
use super::error::Error;
use super::examples::{ClientData, Examples};
use super::features::Features;
use super::input::Input;
use super::rng::Rng;
use super::set::{DataSet, Keys};
use super::strokes::{DASH, DIGITS, FOOT, Point, ink, rounded};

const SIDE: usize = 28;
const INPUT: Input = Input::of_classes([1, SIDE, SIDE], 10);
const SCALE: (f32, f32) = (0.13, 0.26);

const MAX_DRAWN: u32 = 1_000_000;

/// The built-in set of one client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Builtin {
    /// Seed of the whole federation.
    pub seed: u64,
    /// Which style; any number.
    pub client: u32,
    /// Examples to train on, 1 to 1,000,000.
    pub train: u32,
    /// Examples held out, at most 1,000,000.
    pub test: u32,
}

impl Default for Builtin {
    fn default() -> Self {
        Self {
            seed: 42,
            client: 0,
            train: 600,
            test: 100,
        }
    }
}

impl DataSet for Builtin {
    fn load(&self) -> Result<ClientData, Error> {
        let hand = Hand::new(self.seed, self.client);
        let train = self.train as usize;
        let test = self.test as usize;
        let set = Arc::new(draw(&hand, train + test)?);
        let end = (train + test) as u32;
        Ok(ClientData {
            train: Examples::new(set.clone(), (0..self.train).collect::<Vec<_>>())?,
            test: Examples::new(set, (self.train..end).collect::<Vec<_>>())?,
        })
    }

    fn check(&self) -> Result<(), Error> {
        if (1..=MAX_DRAWN).contains(&self.train) && self.test <= MAX_DRAWN {
            return Ok(());
        }
        let reason = format!("must be 1 to {MAX_DRAWN}, and `test` at most that");
        Err(Error::config("train", reason))
    }

    fn keys(&mut self) -> Keys<'_> {
        Keys {
            client: Some(&mut self.client),
            seed: Some(&mut self.seed),
            ..Keys::default()
        }
    }

    fn input(&self) -> Result<Input, Error> {
        Ok(INPUT)
    }
}

/// How one client writes.
#[derive(Debug, Clone)]
pub struct Hand {
    seed: u64,
    /// Pixels to the right per pixel up.
    slant: f32,
    /// Half the width of a stroke in pixels.
    radius: f32,
    /// Width and height of a digit in pixels.
    size: [f32; 2],
    /// Darkness of a full stroke, 0 to 1.
    ink: f32,
    /// Spread of the noise on every pixel, 0 to 1.
    noise: f32,
    /// The strokes of each digit in this style. Some styles put a foot under the one or a dash through the seven.
    digits: Vec<Vec<Vec<Point>>>,
}

impl Hand {
    /// The style of `client` in the federation of `seed`.
    pub fn new(seed: u64, client: u32) -> Self {
        let rng = &mut Rng::of(&[seed, 10, u64::from(client)]);
        let slant = draw_between(rng, -0.3, 0.5);
        let radius = draw_between(rng, 0.6, 1.7);
        let size = [draw_between(rng, 10.0, 17.0), draw_between(rng, 17.0, 21.0)];
        let ink = draw_between(rng, 0.65, 1.0);
        let noise = draw_between(rng, 0.0, 0.12);
        let bars = [(1, FOOT, rng.unit() < 0.4), (7, DASH, rng.unit() < 0.4)];
        let mut digits: Vec<Vec<Vec<Point>>> = DIGITS
            .iter()
            .map(|strokes| strokes.iter().map(|stroke| moved(stroke, 0.05, rng)).collect())
            .collect();
        for (digit, bar, _) in bars.iter().filter(|(_, _, wanted)| *wanted) {
            digits[*digit].push(moved(bar, 0.04, rng));
        }
        Self {
            seed: rng.bits(),
            slant,
            radius,
            size,
            ink,
            noise,
            digits,
        }
    }

    /// Writes `digit` once. Shapes: `out: [28 * 28]`, row-major, 255 is full ink.
    fn write(&self, digit: usize, rng: &mut Rng, out: &mut [u8]) {
        let mut image = [0.0f32; SIDE * SIDE];
        let slant = self.slant + draw_between(rng, -0.1, 0.1);
        let size = self.size.map(|side| side * draw_between(rng, 0.9, 1.08));
        let middle = [0, 1].map(|_| SIDE as f32 / 2.0 + draw_between(rng, -1.6, 1.6));
        let radius = self.radius * draw_between(rng, 0.88, 1.12);
        for stroke in &self.digits[digit] {
            let points: Vec<Point> = rounded(&moved(stroke, 0.035, rng))
                .into_iter()
                .map(|[x, y]| [(x - 0.5) * size[0], (y - 0.5) * size[1]])
                .map(|[x, y]| [middle[0] + x - slant * y, middle[1] + y])
                .collect();
            ink(&mut image, SIDE, &points, radius);
        }
        for (out, dark) in out.iter_mut().zip(image) {
            let noise = if self.noise > 0.0 { self.noise * bell(rng) } else { 0.0 };
            *out = ((dark * self.ink + noise).clamp(0.0, 1.0) * 255.0) as u8;
        }
    }
}

/// `count` examples in the style of `hand`, digits in random order.
///
/// # Errors
/// `Config` if the set would pass the limits of a [`Dataset`].
pub fn draw(hand: &Hand, count: usize) -> Result<Dataset, Error> {
    let mut values = vec![0; count * INPUT.len()];
    let mut labels = Vec::with_capacity(count);
    for (at, out) in values.chunks_exact_mut(INPUT.len()).enumerate() {
        // Each example has its own sequence: drawing more never changes earlier examples.
        let mut rng = Rng::of(&[hand.seed, at as u64]);
        let digit = rng.below(INPUT.classes as u64) as usize;
        hand.write(digit, &mut rng, out);
        labels.push(digit as u8);
    }
    Dataset::new(
        Features::Bytes {
            values,
            mean: vec![SCALE.0],
            std: vec![SCALE.1],
        },
        labels,
        INPUT,
    )
}

fn draw_between(rng: &mut Rng, low: f32, high: f32) -> f32 {
    low + (high - low) * rng.unit() as f32
}

/// Nearly normal, of deviation 1: the sum of four uniform numbers.
fn bell(rng: &mut Rng) -> f32 {
    let sum: f32 = (0..4).map(|_| rng.unit() as f32).sum();
    (sum - 2.0) * 1.732
}

fn moved(points: &[Point], by: f32, rng: &mut Rng) -> Vec<Point> {
    points
        .iter()
        .map(|p| p.map(|x| x + draw_between(rng, -by, by) * 1.7))
        .collect()
}

#[cfg(test)]
mod tests {
    use fl_compress::Digest;

    use super::*;

    fn bytes(seed: u64, client: u32, count: usize) -> (Vec<u8>, Vec<u8>) {
        let set = draw(&Hand::new(seed, client), count).unwrap();
        let Features::Bytes { values, .. } = set.features() else {
            panic!("drawn sets are bytes")
        };
        (values.clone(), set.labels().to_vec())
    }

    #[test]
    fn a_seed_and_a_client_name_the_same_bytes_for_ever() {
        let (values, labels) = bytes(42, 3, 50);
        let both: Vec<u8> = values.iter().chain(&labels).copied().collect();
        assert_eq!(Digest::of(&both).to_string()[..16], *"39772aad68c21ede");
        assert_ne!(values, bytes(42, 4, 50).0);
        assert_ne!(values, bytes(43, 3, 50).0);
        assert_eq!(
            values,
            bytes(42, 3, 80).0[..values.len()],
            "more examples never change the first"
        );
    }

    #[test]
    fn pictures_have_ink_within_their_frame_and_all_digits_come() {
        let (values, labels) = bytes(1, 0, 300);
        let mut seen = [0; 10];
        labels.iter().for_each(|&label| seen[usize::from(label)] += 1);
        assert!(seen.iter().all(|&count| count > 10), "{seen:?}");
        for picture in values.chunks_exact(784) {
            let dark = picture.iter().filter(|&&pixel| pixel > 128).count();
            assert!((15..400).contains(&dark), "{dark}");
        }
    }
}
