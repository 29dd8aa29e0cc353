//! `battery_above`: the battery is charged to more than so many percent.

use super::super::reading::Reading;
use super::power_supply::PowerSupplies;
use super::source::{Context, Source};

pub(super) const SOURCE: Source = Source::new("battery_above", |when| when.battery_above.is_some(), read);

fn read(context: &mut Context<'_>) -> Result<Reading, String> {
    let supplies = PowerSupplies::read(&context.when.surroundings)?;
    Ok(judge(&supplies, context.when.battery_above.unwrap_or_default()))
}

/// Several batteries count by their mean.
fn judge(supplies: &PowerSupplies, least: f64) -> Reading {
    if supplies.batteries.is_empty() {
        return Reading::Holds("no battery".to_owned());
    }
    let batteries = supplies.batteries.iter();
    let percents: Vec<f64> = batteries.filter_map(|battery| battery.percent).collect();
    if percents.is_empty() {
        return Reading::Missing(format!("{} does not report its charge", supplies.batteries[0].name));
    }
    let mean = percents.iter().sum::<f64>() / percents.len() as f64;
    Reading::of(mean > least, format!("battery at {mean:.0} %, of more than {least} %"))
}

#[cfg(test)]
mod tests {
    use super::super::fake;
    use super::*;

    fn reading(capacities: &[&str]) -> Reading {
        let root = fake::root(&[("sys/class/power_supply/.keep", "")]);
        std::fs::remove_file(root.path().join("sys/class/power_supply/.keep")).unwrap();
        for (i, capacity) in capacities.iter().enumerate() {
            let folder = format!("sys/class/power_supply/BAT{i}");
            fake::write(root.path(), &format!("{folder}/type"), "Battery\n");
            fake::write(root.path(), &format!("{folder}/capacity"), capacity);
        }
        let mut when = fake::when(root.path());
        when.battery_above = Some(40.0);
        fake::read(&SOURCE, &when)
    }

    #[test]
    fn the_mean_of_the_batteries_counts() {
        assert_eq!(
            reading(&["41\n"]),
            Reading::Holds("battery at 41 %, of more than 40 %".into())
        );
        assert_eq!(
            reading(&["40"]),
            Reading::Fails("battery at 40 %, of more than 40 %".into())
        );
        assert!(matches!(reading(&["20", "80"]), Reading::Holds(_)));
        assert!(matches!(reading(&[]), Reading::Holds(_)));
    }

    #[test]
    fn nonsense_is_a_missing_source() {
        for text in ["", "full", "-1", "101", "NaN", "\u{fffd}"] {
            assert!(matches!(reading(&[text]), Reading::Missing(_)), "{text}");
        }
        assert!(
            matches!(reading(&["250", "50"]), Reading::Holds(_)),
            "the other battery counts"
        );
    }
}
