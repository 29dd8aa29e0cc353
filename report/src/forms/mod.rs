//! The forms that programs read: JSON, CSV, Parquet, and TensorBoard's event files.
//!
//! They are made whole, in memory, of nothing but the report: the same report gives the same bytes.

mod csv;
mod json;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(not(feature = "parquet"))]
#[path = "no_parquet.rs"]
mod parquet;
mod tensorboard;

pub use csv::csv;
pub use json::{json, object_json, table_json};
pub use parquet::parquet;
pub use tensorboard::{EventFile, tensorboard};
