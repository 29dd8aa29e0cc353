//! Where examples come from: readers, the built-in set, and how a set is shared among clients.
//!
//! Examples stay as compact as their file holds them and become `f32` one batch at a time. Nothing here trusts a
//! file: every size is checked against the bytes that are there, and every error names the file.

mod array;
mod builtin;
mod cifar;
mod csv;
mod csv_file;
mod dataset;
mod error;
#[cfg(feature = "download")]
mod fetch;
mod files;
mod hapt;
mod idx;
mod images;
mod part;
mod rng;
mod scaling;
mod shard;
mod shared;
mod source;
mod split;
mod strokes;
#[cfg(feature = "download")]
mod unpack;

pub use array::{Arrays, Order};
pub use builtin::{Builtin, Hand, draw};
pub use cifar::read_cifar10;
pub use csv::{Classes, Csv};
pub use dataset::{ClientData, Dataset, Examples, Features, Input, Target};
pub use error::Error;
#[cfg(feature = "download")]
pub use fetch::{Fetched, Public, PublicFile, fetch};
pub use hapt::{Hapt, HaptWindows, read_hapt, read_hapt_windows};
pub use idx::{read_idx, read_idx_pair};
pub use images::Images;
pub use rng::Rng;
pub use scaling::Numbers;
pub use shard::Shard;
pub use source::DataSource;
pub use split::{Split, share, slice};
#[cfg(feature = "download")]
pub use unpack::Member;
