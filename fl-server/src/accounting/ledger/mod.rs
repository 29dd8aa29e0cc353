//! The ledger: what every byte on a socket was for, by round and client.
//!
//! A client's row has the bytes of its connections in a round, by purpose. A meter row has the bytes that the endpoint
//! counted independently; the two sums are equal to the byte. Rows add up: a round may have several for one client. Section
//! rows assign the frames' bytes to tensors, and an entry of the hash chain ends each closed round.

mod bytes;
mod fidelity;
mod row;
mod section;
mod stored;
mod totals;

pub use fidelity::Fidelity;
pub(crate) use fidelity::add_all;
pub use fl_report::Flow;
pub use row::Row;
pub(crate) use section::share;
pub use section::{Direction, Section};
pub(crate) use stored::{stored_rows, stored_tail};
pub use totals::Ledger;
