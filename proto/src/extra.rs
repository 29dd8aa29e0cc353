//! `[train.extra]`: settings for trainers, which the platform passes through and does not interpret.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::error::ProtocolError;
use crate::limits::MAX_EXTRA;

// Key under which the `toml` crate passes a date to another format.
const TOML_DATE: &str = "$__toml_private_datetime";

/// A JSON object of at most [`MAX_EXTRA`] bytes. Clones share it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extra(Arc<Map<String, Value>>);

impl Serialize for Extra {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().serialize(serializer)
    }
}

impl Extra {
    /// The object, if it is not too long.
    ///
    /// # Errors
    /// `Invalid` if the object has more than [`MAX_EXTRA`] bytes as JSON.
    pub fn new(object: Map<String, Value>) -> Result<Self, ProtocolError> {
        let extra = Self(Arc::new(object));
        let json = serde_json::to_string(&extra).expect("an object with text keys is always JSON");
        let len = json.len();
        if len > MAX_EXTRA {
            let why = format!("{len} bytes as JSON are more than the {MAX_EXTRA} that it may have");
            return Err(ProtocolError::invalid("train.extra", why));
        }
        Ok(extra)
    }

    /// The object of a table. Dates of TOML become texts.
    ///
    /// # Errors
    /// As [`Extra::new`]; also `Invalid`, naming the key, for a number that JSON cannot express.
    pub(crate) fn from_table(mut table: Map<String, Value>) -> Result<Self, ProtocolError> {
        for (key, value) in &mut table {
            without_dates(value, key)?;
        }
        Self::new(table)
    }

    pub(crate) fn object(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }
}

/// Replaces dates by texts and refuses what became null: TOML has no null, but numbers that JSON does not have.
fn without_dates(value: &mut Value, key: &str) -> Result<(), ProtocolError> {
    match value {
        Value::Null => Err(ProtocolError::invalid("train.extra", format!("`{key}` must be finite"))),
        Value::Array(items) => items.iter_mut().try_for_each(|item| without_dates(item, key)),
        Value::Object(object) => {
            if let Some(Value::String(date)) = object.get(TOML_DATE) {
                *value = Value::String(date.clone());
                return Ok(());
            }
            object
                .iter_mut()
                .try_for_each(|(inner, value)| without_dates(value, &format!("{key}.{inner}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn long_objects_are_refused() {
        let long = object(&format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_EXTRA)));
        let why = Extra::new(long).unwrap_err().to_string();
        assert!(why.contains("train.extra") && why.contains("more than"), "{why}");
    }

    #[test]
    fn dates_become_texts_and_numbers_without_json_are_named() {
        let dates = format!("{{\"day\":{{\"{TOML_DATE}\":\"1979-05-27\"}},\"list\":[1]}}");
        let extra = Extra::from_table(object(&dates)).unwrap();
        assert_eq!(extra.get("day"), Some(&Value::String("1979-05-27".to_owned())));
        let why = Extra::from_table(object(r#"{"a":{"b":[1,null]}}"#))
            .unwrap_err()
            .to_string();
        assert!(why.contains("`a.b` must be finite"), "{why}");
    }
}
