//! Equal contiguous parts.

/// The contiguous part of `0..len` that belongs to `client`. All parts together are the whole.
pub fn slice(len: usize, client: u32, clients: u32) -> std::ops::Range<usize> {
    let [from, to] = [client, client.saturating_add(1).min(clients)]
        .map(|at| (len as u128 * u128::from(at) / u128::from(clients.max(1))) as usize);
    from..to
}
