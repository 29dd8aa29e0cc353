//! Dirichlet split by client: each client draws its proportions of the classes, and all clients have the same size.

use fl_compress::math;

use super::members::members;
use super::slice::slice;
use crate::data::rng::Rng;

/// The part of `client`, in no particular order. The clients take one example each in turn, of a class drawn by their own
/// proportions among the classes that are not exhausted (Hsu et al. 2019; Acar et al. 2021).
pub(super) fn split(labels: &[u8], alpha: f64, client: u32, clients: u32, seed: u64) -> Vec<u32> {
    let mut pools = members(labels);
    let mut rng = Rng::of(&[seed, 5]);
    pools.iter_mut().for_each(|pool| rng.shuffle(pool));
    let sizes: Vec<usize> = (0..clients).map(|at| slice(labels.len(), at, clients).len()).collect();
    let mut takers: Vec<Taker> = (0..clients)
        .map(|at| Taker::new(&mut Rng::of(&[seed, 6, u64::from(at)]), alpha, pools.len()))
        .collect();
    let mut mine = Vec::with_capacity(sizes[client as usize]);
    for turn in 0..sizes.iter().copied().max().unwrap_or(0) {
        for (at, taker) in takers.iter_mut().enumerate().filter(|(at, _)| turn < sizes[*at]) {
            let class = taker.draw(&pools, &mut rng);
            let Some(example) = pools[class].pop() else { continue };
            if at == client as usize {
                mine.push(example);
            }
        }
    }
    mine
}

/// One client's proportions of the classes.
struct Taker {
    /// Logarithms of the proportions, up to a constant.
    ln: Vec<f64>,
    /// The proportions among the classes with `open`, up to a factor; the largest is 1.
    shares: Vec<f64>,
    /// Classes that were not exhausted when `shares` was computed.
    open: usize,
}

impl Taker {
    fn new(rng: &mut Rng, alpha: f64, classes: usize) -> Self {
        Self {
            ln: (0..classes).map(|_| rng.ln_gamma_draw(alpha)).collect(),
            shares: Vec::new(),
            open: usize::MAX,
        }
    }

    /// A class with examples left; any class if there is none.
    fn draw(&mut self, pools: &[Vec<u32>], rng: &mut Rng) -> usize {
        let open = pools.iter().filter(|pool| !pool.is_empty()).count();
        if open != self.open {
            // Relative to the largest proportion that is left: the others may all have underflowed beside one that is gone.
            let top = self
                .ln
                .iter()
                .zip(pools)
                .filter(|(_, pool)| !pool.is_empty())
                .map(|(ln, _)| *ln)
                .fold(f64::NEG_INFINITY, f64::max);
            self.shares = self
                .ln
                .iter()
                .zip(pools)
                .map(|(ln, pool)| if pool.is_empty() { 0.0 } else { math::exp(ln - top) })
                .collect();
            self.open = open;
        }
        let mut rest = rng.unit() * self.shares.iter().sum::<f64>();
        let mut last = 0;
        for (class, share) in self.shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            last = class;
            if rest < *share {
                break;
            }
            rest -= share;
        }
        last
    }
}
