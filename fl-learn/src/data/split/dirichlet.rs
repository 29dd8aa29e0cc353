//! Dirichlet splits by class: one draw a class, which shares its examples out among the clients.

use fl_compress::math;

use super::members::members;
use crate::data::rng::Rng;

/// The parts of all clients: each class by one draw among all clients (Yurochkin et al. 2019). Sizes differ as the draws do.
pub(super) fn plain(labels: &[u8], alpha: f64, clients: usize, seed: u64) -> Vec<Vec<u32>> {
    by_class(labels, alpha, clients, |class| Rng::of(&[seed, 4, class]), |_, _| {})
}

/// As [`plain`], but a client that already has its equal part of the whole set gets none of the classes that follow (the code of
/// Yurochkin et al. 2019; Li et al. 2022). Sizes are more even; the last classes go to few clients.
pub(super) fn balancing(labels: &[u8], alpha: f64, clients: usize, seed: u64) -> Vec<Vec<u32>> {
    let equal = labels.len().div_ceil(clients);
    by_class(
        labels,
        alpha,
        clients,
        |class| Rng::of(&[seed, 2, class]),
        |draws, all| {
            if all.iter().any(|mine| mine.len() < equal) {
                let full = draws.iter_mut().zip(all).filter(|(_, mine)| mine.len() >= equal);
                full.for_each(|(draw, _)| *draw = f64::NEG_INFINITY);
            }
        },
    )
}

/// Shares out class by class. `rng` is the randomness of a class; `adjust` may change the logarithms of the clients' draws,
/// given what the clients have so far.
fn by_class(
    labels: &[u8],
    alpha: f64,
    clients: usize,
    rng: impl Fn(u64) -> Rng,
    adjust: impl Fn(&mut [f64], &[Vec<u32>]),
) -> Vec<Vec<u32>> {
    let mut all: Vec<Vec<u32>> = vec![Vec::new(); clients];
    for (class, mut members) in members(labels).into_iter().enumerate() {
        if members.is_empty() {
            continue;
        }
        let mut rng = rng(class as u64);
        rng.shuffle(&mut members);
        let mut draws: Vec<f64> = (0..clients).map(|_| rng.ln_gamma_draw(alpha)).collect();
        adjust(&mut draws, &all);
        let top = draws.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let shares: Vec<f64> = draws.iter().map(|draw| math::exp(draw - top)).collect();
        let whole: f64 = shares.iter().sum();
        let mut from = 0;
        let mut sum = 0.0;
        for (mine, share) in all.iter_mut().zip(&shares) {
            sum += share;
            // The shares are summed in the order of `whole`, so that the last share ends exactly at the end.
            let to = ((sum / whole * members.len() as f64) as usize).clamp(from, members.len());
            mine.extend_from_slice(&members[from..to]);
            from = to;
        }
    }
    all
}
