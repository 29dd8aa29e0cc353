//! The records, ledger rows and named values of the runs, in one database.
//!
//! A write is durable when its call returns. Values are small; the bytes of models are blobs. A key is a letter for the
//! table, the run's number and a sequence number, big-endian, so that keys sort in the order of writing. Every value but the
//! store's version carries its own version byte and CRC-32C.

mod database;
mod error;
mod federation;
mod format;
mod head;
mod run_store;
mod runs;

pub use error::StoreError;
pub use federation::{EntryChange, Table};
pub use run_store::{CHECKPOINTS, Checkpoint, RunStore};
pub use runs::Store;
