//! `idle_load_below`: the mean load of one minute for each processor, without this client's own.

use super::super::reading::Reading;
use super::super::surroundings::Surroundings;
use super::source::{Context, Source};

pub(super) const SOURCE: Source = Source::new("idle_load_below", |when| when.idle_load_below.is_some(), read);

fn read(context: &mut Context<'_>) -> Result<Reading, String> {
    let surroundings = &context.when.surroundings;
    let most = context.when.idle_load_below.unwrap_or_default();
    let own = context.own_load.next(surroundings);
    let all = load(surroundings)?;
    let each = (all - own).max(0.0) / processors(surroundings)? as f64;
    Ok(Reading::of(
        each < most,
        format!("load of {each:.2} for each processor, of less than {most}"),
    ))
}

fn load(surroundings: &Surroundings) -> Result<f64, String> {
    const FILE: &str = "proc/loadavg";
    let text = surroundings.text(FILE)?;
    let first = text.split_ascii_whitespace().next();
    first
        .and_then(|first| first.parse::<f64>().ok())
        .filter(|load| (0.0..1e6).contains(load))
        .ok_or_else(|| format!("/{FILE} has no load"))
}

fn processors(surroundings: &Surroundings) -> Result<usize, String> {
    const FILE: &str = "proc/stat";
    let text = surroundings.text(FILE)?;
    let numbers = text.lines().filter_map(|line| line.strip_prefix("cpu"));
    match numbers
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        .count()
    {
        0 => Err(format!("/{FILE} names no processor")),
        count => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake;
    use super::*;

    fn reading(loadavg: &str, stat: &str) -> Reading {
        let root = fake::root(&[("proc/loadavg", loadavg), ("proc/stat", stat)]);
        let mut when = fake::when(root.path());
        when.idle_load_below = Some(0.3);
        fake::read(&SOURCE, &when)
    }

    #[test]
    fn load_counts_for_each_processor() {
        let four = "cpu  1 2 3\ncpu0 1\ncpu1 1\ncpu2 1\ncpu3 1\nctxt 5\n";
        let low = reading("1.10 0.50 0.20 1/200 12345\n", four);
        assert_eq!(
            low,
            Reading::Holds("load of 0.28 for each processor, of less than 0.3".into())
        );
        assert!(matches!(reading("1.20 0 0 1/2 3", four), Reading::Fails(_)));
        for (loadavg, stat) in [
            ("", four),
            ("x 1 2", four),
            ("-1 0 0", four),
            ("inf", four),
            ("1 1 1", ""),
            ("1", "cpu 5"),
        ] {
            assert!(
                matches!(reading(loadavg, stat), Reading::Missing(_)),
                "{loadavg} {stat}"
            );
        }
    }
}
