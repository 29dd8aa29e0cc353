//! How faithful a frame is to the update that it carries, section by section.
//!
//! Everything is computed from products of three vectors, summed in `f64` while the frame is decoded for the memory:
//! `d`, what the frame decodes to; `v`, what was encoded; and `w`, what the memory put between `v` and the raw update:
//!
//! | memory | `w` | raw update | receiver adds |
//! |---|---|---|---|
//! | none | | `v` | `d` |
//! | error feedback | the residual before | `v - decay w` | `d` |
//! | CAFe | the predictor | `v + w` | `d + w` |
//! | EF21 | the shadow | `v + w` | `d + w` |
//! | DGC | the velocity | `w` | `d` |

/// Values whose products are summed side by side, so that the compiler uses vector lanes.
const LANES: usize = 8;
/// A raw update whose energy is below this share of the energy encoded is rounding of `f32`.
const ROUNDING: f64 = 1e-12;

/// How much of an update one section of its frame carries. The sender's figures: a receiver cannot check `cosine`, `kept`
/// and `age`, which need the update before compression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fidelity {
    /// Cosine of the angle between what the receiver adds to its model and the raw update (before residual or predictor),
    /// -1 to 1. 1 if the raw update is zero, 0 if the receiver adds nothing of one that is not.
    pub cosine: f32,
    /// Energy kept: `1 - |v - d|^2 / |v|^2`, where `v` was encoded (residual included, predictor taken off) and `d` is what
    /// the frame decodes to. 1: exact. 0: as good as sending nothing. Below 0: worse than that; at least -1, where the
    /// error has twice the energy of the update or more. 1 if `v` is zero.
    pub kept: f32,
    /// Decoded values that are not zero.
    pub nonzeros: u64,
    /// Age of the residual: updates of this sender since the receiver last took one in which a value of this section was
    /// not zero, this one included; 0 if this one has such a value.
    pub age: u32,
}

impl Fidelity {
    /// Whether the figures are in their ranges, for a section of `len` values.
    pub fn is_valid(&self, len: u64) -> bool {
        let is_share = |value: f32| (-1.0..=1.0).contains(&value);
        is_share(self.cosine) && is_share(self.kept) && self.nonzeros <= len
    }
}

/// How raw update and received update follow from the vectors of [`Products`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Relation {
    /// The raw update is `encoded * v + other * w`.
    pub(crate) encoded: f64,
    pub(crate) other: f64,
    /// The receiver adds `d + added * w`.
    pub(crate) added: f64,
}

/// Sums of products over the values of a section: of what is decoded (`d`), encoded (`v`) and between (`w`).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Products {
    pub(crate) dd: f64,
    pub(crate) dv: f64,
    pub(crate) dw: f64,
    pub(crate) vv: f64,
    pub(crate) vw: f64,
    pub(crate) ww: f64,
    pub(crate) nonzeros: u64,
}

impl Products {
    /// Adds the products that do not need the frame. Shapes: both alike.
    pub(crate) fn encoded(&mut self, v: &[f32], w: Option<&[f32]>) {
        self.vv += dot(v, v);
        if let Some(w) = w {
            self.vw += dot(v, w);
            self.ww += dot(w, w);
        }
    }

    /// Adds the products of a block of decoded values. Shapes: all alike.
    pub(crate) fn dense(&mut self, d: &[f32], v: &[f32], w: Option<&[f32]>) {
        self.dd += dot(d, d);
        self.dv += dot(d, v);
        self.dw += w.map_or(0.0, |w| dot(d, w));
        self.nonzeros += nonzeros(d);
    }

    /// Adds the products of decoded values at `indices` of `v` and `w`.
    pub(crate) fn sparse(&mut self, indices: &[u32], d: &[f32], v: &[f32], w: Option<&[f32]>) {
        let (mut dd, mut dv, mut dw) = (0.0, 0.0, 0.0);
        for (&index, &d) in indices.iter().zip(d) {
            let (at, d) = (index as usize, f64::from(d));
            dd += d * d;
            dv += d * f64::from(v[at]);
            dw += w.map_or(0.0, |w| d * f64::from(w[at]));
        }
        (self.dd, self.dv, self.dw) = (self.dd + dd, self.dv + dv, self.dw + dw);
        self.nonzeros += nonzeros(d);
    }

    /// The figures; `age` is that of a section whose values are all zero in this frame.
    pub(crate) fn fidelity(&self, relation: Relation, age: u32) -> Fidelity {
        let &Self {
            dd,
            dv,
            dw,
            vv,
            vw,
            ww,
            nonzeros,
        } = self;
        let Relation {
            encoded: a,
            other: c,
            added: g,
        } = relation;
        let raw = a * a * vv + 2.0 * a * c * vw + c * c * ww;
        let received = dd + 2.0 * g * dw + g * g * ww;
        let product = a * dv + c * dw + g * (a * vw + c * ww);
        let cosine = if raw <= ROUNDING * (vv + c * c * ww) {
            1.0
        } else if received <= 0.0 {
            0.0
        } else {
            product / (raw * received).sqrt()
        };
        let kept = if vv > 0.0 { (2.0 * dv - dd) / vv } else { 1.0 };
        let within = |value: f64| value.clamp(-1.0, 1.0) as f32;
        Fidelity {
            cosine: within(cosine),
            kept: within(kept),
            nonzeros,
            age: if nonzeros > 0 { 0 } else { age },
        }
    }
}

/// Counts the values that are not zero.
pub(crate) fn nonzeros(values: &[f32]) -> u64 {
    // Lanes as wide as the values, so that a comparison is one subtraction; of few enough values not to overflow.
    let parts = values.chunks(1 << 16);
    let count = |part: &[f32]| part.iter().map(|value| u32::from(*value != 0.0)).sum::<u32>();
    parts.map(|part| u64::from(count(part))).sum()
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    let len = a.len().min(b.len());
    let (a, a_rest) = a[..len].as_chunks::<LANES>();
    let (b, b_rest) = b[..len].as_chunks::<LANES>();
    let mut sums = [0.0f64; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += f64::from(a[lane]) * f64::from(b[lane]);
        }
    }
    let rest = a_rest.iter().zip(b_rest);
    let rest: f64 = rest.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
    sums.iter().sum::<f64>() + rest
}
