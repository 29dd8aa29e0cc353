//! The frozen tensors of a run on this client: found in a folder of models, or fetched from the server once.
//!
//! ```text
//! state/base/DIGEST.safetensors  a base that was fetched: every later run with the same base uses it
//! state/base/DIGEST.part         the bytes of one that have arrived so far
//! state/base/index.json          which files were compared with which bases; may be deleted
//! ```
//!
//! A file is used only if its frozen tensors have the digest that the server announced.

mod index;
mod part;
mod search;
mod store;
mod wanted;

pub(crate) use part::{Arrival, Part};
pub(crate) use store::{BaseStore, prune};
pub(crate) use wanted::RunBase;
