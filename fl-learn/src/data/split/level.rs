//! The least size of a client's part.

/// Fewest examples of a client, if there are enough for all.
pub(super) const MIN_EXAMPLES: usize = 10;

/// Moves examples from the largest client to clients with fewer than 10, or fewer than their equal part of the whole if that is
/// less.
pub(super) fn level(mut all: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
    let whole: usize = all.iter().map(Vec::len).sum();
    let least = MIN_EXAMPLES.min(whole / all.len().max(1));
    for poor in 0..all.len() {
        while all[poor].len() < least {
            let Some(rich) = (0..all.len())
                .rev()
                .max_by_key(|&i| all[i].len())
                .filter(|&i| i != poor)
            else {
                return all;
            };
            let Some(example) = all[rich].pop() else { return all };
            all[poor].push(example);
        }
    }
    all
}
