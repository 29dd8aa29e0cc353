//! What `fl-client check` says of `[limits]`.

use crate::limits::{Limits, unfit};

/// A line for each limit that a run with a model of so many values does not fit.
pub(super) fn report(limits: &Limits, values: u64) -> String {
    let mut lines: Vec<String> = unfit(limits, values, 0)
        .into_iter()
        .map(|(key, why)| format!("  limits.{key}: {why}\n"))
        .collect();
    // A client that has missed rounds fetches the whole model.
    let model = values.saturating_mul(4);
    for (key, limit) in [("per_day", limits.per_day), ("per_month", limits.per_month)] {
        if let Some(limit) = limit.filter(|limit| *limit < model) {
            lines.push(format!(
                "  limits.{key}: {limit} bytes are less than the whole model, {model} bytes, which a client fetches that has missed \
                 rounds: raise it\n"
            ));
        }
    }
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_below_what_a_model_needs_are_named() {
        let limits = Limits {
            per_day: Some(1 << 20),
            per_month: Some(1 << 30),
            memory: Some(1 << 20),
            ..Limits::default()
        };
        let text = report(&limits, 1_000_000);
        assert!(
            text.starts_with("  limits.memory: the run needs 31 MiB or more"),
            "{text}"
        );
        assert!(
            text.contains("  limits.per_day: 1048576 bytes are less than the whole model, 4000000 bytes"),
            "{text}"
        );
        assert!(!text.contains("per_month") && report(&limits, 1000).is_empty());
    }
}
