//! Bytes on the socket, counted under TLS. The ledger must equal these counts. The meter never changes what passes; a client's
//! limits below it delay what passes, and a long silence ends it.

#[macro_use]
mod through;

pub(crate) mod accepted;
mod arrivals;
pub(crate) mod counter;
pub(crate) mod linger;
mod metered;
mod pace;
pub(crate) mod paced;
mod records;
pub(crate) mod silence;
#[cfg(test)]
mod tests;

pub use accepted::{Accepted, PeerInfo};
pub use counter::Meter;
pub use metered::Metered;
pub use pace::Pace;
pub use paced::Paces;
pub use silence::Silence;
