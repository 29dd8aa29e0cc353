//! The data folder: records and named values in a database, frames and models as files by digest.

pub mod blobs;
pub mod disk;
pub mod record;
pub mod store;
pub(crate) mod weights;
