//! Muon (Jordan et al. 2024): the momentum of a hidden matrix, orthogonalized by Newton-Schulz steps.
//!
//! ```text
//! m = momentum m + (1 - momentum) g        u = (1 - momentum) g + momentum m (Nesterov), or m
//! p = p (1 - rate decay) - rate * 0.2 sqrt(max(rows, columns)) * orthogonal(u)
//! ```
//!
//! The factor gives the change of a matrix about the root mean square of AdamW's (Liu et al. 2025, arXiv 2502.16982), so one
//! learning rate fits both. This is `torch.optim.Muon(adjust_lr_fn="match_rms_adamw")`, computed in f32 instead of bf16.

use candle_core::{Result, Tensor, Var};
use fl_proto::Muon;

use super::gemm::{View, gemm};
use super::sgd;
use super::slices::{self, transposed};
use super::step_size::StepSize;

/// Coefficients of a Newton-Schulz step (Jordan et al. 2024), which maps a singular value `s` to `a s + b s^3 + c s^5`.
const COEFFICIENTS: [f32; 3] = [3.4445, -4.7750, 2.0315];
/// After these, every singular value that was not tiny is between 0.7 and 1.2.
const STEPS: usize = 5;
/// Smallest norm that a matrix is divided by.
const EPS: f32 = 1e-7;
const OUTER: &[&str] = &[
    "wte",
    "wpe",
    "encoder",
    "head",
    "lm_head",
    "output",
    "classifier",
    "decoder",
    "score",
    "fc",
];

/// A hidden matrix and its momentum. A convolution's filters are rows.
#[derive(Debug)]
pub(super) struct Hidden {
    rows: usize,
    cols: usize,
    pub(super) momentum: Tensor,
}

impl Hidden {
    /// `None` if AdamW trains the tensor `name`: it is no matrix, or one that embeds or predicts. `names`: those of the model.
    pub(super) fn of(name: &str, names: &[&str], var: &Var) -> Result<Option<Self>> {
        let [rows, rest @ ..] = var.dims() else {
            return Ok(None);
        };
        let rows = *rows;
        let cols = rest.iter().product();
        if rest.is_empty() || rows == 0 || cols == 0 || is_outer(name, names) {
            return Ok(None);
        }
        let momentum = var.as_tensor().detach().zeros_like()?;
        Ok(Some(Self { rows, cols, momentum }))
    }

    pub(super) fn step(&mut self, var: &Var, grad: &Tensor, muon: Muon, size: StepSize) -> Result<()> {
        let beta = muon.momentum;
        let part = (1.0 - muon.momentum) * size.scale;
        let mut momentum = slices::with(&self.momentum, |m| Ok(m.to_vec()))?;
        let update = slices::with(grad, |grad| {
            for (m, g) in momentum.iter_mut().zip(grad) {
                *m = beta * *m + part * g;
            }
            let ahead = momentum.iter().zip(grad).map(|(m, g)| beta * m + part * g);
            Ok(if muon.nesterov {
                ahead.collect()
            } else {
                momentum.clone()
            })
        })?;
        let update = orthogonal(update, self.rows, self.cols);
        self.momentum = Tensor::from_vec(momentum, var.shape(), grad.device())?;
        let update = Tensor::from_vec(update, var.shape(), grad.device())?;
        // `decay` shrinks `p` by `rate decay`, whatever the scale of the direction.
        let scale = self.change();
        sgd::plain(var, &update, StepSize { scale, ..size })
    }

    /// As [`Hidden::step`], by candle's kernels; `grad` is clipped.
    pub(super) fn step_on_gpu(&mut self, var: &Var, grad: &Tensor, muon: Muon, size: StepSize) -> Result<()> {
        let beta = f64::from(muon.momentum);
        let grad = (grad * f64::from(1.0 - muon.momentum))?;
        self.momentum = ((&self.momentum * beta)? + &grad)?;
        let update = if muon.nesterov {
            (grad + (&self.momentum * beta)?)?
        } else {
            self.momentum.clone()
        };
        let update = orthogonal_on_device(&update.reshape((self.rows, self.cols))?)?.reshape(var.shape())?;
        let shrunk = (var.as_tensor().detach() * (1.0 - f64::from(size.rate) * f64::from(size.decay)))?;
        var.set(&(shrunk - (update * f64::from(size.rate * self.change()))?)?)
    }

    /// Factor of the orthogonal matrix, for a change of the root mean square of AdamW's.
    fn change(&self) -> f32 {
        0.2 * (self.rows.max(self.cols) as f32).sqrt()
    }
}

/// Whether the module of this parameter embeds or predicts: the last but one part of its name says so, or it is the last of
/// the layers `fc1`, `fc2`, ... that no other module holds.
fn is_outer(name: &str, names: &[&str]) -> bool {
    let module = name.rsplit_once('.').map_or(name, |(module, _)| module);
    let own = module.rsplit('.').next().unwrap_or(module);
    if own.contains("embed") || OUTER.contains(&own) {
        return true;
    }
    let last = names.iter().filter_map(|name| layer(name.split('.').next()?)).max();
    layer(module).is_some_and(|number| last == Some(number))
}

/// 3 of `fc3`.
fn layer(module: &str) -> Option<u32> {
    module.strip_prefix("fc")?.parse().ok()
}

/// About `U V^T` of the singular value decomposition `U S V^T` of a row-major matrix. Shapes: `[rows * cols]`.
fn orthogonal(matrix: Vec<f32>, rows: usize, cols: usize) -> Vec<f32> {
    // The Gram matrix of the shorter side is the smaller one.
    if rows > cols {
        return transposed(&orthogonal(transposed(&matrix, rows, cols), cols, rows), cols, rows);
    }
    let [a, b, c] = COEFFICIENTS;
    let mut x = matrix;
    let norm = slices::squares(&x).sqrt() as f32;
    x.iter_mut().for_each(|x| *x /= norm.max(EPS));
    let mut gram = vec![0.0; rows * rows];
    let mut poly = vec![0.0; rows * rows];
    let mut next = vec![0.0; rows * cols];
    for _ in 0..STEPS {
        let view = View::new(&x, rows, cols);
        gemm(&mut gram, view, view.t(), false);
        let square = View::new(&gram, rows, rows);
        gemm(&mut poly, square, square, false);
        poly.iter_mut().zip(&gram).for_each(|(p, g)| *p = b * g + c * *p);
        gemm(&mut next, View::new(&poly, rows, rows), view, false);
        x.iter_mut().zip(&next).for_each(|(x, n)| *x = a * *x + n);
    }
    x
}

/// As [`orthogonal`], by candle's kernels. Shapes: `[rows, cols]`.
fn orthogonal_on_device(matrix: &Tensor) -> Result<Tensor> {
    let (rows, cols) = matrix.dims2()?;
    if rows > cols {
        return orthogonal_on_device(&matrix.t()?.contiguous()?)?.t()?.contiguous();
    }
    let [a, b, c] = COEFFICIENTS.map(f64::from);
    let norm = matrix.sqr()?.sum_all()?.sqrt()?.maximum(f64::from(EPS))?;
    let mut x = matrix.broadcast_div(&norm)?;
    for _ in 0..STEPS {
        let gram = x.matmul(&x.t()?)?;
        let poly = ((&gram * b)? + (gram.matmul(&gram)? * c)?)?;
        x = ((&x * a)? + poly.matmul(&x)?)?;
    }
    Ok(x)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::data::Rng;

    fn random(len: usize) -> Vec<f32> {
        let mut rng = Rng::new(3);
        (0..len).map(|_| rng.normal() as f32).collect()
    }

    #[test]
    fn orthogonal_rows_or_columns_of_about_unit_norm() {
        for (rows, cols) in [(4, 9), (9, 4), (6, 6), (1, 5), (5, 1), (1, 1)] {
            let matrix = random(rows * cols);
            let done = orthogonal(matrix.clone(), rows, cols);
            let (short, of) = match rows <= cols {
                true => (rows, done.clone()),
                false => (cols, transposed(&done, rows, cols)),
            };
            let long = rows.max(cols);
            let mut gram = vec![0.0; short * short];
            let view = View::new(&of, short, long);
            gemm(&mut gram, view, view.t(), false);
            for (at, value) in gram.iter().enumerate() {
                let wanted = f32::from(u8::from(at / short == at % short));
                // A singular value of 0.68 has a square of 0.46.
                assert!((value - wanted).abs() < 0.55, "{rows} x {cols}: [{at}] {value}");
            }
            // The other implementation agrees.
            let matrix = Tensor::from_vec(matrix, (rows, cols), &Device::Cpu).unwrap();
            let other = orthogonal_on_device(&matrix).unwrap();
            let other: Vec<f32> = other.flatten_all().unwrap().to_vec1().unwrap();
            assert!(done.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-4));
        }
        assert_eq!(orthogonal(vec![0.0; 6], 2, 3), [0.0; 6]);
    }

    #[test]
    fn embeddings_heads_gains_and_biases_are_not_hidden() {
        let names = [
            "fc1.weight",
            "fc2.weight",
            "fc3.weight",
            "h.0.mlp.fc1.weight",
            "h.0.mlp.fc2.weight",
        ];
        for (name, outer) in [
            ("fc1.weight", false),
            ("fc2.weight", false),
            ("fc3.weight", true),
            ("h.0.mlp.fc2.weight", false),
            ("fc.weight", true),
            ("lm_head.weight", true),
            ("encoder.weight", true),
            ("bert.encoder.layer.0.attention.output.dense.weight", false),
            ("lm_head.lora_A.weight", false),
            ("model.embed_tokens.weight", true),
            ("transformer.wpe.weight", true),
            ("h.0.attn.c_attn.weight", false),
            ("lstm.weight_hh_l0", false),
            ("conv1.weight", false),
        ] {
            assert_eq!(is_outer(name, &names), outer, "{name}");
        }
        let hidden = |shape: &[usize]| {
            let var = Var::zeros(shape, candle_core::DType::F32, &Device::Cpu).unwrap();
            let found = Hidden::of("conv1.weight", &names, &var).unwrap();
            found.map(|hidden| (hidden.rows, hidden.cols))
        };
        assert_eq!((hidden(&[8]), hidden(&[]), hidden(&[3, 0])), (None, None, None));
        assert_eq!((hidden(&[8, 4]), hidden(&[8, 2, 3, 3])), (Some((8, 4)), Some((8, 18))));
    }
}
