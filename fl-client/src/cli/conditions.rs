//! What `fl-client check` says of `[when]`.

use fl_cli::out;

use crate::conditions::{Decision, Reading, Sampler, When};

/// Prints a line for each condition that is set, and whether the client may train now.
pub(super) fn print(when: &When) -> anyhow::Result<()> {
    let mut sampler = Sampler::new(when.clone(), None);
    if sampler.is_empty() {
        return Ok(());
    }
    let readings = sampler.readings();
    out::text(format_args!("{}", report(&readings, when.strict)))
}

fn report(readings: &[(&'static str, Reading)], strict: bool) -> String {
    let mut text = String::new();
    for (key, reading) in readings {
        let line = match reading {
            Reading::Holds(seen) => format!("fulfilled, {seen}"),
            Reading::Fails(why) | Reading::FailsUntil(_, why) => format!("not fulfilled, {why}"),
            Reading::Missing(why) => {
                let counts = match strict {
                    true => "not fulfilled, because of `strict`",
                    false => "fulfilled; `strict = true` changes this",
                };
                format!("the source is missing, {why}; it counts as {counts}")
            }
        };
        text.push_str(&format!("when.{key}: {line}\n"));
    }
    text.push_str(match Decision::of(readings, strict) {
        Decision::Available => "the client may train now\n",
        Decision::Paused(_) | Decision::NotBefore(..) => "the client may not train now\n",
    });
    text
}

#[cfg(test)]
mod tests {
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
        assert_eq!(
            report(&readings, false),
            "when.on_mains: the source is missing, /sys/class/power_supply: not found; it counts as fulfilled; \
             `strict = true` changes this\nwhen.hours: not fulfilled, not before 22:00, it is 12:00\n\
             the client may not train now\n"
        );
        let strict = report(&readings[..1], true);
        assert!(
            strict.contains("counts as not fulfilled, because of `strict`\nthe client may not"),
            "{strict}"
        );
        assert!(report(&readings[..1], false).ends_with("the client may train now\n"));
    }
}
