//! Bytes on the socket, counted under TLS. The ledger must equal these counts. The meter never changes what passes.

pub(crate) mod accepted;
mod arrivals;
pub(crate) mod counter;
pub(crate) mod linger;
mod metered;
mod records;
#[cfg(test)]
mod tests;

pub use accepted::{Accepted, PeerInfo};
pub use counter::Meter;
pub use metered::Metered;
