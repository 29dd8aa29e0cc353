//! What `fl-client check` says of `[limits]`.

use fl_cli::findings::Line;

use crate::limits::{Limits, unfit};

/// A line for each limit that a run with a model of so many values does not fit. A client with such a limit stays paused.
pub(super) fn lines(limits: &Limits, values: u64) -> Vec<Line> {
    let unfit = unfit(limits, values, 0).into_iter();
    let mut lines: Vec<_> = unfit
        .map(|(key, why)| Line::failed(format!("limits.{key}"), why))
        .collect();
    // A client that has missed rounds fetches the whole model.
    let model = values.saturating_mul(4);
    for (key, limit) in [("per_day", limits.per_day), ("per_month", limits.per_month)] {
        if let Some(limit) = limit.filter(|limit| *limit < model) {
            let text = format!(
                "{limit} bytes are less than the whole model, {model} bytes, which a client fetches that has missed rounds"
            );
            lines.push(Line::warning(format!("limits.{key}"), text, "raise it"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use fl_cli::findings::Level;

    use super::*;

    #[test]
    fn limits_below_what_a_model_needs_are_named() {
        let limits = Limits {
            per_day: Some(1 << 20),
            per_month: Some(1 << 30),
            memory: Some(1 << 20),
            ..Limits::default()
        };
        let found = lines(&limits, 1_000_000);
        let [memory, per_day] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((memory.check.as_str(), memory.level), ("limits.memory", Level::Wrong));
        assert!(memory.text.starts_with("the run needs 31 MiB or more"), "{memory:?}");
        assert_eq!(
            (per_day.check.as_str(), per_day.level),
            ("limits.per_day", Level::Warning)
        );
        assert!(
            per_day
                .text
                .starts_with("1048576 bytes are less than the whole model, 4000000 bytes"),
            "{per_day:?}"
        );
        assert!(lines(&limits, 1000).is_empty());
    }
}
