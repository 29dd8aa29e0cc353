//! Texts beside the tensors of a safetensors file.

use std::collections::BTreeMap;

/// Texts that a safetensors file keeps beside its tensors (its `__metadata__`), by their keys.
pub type Notes = BTreeMap<String, String>;

/// Key of the note that says from which seed `fl-client init` made the weights.
pub const SEED: &str = "fl.seed";

/// Key of the note that says for which learner they were made.
pub const LEARNER: &str = "fl.learner";
