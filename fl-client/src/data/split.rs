//! Splits a data set among the clients of a federation, as a function of a seed and the client's number.

use serde::{Deserialize, Serialize};

use super::error::Error;
use super::rng::Rng;

/// Fewest examples of a client, if there are enough for all.
pub(super) const MIN_EXAMPLES: usize = 10;

/// How the training examples are split.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// Every client draws uniformly from all classes.
    #[default]
    Iid,
    /// Each class is shared out by a draw from the Dirichlet distribution of this concentration, 0.001 to 1,000,000, among the
    /// clients that have less than their equal part of the whole set (the self-balancing variant of Yurochkin et al. 2019 and
    /// Li et al. 2022: labels more skewed and sizes more even than the plain split of Hsu et al. 2019). 0.1 gives most clients
    /// few classes, 100 is close to iid.
    Dirichlet(f64),
    /// The examples are sorted by label and cut into shards, and every client gets this many (McMahan et al. 2017).
    ByLabel(u32),
}

/// Positions of the examples of `client` (from 0) of `clients`, ascending. Every position of `labels` belongs to exactly one
/// client.
///
/// # Errors
/// `Config` if there is no such client, fewer examples than clients, or a parameter out of range.
pub fn share(labels: &[u8], split: Split, client: u32, clients: u32, seed: u64) -> Result<Vec<u32>, Error> {
    if client >= clients {
        return Err(Error::config(
            "client",
            format!("is {client}, but must be below `clients` = {clients}"),
        ));
    }
    if clients as usize > labels.len() {
        return Err(Error::config(
            "clients",
            format!("is {clients}, more than the {} examples", labels.len()),
        ));
    }
    split.check()?;
    let mut mine = match split {
        Split::Iid => {
            let mut order: Vec<u32> = (0..labels.len() as u32).collect();
            Rng::of(&[seed, 1]).shuffle(&mut order);
            order[slice(labels.len(), client, clients)].to_vec()
        }
        Split::Dirichlet(alpha) => {
            let mut all = dirichlet(labels, alpha, clients as usize, seed);
            level(&mut all, MIN_EXAMPLES.min(labels.len() / clients as usize));
            std::mem::take(&mut all[client as usize])
        }
        Split::ByLabel(shards) => by_label(labels, shards, client, clients, seed)?,
    };
    mine.sort_unstable();
    Ok(mine)
}

/// The contiguous part of `0..len` that belongs to `client`. All parts together are the whole.
pub fn slice(len: usize, client: u32, clients: u32) -> std::ops::Range<usize> {
    let cut = |at: u32| (len as u128 * u128::from(at) / u128::from(clients.max(1))) as usize;
    cut(client)..cut(client.saturating_add(1).min(clients))
}

impl Split {
    /// # Errors
    /// `Config` if a parameter is out of range.
    pub(super) fn check(self) -> Result<(), Error> {
        match self {
            Self::Dirichlet(alpha) if !(1e-3..=1e6).contains(&alpha) => Err(Error::config(
                "split.dirichlet",
                format!("is {alpha}, but must be 0.001 to 1000000"),
            )),
            Self::ByLabel(0) => Err(Error::config("split.by-label", "is 0, but must be at least 1")),
            _ => Ok(()),
        }
    }
}

/// Splits class by class, each by one draw from the Dirichlet distribution. A client that already has its equal part of the
/// whole set gets none of the classes that follow (Yurochkin et al. 2019; Li et al. 2022), so clients differ much more in their
/// classes than in their sizes.
fn dirichlet(labels: &[u8], alpha: f64, clients: usize, seed: u64) -> Vec<Vec<u32>> {
    let equal = labels.len().div_ceil(clients);
    let mut all: Vec<Vec<u32>> = vec![Vec::new(); clients];
    for class in 0..=u8::MAX {
        let mut members: Vec<u32> = (0..labels.len() as u32)
            .filter(|&i| labels[i as usize] == class)
            .collect();
        if members.is_empty() {
            continue;
        }
        let mut rng = Rng::of(&[seed, 2, u64::from(class)]);
        rng.shuffle(&mut members);
        let mut draws: Vec<f64> = (0..clients).map(|_| rng.ln_gamma_draw(alpha)).collect();
        if all.iter().any(|mine| mine.len() < equal) {
            let full = draws.iter_mut().zip(&all).filter(|(_, mine)| mine.len() >= equal);
            full.for_each(|(draw, _)| *draw = f64::NEG_INFINITY);
        }
        let top = draws.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let shares: Vec<f64> = draws.iter().map(|draw| (draw - top).exp()).collect();
        let whole: f64 = shares.iter().sum();
        let (mut from, mut sum) = (0, 0.0);
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

/// Moves examples from the largest client to clients with fewer than `least`.
fn level(all: &mut [Vec<u32>], least: usize) {
    for poor in 0..all.len() {
        while all[poor].len() < least {
            let Some(rich) = (0..all.len())
                .rev()
                .max_by_key(|&i| all[i].len())
                .filter(|&i| i != poor)
            else {
                return;
            };
            let Some(example) = all[rich].pop() else { return };
            all[poor].push(example);
        }
    }
}

fn by_label(labels: &[u8], shards: u32, client: u32, clients: u32, seed: u64) -> Result<Vec<u32>, Error> {
    let total = match shards
        .checked_mul(clients)
        .filter(|&total| total as usize <= labels.len())
    {
        Some(total) => total,
        None => {
            let reason = format!(
                "gives {shards} shards to {clients} clients, but there are {} examples",
                labels.len()
            );
            return Err(Error::config("split.by-label", reason));
        }
    };
    let mut sorted: Vec<u32> = (0..labels.len() as u32).collect();
    sorted.sort_by_key(|&i| labels[i as usize]);
    let mut deal: Vec<u32> = (0..total).collect();
    Rng::of(&[seed, 3]).shuffle(&mut deal);
    let mine = &deal[(client * shards) as usize..((client + 1) * shards) as usize];
    Ok(mine
        .iter()
        .flat_map(|&shard| sorted[slice(sorted.len(), shard, total)].iter().copied())
        .collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_split() -> impl Strategy<Value = Split> {
        prop_oneof![
            Just(Split::Iid),
            (-3.0f64..3.0).prop_map(|power| Split::Dirichlet(10f64.powf(power))),
            (1u32..4).prop_map(Split::ByLabel)
        ]
    }

    proptest! {
        #[test]
        fn every_example_goes_to_exactly_one_client(
            labels in prop::collection::vec(0u8..10, 60..400), split in any_split(), clients in 1u32..15, seed: u64
        ) {
            let mut all = Vec::new();
            for client in 0..clients {
                let mine = share(&labels, split, client, clients, seed).unwrap();
                prop_assert!(mine.len() >= MIN_EXAMPLES.min(labels.len() / clients as usize / 2), "{}", mine.len());
                prop_assert_eq!(&mine, &share(&labels, split, client, clients, seed).unwrap());
                all.extend(mine);
            }
            all.sort_unstable();
            prop_assert_eq!(all, (0..labels.len() as u32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_small_alpha_concentrates_classes_and_a_large_one_spreads_them() {
        let labels: Vec<u8> = (0..10_000).map(|i| (i % 10) as u8).collect();
        let largest = |split| {
            let mine = share(&labels, split, 3, 10, 42).unwrap();
            let count = |class| mine.iter().filter(|&&i| labels[i as usize] == class).count();
            (0..10).map(count).max().unwrap() as f64 / mine.len() as f64
        };
        assert!(largest(Split::Dirichlet(0.05)) > 0.35);
        assert!(largest(Split::Dirichlet(1000.0)) < 0.12);
        assert!(largest(Split::ByLabel(2)) >= 0.5);
        assert!(largest(Split::Iid) < 0.14);
    }

    #[test]
    fn dirichlet_clients_differ_in_classes_more_than_in_numbers() {
        let labels: Vec<u8> = (0..10_000).map(|i| (i % 10) as u8).collect();
        for seed in 0..20 {
            let sizes = (0..10).map(|c| share(&labels, Split::Dirichlet(0.5), c, 10, seed).unwrap().len());
            let largest = sizes.max().unwrap();
            assert!(largest < 2_000, "{largest}");
        }
    }

    #[test]
    fn test_slices_cover_the_whole_without_overlap() {
        for (len, clients) in [(10_000, 10), (7, 3), (2, 5), (0, 4)] {
            let all: Vec<usize> = (0..clients).flat_map(|client| slice(len, client, clients)).collect();
            assert_eq!(all, (0..len).collect::<Vec<_>>());
        }
    }

    #[test]
    fn impossible_shares_are_refused() {
        let labels = [0; 20];
        for (split, client, clients) in [
            (Split::Iid, 3, 3),
            (Split::Iid, 0, 21),
            (Split::Iid, 0, 0),
            (Split::Dirichlet(0.0), 0, 2),
            (Split::Dirichlet(f64::NAN), 0, 2),
            (Split::ByLabel(0), 0, 2),
            (Split::ByLabel(11), 0, 2),
            (Split::ByLabel(u32::MAX), 0, 2),
        ] {
            assert!(
                matches!(share(&labels, split, client, clients, 1), Err(Error::Config { .. })),
                "{split:?}"
            );
        }
    }
}
