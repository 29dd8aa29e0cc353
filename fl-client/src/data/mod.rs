//! Where examples come from: readers, the built-in set, and how a set is shared among clients.
//!
//! Examples stay as compact as their file holds them and become `f32` one batch at a time. Nothing here trusts a
//! file: every size is checked against the bytes that are there, and every error names the file.

mod cifar;
mod dataset;
mod drawn;
mod error;
#[cfg(feature = "download")]
mod fetch;
mod files;
mod hapt;
mod idx;
mod rng;
mod shared;
mod source;
mod split;
mod strokes;
#[cfg(feature = "download")]
mod unpack;

pub use cifar::read_cifar10;
pub use dataset::{ClientData, Dataset, Examples, Features, Input};
pub use drawn::{Hand, draw};
pub use error::Error;
#[cfg(feature = "download")]
pub use fetch::{Fetched, Public, PublicFile, fetch};
pub use hapt::{HaptWindows, read_hapt, read_hapt_windows};
pub use idx::{read_idx, read_idx_pair};
pub use rng::Rng;
pub use source::{Builtin, DataSource, Hapt, Shard};
pub use split::{Split, share, slice};
#[cfg(feature = "download")]
pub use unpack::Member;
