//! Cohort selection. The choice depends on the seed, the round and the attempt, and not on the order of arrival.

use std::collections::BTreeSet;

use fl_proto::ClientId;

/// Selects `size` of `candidates` uniformly, or all if there are fewer: those with the smallest hashes of their names, keyed
/// with (`seed`, `round`, `attempt`).
pub fn select<'a>(
    candidates: impl Iterator<Item = &'a ClientId>,
    size: usize,
    seed: u64,
    round: u64,
    attempt: u32,
) -> BTreeSet<ClientId> {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&round.to_le_bytes());
    key[16..20].copy_from_slice(&attempt.to_le_bytes());
    let mut ranked: Vec<_> = candidates
        .map(|client| (*blake3::keyed_hash(&key, client.as_str().as_bytes()).as_bytes(), client))
        .collect();
    ranked.sort_unstable();
    ranked
        .into_iter()
        .take(size)
        .map(|(_, client)| client.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(n: usize) -> Vec<ClientId> {
        (0..n).map(|i| format!("client-{i}").parse().unwrap()).collect()
    }

    #[test]
    fn the_order_of_arrival_does_not_matter() {
        let mut names = clients(20);
        let chosen = select(names.iter(), 7, 42, 3, 1);
        names.reverse();
        assert_eq!(select(names.iter(), 7, 42, 3, 1), chosen);
        assert_eq!(chosen.len(), 7);
        assert_ne!(select(names.iter(), 7, 42, 3, 2), chosen);
        assert_ne!(select(names.iter(), 7, 42, 4, 1), chosen);
        assert_ne!(select(names.iter(), 7, 43, 3, 1), chosen);
        assert_eq!(select(names.iter(), 100, 42, 3, 1).len(), 20);
    }

    #[test]
    fn every_client_is_as_likely_as_any_other() {
        let names = clients(10);
        let mut times = std::collections::BTreeMap::new();
        for seed in 0..4_000 {
            for client in select(names.iter(), 3, seed, 1, 1) {
                *times.entry(client).or_insert(0u32) += 1;
            }
        }
        // 4000 draws of probability 0.3: mean 1200, standard deviation 29.
        assert!(
            times.len() == 10 && times.values().all(|&n| (1_085..=1_315).contains(&n)),
            "{times:?}"
        );
    }
}
