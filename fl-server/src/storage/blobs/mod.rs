//! Files by digest: frames, models and checkpoints.
//!
//! A blob is durable when the call that made it returns, and its digest is checked when a call reads it. Blobs are files in
//! `blobs/RUN/`, named by the digest of their bytes, or parts of a pack in `packs/RUN/`: no run can remove a blob of another.
//! Files being written are in `side/`, as are complete uploads until their record is written; uploads in progress are in `partial/RUN/`. A blob that no
//! record of its run names is garbage.

mod error;
mod packs;
mod partial;
mod run_blobs;
mod upload;

pub use error::BlobError;
pub(crate) use packs::{Index, LONGEST};
pub use run_blobs::Blobs;
pub(crate) use run_blobs::{find, packs_of};
pub use upload::{CompleteUpload, Upload};
