//! What is on disk: records and named values in sled, frames and models as files by digest.

pub mod blobs;
pub mod disk;
pub mod record;
pub mod store;
pub(crate) mod weights;
