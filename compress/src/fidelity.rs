//! Fidelity of a frame to its update, per section.
//!
//! All figures derive from inner products of three vectors, summed in `f64` while the frame is decoded for the memory:
//! `d`, the decoded frame; `v`, the input of the encoder; and `w`, the vector by which the memory changed the raw
//! update into `v`:
//!
//! | memory | `w` | raw update | receiver adds |
//! |---|---|---|---|
//! | none | | `v` | `d` |
//! | error feedback | the residual before | `v - decay w` | `d` |
//! | CAFe | the predictor | `v + w` | `d + w` |
//! | EF21 | the shadow | `v + w` | `d + w` |
//! | DGC | the velocity | `w` | `d` |
//! | CAFe with error feedback | predictor less decay times the residual before | `v + w` | `d + x`, x the predictor |

use serde::{Deserialize, Serialize};

use crate::simd::vectorized;

// Independent sums, so that the compiler vectorizes.
const LANES: usize = 8;
// A raw update whose energy is below this share of the encoded energy is rounding error of `f32`, whose relative error
// of 2^-24 squared is 4e-15.
const ROUNDING: f64 = 1e-12;

/// How much of an update one section of its frame carries, as reported by the sender: a receiver cannot check `cosine`,
/// `kept` and `age`, which require the update before compression.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Fidelity {
    /// Cosine of the angle between the vector that the receiver adds to its model and the raw update (without residual
    /// or predictor). Range: -1 to 1. It is 1 if the raw update is zero, and 0 if the receiver adds zero for a nonzero
    /// update.
    pub cosine: f32,
    /// Energy kept: `1 - |v - d|^2 / |v|^2`, where `v` is the input of the encoder (with residual, without predictor)
    /// and `d` the decoded frame. 1: exact. 0: no better than sending nothing. Below 0: worse, clamped to -1. It is 1
    /// if `v` is zero.
    pub kept: f32,
    /// Number of nonzero decoded values.
    pub nonzeros: u64,
    /// Age of the residual: number of updates of this sender, including this one, since the receiver last applied one
    /// with a nonzero value in this section; 0 if this one has such a value.
    pub age: u32,
}

impl Fidelity {
    /// Whether the figures are in their ranges, for a section of `len` values.
    pub fn is_valid(&self, len: u64) -> bool {
        let shares = -1.0..=1.0;
        shares.contains(&self.cosine) && shares.contains(&self.kept) && self.nonzeros <= len
    }
}

/// Expresses the raw update and the received update by the vectors of [`Products`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Relation {
    /// The raw update is `encoded * v + other * w`.
    pub(crate) encoded: f64,
    pub(crate) other: f64,
    /// The receiver adds `d + added * w + x`; with an `x`, `added` is 0.
    pub(crate) added: f64,
}

impl Relation {
    pub(crate) fn new(encoded: f64, other: f64, added: f64) -> Self {
        Self { encoded, other, added }
    }
}

/// Inner products over a section of the decoded values (`d`), the encoded values (`v`) and the memory's vector (`w`).
/// `x` is what the receiver adds beside `d` and `w`, and `r` the raw update: zeros for all memories but one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Products {
    pub(crate) dd: f64,
    pub(crate) dv: f64,
    pub(crate) dw: f64,
    pub(crate) vv: f64,
    pub(crate) vw: f64,
    pub(crate) ww: f64,
    pub(crate) xd: f64,
    pub(crate) xr: f64,
    pub(crate) xx: f64,
    pub(crate) nonzeros: u64,
}

impl Products {
    /// Adds the products that do not depend on the frame. Shapes: `v` and `w` have equal lengths.
    pub(crate) fn encoded(&mut self, v: &[f32], w: Option<&[f32]>) {
        let Some(w) = w else {
            self.vv += dot(v, v);
            return;
        };
        let [vv, vw, ww] = dots(v, w);
        (self.vv, self.vw, self.ww) = (self.vv + vv, self.vw + vw, self.ww + ww);
    }

    /// Adds the products of a block of decoded values. Shapes: all lengths are equal.
    pub(crate) fn dense(&mut self, d: &[f32], v: &[f32], w: Option<&[f32]>) {
        self.dd += dot(d, d);
        self.dv += dot(d, v);
        self.dw += w.map_or(0.0, |w| dot(d, w));
        self.nonzeros += nonzeros(d);
    }

    /// Adds the products of decoded values at `indices` of `v` and `w`.
    pub(crate) fn sparse(&mut self, indices: &[u32], d: &[f32], v: &[f32], w: Option<&[f32]>) {
        let mut dd = 0.0;
        let mut dv = 0.0;
        let mut dw = 0.0;
        for (&index, &d) in indices.iter().zip(d) {
            let at = index as usize;
            let d = f64::from(d);
            dd += d * d;
            dv += d * f64::from(v[at]);
            dw += w.map_or(0.0, |w| d * f64::from(w[at]));
        }
        (self.dd, self.dv, self.dw) = (self.dd + dd, self.dv + dv, self.dw + dw);
        self.nonzeros += nonzeros(d);
    }

    /// The fidelity. `age` is the age to report if all values of this frame's section are zero.
    pub(crate) fn fidelity(&self, relation: Relation, age: u32) -> Fidelity {
        let &Self {
            dd,
            dv,
            dw,
            vv,
            vw,
            ww,
            xd,
            xr,
            xx,
            nonzeros,
        } = self;
        let Relation {
            encoded: a,
            other: c,
            added: g,
        } = relation;
        let raw = a * a * vv + 2.0 * a * c * vw + c * c * ww;
        let received = dd + 2.0 * g * dw + g * g * ww + 2.0 * xd + xx;
        let product = a * dv + c * dw + g * (a * vw + c * ww) + xr;
        let cosine = if raw <= ROUNDING * (vv + c * c * ww) {
            1.0
        } else if received <= 0.0 {
            0.0
        } else {
            product / (raw * received).sqrt()
        };
        let kept = if vv > 0.0 { (2.0 * dv - dd) / vv } else { 1.0 };
        Fidelity {
            cosine: cosine.clamp(-1.0, 1.0) as f32,
            kept: kept.clamp(-1.0, 1.0) as f32,
            nonzeros,
            age: if nonzeros > 0 { 0 } else { age },
        }
    }
}

pub(crate) fn nonzeros(values: &[f32]) -> u64 {
    // `u32` counters are as wide as the values, so a comparison vectorizes to one subtraction. The chunks are short
    // enough that they do not overflow.
    let parts = values.chunks(1 << 16);
    let counts = parts.map(|part| {
        vectorized(
            #[inline(always)]
            || part.iter().map(|value| u32::from(*value != 0.0)).sum::<u32>(),
        )
    });
    counts.map(u64::from).sum()
}

/// Inner product, summed in a fixed order. Shapes: equal lengths.
#[inline(never)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f64 {
    let len = a.len().min(b.len());
    let (a, a_rest) = a[..len].as_chunks::<LANES>();
    let (b, b_rest) = b[..len].as_chunks::<LANES>();
    // Lanes are added outside of the kernel: a kernel that ends with that is compiled for two lanes.
    let sums = vectorized(
        #[inline(always)]
        || {
            let mut sums = [0.0f64; LANES];
            for (a, b) in a.iter().zip(b) {
                add_products(&mut sums, &a.map(f64::from), &b.map(f64::from));
            }
            sums
        },
    );
    sums.iter().sum::<f64>() + dot_of_rest(a_rest, b_rest)
}

/// `[a a, a b, b b]`, each as [`dot`] computes it, in one pass. Shapes: equal lengths.
#[inline(never)]
fn dots(a: &[f32], b: &[f32]) -> [f64; 3] {
    let len = a.len().min(b.len());
    let (a, a_rest) = a[..len].as_chunks::<LANES>();
    let (b, b_rest) = b[..len].as_chunks::<LANES>();
    let [aa, ab, bb] = vectorized(
        #[inline(always)]
        || {
            let [mut aa, mut ab, mut bb] = [[0.0f64; LANES]; 3];
            for (a, b) in a.iter().zip(b) {
                let a = a.map(f64::from);
                let b = b.map(f64::from);
                add_products(&mut aa, &a, &a);
                add_products(&mut ab, &a, &b);
                add_products(&mut bb, &b, &b);
            }
            [aa, ab, bb]
        },
    );
    [(aa, a_rest, a_rest), (ab, a_rest, b_rest), (bb, b_rest, b_rest)]
        .map(|(sums, a, b)| sums.iter().sum::<f64>() + dot_of_rest(a, b))
}

#[inline(always)]
fn add_products(sums: &mut [f64; LANES], a: &[f64; LANES], b: &[f64; LANES]) {
    for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
        *sum += a * b;
    }
}

fn dot_of_rest(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}
