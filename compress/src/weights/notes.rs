//! Metadata texts of a safetensors file.

use std::collections::BTreeMap;

/// The metadata texts of a safetensors file (`__metadata__`), by key.
pub type Notes = BTreeMap<String, String>;

/// Metadata key of the seed from which `fl-client init` made the weights.
pub const SEED: &str = "fl.seed";

/// Metadata key of the kinds of the tensors, as a JSON object of names and [`Kind`](crate::Kind)s.
pub const KINDS: &str = "fl.kinds";

/// Metadata key of the learner for which `fl-client init` made the weights.
pub const LEARNER: &str = "fl.learner";
