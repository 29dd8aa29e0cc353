//! Numbers as JSON has them: what is not finite is written as `null` and read as NaN.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// Reads a number.
pub(crate) fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Option::<f64>::deserialize(from).map(|number| number.unwrap_or(f64::NAN))
}

/// Reads numbers by name.
pub(crate) fn numbers<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let read = BTreeMap::<String, Option<f64>>::deserialize(from)?;
    let read = read.into_iter();
    Ok(read.map(|(name, number)| (name, number.unwrap_or(f64::NAN))).collect())
}
