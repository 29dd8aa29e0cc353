//! Distance between encoded and decoded values.

use crate::table::ratio;

/// Relative error and cosine; `None` if the denominator is zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fidelity {
    /// `|x - y| / |x|`.
    pub(crate) relative_error: Option<f64>,
    /// `x y / |x| |y|`.
    pub(crate) cosine: Option<f64>,
}

impl Fidelity {
    /// Compares `decoded` with `values`. Shapes: equal lengths.
    pub(crate) fn of(values: &[f32], decoded: &[f32]) -> Self {
        let mut sums = Sums::default();
        sums.add(values.iter().copied(), decoded);
        sums.fidelity()
    }
}

/// `|x - y|^2`, `|x|^2`, `|y|^2` and `x y`, in binary64.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    error: f64,
    norm: f64,
    decoded: f64,
    product: f64,
}

impl Sums {
    /// Adds values and their decoded counterparts, of equal length.
    pub(crate) fn add(&mut self, values: impl Iterator<Item = f32>, decoded: &[f32]) {
        for (x, &y) in values.zip(decoded) {
            let x = f64::from(x);
            let y = f64::from(y);
            self.error = (x - y).mul_add(x - y, self.error);
            self.norm = x.mul_add(x, self.norm);
            self.decoded = y.mul_add(y, self.decoded);
            self.product = x.mul_add(y, self.product);
        }
    }

    pub(crate) fn fidelity(&self) -> Fidelity {
        Fidelity {
            relative_error: ratio(self.error.sqrt(), self.norm.sqrt()),
            cosine: ratio(self.product, self.norm.sqrt() * self.decoded.sqrt()),
        }
    }
}
