//! Label shards (McMahan et al. 2017): the examples in the order of their labels, cut into equal shards that are dealt out.

use super::slice::slice;
use crate::data::error::Error;
use crate::data::rng::Rng;

/// The shards of `client`, in no particular order.
pub(super) fn split(labels: &[u8], shards: u32, client: u32, clients: u32, seed: u64) -> Result<Vec<u32>, Error> {
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
