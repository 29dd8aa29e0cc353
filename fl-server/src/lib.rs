//! The server of a federation.

pub mod blobs;
pub mod disk;
pub mod engine;
pub mod global;
pub mod plan;
pub mod record;
pub mod store;
