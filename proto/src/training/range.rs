//! One refusal of a number out of its range.

use crate::error::ProtocolError;

/// # Errors
/// `Invalid` unless `ok`.
pub(super) fn within(field: &'static str, value: f32, ok: bool, range: &str) -> Result<(), ProtocolError> {
    if ok {
        return Ok(());
    }
    Err(ProtocolError::invalid(field, format!("{value} must be {range}")))
}
