//! The promises that a long run checks at its end.

/// Adds `why` unless the promise holds.
pub(crate) fn check(broken: &mut Vec<String>, holds: bool, why: impl Into<String>) {
    if !holds {
        broken.push(why.into());
    }
}

/// The text of an outcome, and a line for each broken promise.
pub(crate) fn text(mut text: String, broken: &[String]) -> String {
    for why in broken {
        text.push_str(&format!("BROKEN     {why}\n"));
    }
    text.trim_end().to_owned()
}

pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
