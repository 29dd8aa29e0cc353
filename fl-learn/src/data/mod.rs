//! Where examples come from: readers, the built-in set, and how a set is shared among clients.
//!
//! Examples stay as compact as their file holds them and become `f32` one batch at a time. Nothing here trusts a
//! file: every size is checked against the bytes that are there, and every error names the file.

// A client has the same examples on every machine.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod array;
mod batch;
mod builtin;
mod cifar;
mod cmapss;
mod coder;
mod csv;
mod csv_file;
mod dataset;
mod error;
mod examples;
mod features;
#[cfg(feature = "download")]
mod fetch;
mod files;
mod hapt;
mod idx;
mod images;
mod input;
mod part;
mod paths;
mod rng;
mod roles;
mod scaling;
mod set;
mod shared;
mod source;
mod split;
mod strokes;
mod text;
mod tokenizer;
mod tokens;
mod unlabelled;
#[cfg(feature = "download")]
mod unpack;
mod validation;
mod vocabulary;

pub use array::{Arrays, Order};
pub use batch::{Batch, IGNORED, Targets, Values};
pub use builtin::{Builtin, Hand, draw};
pub use cifar::{Cifar10, read_cifar10};
pub use cmapss::Cmapss;
pub(crate) use coder::Coder;
pub use csv::{Classes, Csv, Missing};
pub use dataset::Dataset;
pub use error::Error;
pub(crate) use error::told;
pub use examples::{ClientData, Examples};
pub use features::Features;
#[cfg(feature = "download")]
pub use fetch::{FetchOutcome, Public, PublicFile, fetch};
pub use hapt::{Hapt, HaptWindows, read_hapt, read_hapt_windows};
pub use idx::{Idx, read_idx, read_idx_pair};
pub use images::Images;
pub use input::{Input, Target};
pub use rng::Rng;
pub use roles::Roles;
pub use scaling::Numbers;
pub use set::{DataSet, Keys};
pub(crate) use source::DATA_SETS;
pub use source::{DataSetInfo, DataSource};
pub use split::{Split, share, slice};
pub use text::Text;
pub(crate) use tokenizer::Tokenizer;
pub use tokens::Tokens;
#[cfg(feature = "download")]
pub use unpack::Member;
pub use validation::check_validation;
pub use vocabulary::Vocabulary;
