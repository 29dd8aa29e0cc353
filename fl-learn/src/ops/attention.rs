//! Causal self-attention of several heads.

use candle_core::{Result, Tensor, bail};

use super::cuda::{Kernel, Products};
use super::gemm::{View, gemm, gemm_strided};
use super::scratch;
use super::shape::expect;
use super::simd::{dot, exp, largest, sum, vectorized};
use super::tape::Tape;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heads {
    /// Texts.
    pub(crate) batch: usize,
    /// Tokens of a text.
    pub(crate) len: usize,
    /// Heads of the queries.
    pub(crate) heads: usize,
    /// Heads of keys and values, a divisor of `heads`: each serves `heads / groups` heads (Ainslie et al. 2023).
    pub(crate) groups: usize,
    /// Values of a head.
    pub(crate) dim: usize,
}

impl Heads {
    fn rows(&self) -> usize {
        self.batch * self.len
    }

    fn check(&self) -> Result<()> {
        let extents = [self.batch, self.len, self.heads, self.groups, self.dim];
        if extents.contains(&0) || !self.heads.is_multiple_of(self.groups) {
            bail!("an attention of {self:?}");
        }
        Ok(())
    }
}

/// `softmax(q k^T / sqrt(dim)) v` of each head, where a token sees itself and the tokens before it (Vaswani et al. 2017,
/// eq. 1). Shapes: `q: [batch * len, heads * dim]`, `k, v: [batch * len, groups * dim]`; returns the shape of `q`.
pub(crate) fn attention(tape: &mut Tape, q: &Tensor, k: &Tensor, v: &Tensor, heads: Heads) -> Result<Tensor> {
    heads.check()?;
    let wide = heads.heads * heads.dim;
    let narrow = heads.groups * heads.dim;
    expect("the queries of an attention", q, &[heads.rows(), wide])?;
    expect("the keys of an attention", k, &[heads.rows(), narrow])?;
    expect("the values of an attention", v, &[heads.rows(), narrow])?;
    let products = tape.products();
    tape.apply(
        [q, k, v],
        q.shape(),
        |inputs, _| {
            let (out, shares) = forward(apart(inputs, heads), heads);
            (out, move |grad, inputs| {
                backward(apart(inputs, heads), &shares, &grad, heads).map(Some)
            })
        },
        |inputs, _| {
            let (out, pass) = OnGpu::new(inputs, products, heads)?;
            Ok((out, move |grad| Ok(pass.backward(&grad)?.map(Some))))
        },
    )
}

/// As [`attention`], with queries, keys and values of a token one after another. Shapes:
/// `qkv: [batch * len, 3 * heads * dim]`; returns `[batch * len, heads * dim]`.
pub(crate) fn attention_packed(tape: &mut Tape, qkv: &Tensor, heads: Heads) -> Result<Tensor> {
    heads.check()?;
    let width = heads.heads * heads.dim;
    let narrow = heads.groups * heads.dim;
    expect("queries, keys and values", qkv, &[heads.rows(), width + 2 * narrow])?;
    if narrow != width {
        bail!("packed queries, keys and values of {heads:?}");
    }
    let products = tape.products();
    tape.apply(
        [qkv],
        (heads.rows(), width),
        |[qkv], _| {
            let (out, shares) = forward(packed(qkv, width), heads);
            (out, move |grad, [qkv]| {
                let parts = backward(packed(qkv, width), &shares, &grad, heads);
                let mut out = Vec::with_capacity(3 * grad.len());
                for row in 0..heads.rows() {
                    parts
                        .iter()
                        .for_each(|part| out.extend_from_slice(&part[row * width..][..width]));
                }
                [Some(out)]
            })
        },
        |[qkv], _| {
            let part = |at: usize| qkv.narrow(1, at * width, width);
            let (out, pass) = OnGpu::new([part(0)?, part(1)?, part(2)?], products, heads)?;
            Ok((out, move |grad| Ok([Some(Tensor::cat(&pass.backward(&grad)?, 1)?)])))
        },
    )
}

/// Queries, keys and values, each in rows of its own.
fn apart([q, k, v]: [&[f32]; 3], heads: Heads) -> [Rows<'_>; 3] {
    let wide = heads.heads * heads.dim;
    let narrow = heads.groups * heads.dim;
    [Rows::new(q, wide), Rows::new(k, narrow), Rows::new(v, narrow)]
}

/// Queries, keys and values of rows that hold all three.
fn packed(values: &[f32], width: usize) -> [Rows<'_>; 3] {
    [0, 1, 2].map(|at| Rows {
        values,
        stride: 3 * width,
        first: at * width,
    })
}

/// What the way back of an attention on a GPU needs, in the type of products; `shares` in `f32`. Shapes:
/// `q, k, v: [batch, heads, len, dim]`, `shares: [batch, heads, len, len]`.
struct OnGpu {
    heads: Heads,
    products: Products,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    shares: Tensor,
}

impl OnGpu {
    /// The output, and what the way back needs.
    fn new([q, k, v]: [Tensor; 3], products: Products, heads: Heads) -> Result<(Tensor, Self)> {
        let Heads {
            batch,
            len,
            groups,
            dim,
            ..
        } = heads;
        let split = |x: &Tensor, count: usize| {
            let x = products.operand(x)?.reshape((batch, len, count, dim))?;
            x.transpose(1, 2)?.contiguous()
        };
        let shared = |x: &Tensor| match heads.heads / groups {
            1 => split(x, groups),
            each => {
                let x = split(x, groups)?.unsqueeze(2)?;
                let x = x.broadcast_as((batch, groups, each, len, dim))?;
                x.reshape((batch, heads.heads, len, dim))
            }
        };
        let q = split(&q, heads.heads)?;
        let k = shared(&k)?;
        let v = shared(&v)?;
        let shares = products.of(&q, &k.t()?)?;
        Kernel::of_rows("causal_softmax", batch * heads.heads * len, len)
            .changes([&shares])
            .ints(&[len])
            .float(scale(dim))
            .launch::<0>()?;
        let out = products.of(&products.operand(&shares)?, &v)?.transpose(1, 2)?;
        let out = out.reshape((batch * len, heads.heads * dim))?;
        Ok((
            out,
            Self {
                heads,
                products,
                q,
                k,
                v,
                shares,
            },
        ))
    }

    /// Gradients of queries, keys and values, of their shapes.
    fn backward(&self, grad: &Tensor) -> Result<[Tensor; 3]> {
        let Heads {
            batch,
            len,
            heads,
            groups,
            dim,
        } = self.heads;
        let Self {
            products,
            q,
            k,
            v,
            shares,
            ..
        } = self;
        let grad = products.operand(grad)?.reshape((batch, len, heads, dim))?;
        let grad = grad.transpose(1, 2)?.contiguous()?;
        let dv = products.of(&products.operand(shares)?.t()?, &grad)?;
        let d_scores = products.of(&grad, &v.t()?)?;
        Kernel::of_rows("causal_softmax_back", batch * heads * len, len)
            .changes([&d_scores])
            .reads([shares])
            .ints(&[len])
            .float(scale(dim))
            .launch::<0>()?;
        let d_scores = products.operand(&d_scores)?;
        let dq = products.of(&d_scores, k)?;
        let dk = products.of(&d_scores.t()?, q)?;
        let joined = |x: Tensor, count: usize| {
            let x = match heads / count {
                1 => x,
                each => x.reshape((batch, count, each, len, dim))?.sum(2)?,
            };
            x.transpose(1, 2)?.reshape((batch * len, count * dim))
        };
        Ok([joined(dq, heads)?, joined(dk, groups)?, joined(dv, groups)?])
    }
}

fn scale(dim: usize) -> f32 {
    1.0 / (dim as f32).sqrt()
}

/// Rows of which each holds the values of all heads, from `first` on.
#[derive(Debug, Clone, Copy)]
struct Rows<'a> {
    values: &'a [f32],
    stride: usize,
    first: usize,
}

impl<'a> Rows<'a> {
    fn new(values: &'a [f32], stride: usize) -> Self {
        Self {
            values,
            stride,
            first: 0,
        }
    }

    /// The rows of one text and one head, `[len, dim]`.
    fn head(&self, text: usize, head: usize, heads: Heads) -> View<'a> {
        let first = text * heads.len * self.stride + self.first + head * heads.dim;
        View::strided(&self.values[first..], heads.len, heads.dim, self.stride)
    }
}

/// The output and the softmax of each head, `[batch, heads, len, len]`.
fn forward([q, k, v]: [Rows<'_>; 3], heads: Heads) -> (Vec<f32>, Vec<f32>) {
    let Heads { len, dim, .. } = heads;
    let width = heads.heads * dim;
    let mut out = vec![0.0; heads.rows() * width];
    let mut shares = vec![0.0; heads.batch * heads.heads * len * len];
    for (at, shares) in shares.chunks_exact_mut(len * len).enumerate() {
        let text = at / heads.heads;
        let head = at % heads.heads;
        let group = head / (heads.heads / heads.groups);
        gemm(shares, q.head(text, head, heads), k.head(text, group, heads).t(), false);
        softmax(shares, len, scale(dim));
        let out = &mut out[text * len * width + head * dim..];
        gemm_strided(
            out,
            width,
            View::new(shares, len, len),
            v.head(text, group, heads),
            false,
        );
    }
    (out, shares)
}

/// Row `i` becomes the softmax of its first `i + 1` values times `scale`, and 0 after them.
fn softmax(scores: &mut [f32], len: usize, scale: f32) {
    vectorized(
        #[inline(always)]
        || {
            for (row, scores) in scores.chunks_exact_mut(len).enumerate() {
                let (seen, hidden) = scores.split_at_mut(row + 1);
                let top = largest(seen);
                for score in &mut *seen {
                    *score = exp((*score - top) * scale);
                }
                let share = 1.0 / sum(seen);
                for score in seen {
                    *score *= share;
                }
                hidden.fill(0.0);
            }
        },
    );
}

/// Gradients of queries, keys and values, each row-major without gaps.
fn backward([q, k, v]: [Rows<'_>; 3], shares: &[f32], grad: &[f32], heads: Heads) -> [Vec<f32>; 3] {
    let Heads { len, dim, .. } = heads;
    let width = heads.heads * dim;
    let narrow = heads.groups * dim;
    let mut dq = vec![0.0; heads.rows() * width];
    let [mut dk, mut dv] = [(); 2].map(|()| vec![0.0; heads.rows() * narrow]);
    let out = Rows::new(grad, width);
    scratch::with(len * len, |scores| {
        for (at, shares) in shares.chunks_exact(len * len).enumerate() {
            let text = at / heads.heads;
            let head = at % heads.heads;
            let shared = heads.heads / heads.groups;
            let group = head / shared;
            let again = !head.is_multiple_of(shared);
            let grad = out.head(text, head, heads);
            let own = text * len * narrow + group * dim;
            let seen = View::new(shares, len, len);
            gemm_strided(&mut dv[own..], narrow, seen.t(), grad, again);
            gemm(scores, grad, v.head(text, group, heads).t(), false);
            softmax_grad(scores, shares, len, scale(dim));
            let scores = View::new(scores, len, len);
            let first = text * len * width + head * dim;
            gemm_strided(&mut dq[first..], width, scores, k.head(text, group, heads), false);
            gemm_strided(&mut dk[own..], narrow, scores.t(), q.head(text, head, heads), again);
        }
    });
    [dq, dk, dv]
}

/// From the gradient of the softmax to that of the scores, in place.
fn softmax_grad(grad: &mut [f32], shares: &[f32], len: usize, scale: f32) {
    vectorized(
        #[inline(always)]
        || {
            for (grad, shares) in grad.chunks_exact_mut(len).zip(shares.chunks_exact(len)) {
                let along = dot(grad, shares);
                for (g, p) in grad.iter_mut().zip(shares) {
                    *g = p * (*g - along) * scale;
                }
            }
        },
    );
}
