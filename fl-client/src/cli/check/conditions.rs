//! What `fl-client check` says of `[when]`.

use fl_cli::findings::Line;

use crate::conditions::{Decision, Reading, Sampler, When};

/// A line for each condition that is set, and one whether the client may train now.
pub(super) fn lines(when: &When) -> Vec<Line> {
    let mut sampler = Sampler::new(when.clone(), None);
    if sampler.is_empty() {
        return Vec::new();
    }
    of(&sampler.readings(), when.strict)
}

fn of(readings: &[(&'static str, Reading)], strict: bool) -> Vec<Line> {
    let mut lines: Vec<_> = readings
        .iter()
        .map(|(key, reading)| {
            let check = format!("when.{key}");
            match reading {
                Reading::Holds(seen) => Line::good(check, format!("fulfilled, {seen}")),
                Reading::Fails(why) | Reading::FailsUntil(_, why) => Line::good(check, format!("not fulfilled, {why}")),
                Reading::Missing(why) => {
                    let counts = match strict {
                        true => "not fulfilled, because of `strict`",
                        false => "fulfilled; `strict = true` changes this",
                    };
                    let text = format!("the source is missing, {why}; it counts as {counts}");
                    Line::warning(check, text, "provide the source, or delete the key")
                }
            }
        })
        .collect();
    lines.push(match Decision::of(readings, strict) {
        Decision::Available => Line::good("when", "the client may train now"),
        Decision::Paused(_) | Decision::NotBefore(..) => Line::warning(
            "when",
            "the client may not train now",
            "it takes part in no round until all conditions are fulfilled",
        ),
    });
    lines
}

#[cfg(test)]
mod tests {
    use fl_cli::findings::Level;

    use super::*;

    #[test]
    fn missing_sources_are_named_with_what_they_count_as() {
        let readings = [
            (
                "on_mains",
                Reading::Missing("/sys/class/power_supply: not found".into()),
            ),
            ("hours", Reading::FailsUntil(7, "not before 22:00, it is 12:00".into())),
        ];
        let found = of(&readings, false);
        let shown: Vec<_> = found
            .iter()
            .map(|line| (line.check.as_str(), line.level, line.text.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                (
                    "when.on_mains",
                    Level::Warning,
                    "the source is missing, /sys/class/power_supply: not found; it counts as fulfilled; `strict = true` changes this"
                ),
                (
                    "when.hours",
                    Level::Good,
                    "not fulfilled, not before 22:00, it is 12:00"
                ),
                ("when", Level::Warning, "the client may not train now"),
            ]
        );
        let strict = of(&readings[..1], true);
        assert!(
            strict[0].text.ends_with("counts as not fulfilled, because of `strict`"),
            "{strict:?}"
        );
        assert_eq!(strict[1].level, Level::Warning);
        assert_eq!(
            of(&readings[..1], false)[1],
            Line::good("when", "the client may train now")
        );
    }
}
