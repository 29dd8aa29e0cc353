//! `temperature_below`: the hottest thermal zone, `/sys/class/thermal`.

use super::super::reading::Reading;
use super::super::surroundings::Surroundings;
use super::source::{Context, Source};

pub(super) const SOURCE: Source = Source::new("temperature_below", |when| when.temperature_below.is_some(), read);

const FOLDER: &str = "sys/class/thermal";
/// A Jetson reports 100 °C for it, always.
const CONSTANT: &str = "PMIC-Die";
/// Degrees Celsius that a running device may have. Sensors without a value report numbers far outside.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = -40.0..=150.0;

fn read(context: &mut Context<'_>) -> Result<Reading, String> {
    let most = context.when.temperature_below.unwrap_or_default();
    let (zone, degrees) = hottest(&context.when.surroundings)?;
    let shown = format!("{zone} at {degrees:.0} °C, of less than {most} °C");
    Ok(Reading::of(degrees < most, shown))
}

/// Some zones of a board cannot be read while its part is switched off; they do not count.
fn hottest(surroundings: &Surroundings) -> Result<(String, f64), String> {
    let zones = surroundings.names(FOLDER)?;
    let zones = zones.iter().filter(|name| name.starts_with("thermal_zone"));
    let degrees = zones.filter_map(|zone| {
        let kind = surroundings
            .text(&format!("{FOLDER}/{zone}/type"))
            .unwrap_or_else(|_| zone.clone());
        let degrees = surroundings.text(&format!("{FOLDER}/{zone}/temp")).ok()?;
        let degrees = degrees.parse::<f64>().ok()? / 1000.0;
        (kind != CONSTANT && PLAUSIBLE.contains(&degrees)).then_some((kind, degrees))
    });
    let hottest = degrees.max_by(|(_, one), (_, two)| one.total_cmp(two));
    hottest.ok_or_else(|| format!("/{FOLDER} has no thermal zone with a temperature"))
}

#[cfg(test)]
mod tests {
    use super::super::fake;
    use super::*;

    fn reading(zones: &[(&str, &str)]) -> Reading {
        let root = fake::root(&[(&format!("{FOLDER}/cooling_device0/type"), "fan")]);
        for (i, (kind, temp)) in zones.iter().enumerate() {
            fake::write(root.path(), &format!("{FOLDER}/thermal_zone{i}/type"), kind);
            fake::write(root.path(), &format!("{FOLDER}/thermal_zone{i}/temp"), temp);
        }
        let mut when = fake::when(root.path());
        when.temperature_below = Some(70.0);
        fake::read(&SOURCE, &when)
    }

    #[test]
    fn the_hottest_zone_of_a_jetson_counts_without_its_constant_one() {
        let nano = |gpu| {
            [
                ("AO-therm\n", "42500\n"),
                ("CPU-therm\n", "61000\n"),
                ("GPU-therm\n", gpu),
                ("PLL-therm\n", "45000\n"),
                ("PMIC-Die\n", "100000\n"),
                ("thermal-fan-est\n", "52250\n"),
            ]
        };
        assert_eq!(
            reading(&nano("58000\n")),
            Reading::Holds("CPU-therm at 61 °C, of less than 70 °C".into())
        );
        assert_eq!(
            reading(&nano("71500\n")),
            Reading::Fails("GPU-therm at 72 °C, of less than 70 °C".into())
        );
        // An Orin cannot read the zones of parts that are switched off; -256 °C stands for no value.
        let orin = [("cv0-thermal", ""), ("gpu-thermal", "-256000"), ("tj-thermal", "48000")];
        assert_eq!(
            reading(&orin),
            Reading::Holds("tj-thermal at 48 °C, of less than 70 °C".into())
        );
    }

    #[test]
    fn without_a_sensible_zone_the_source_is_missing() {
        for zones in [
            &[][..],
            &[("x", "hot")],
            &[("x", "1e9")],
            &[("PMIC-Die", "100000")],
            &[("x", "NaN")],
        ] {
            assert!(matches!(reading(zones), Reading::Missing(_)), "{zones:?}");
        }
        let root = tempfile::tempdir().unwrap();
        let mut when = fake::when(root.path());
        when.temperature_below = Some(70.0);
        assert!(matches!(fake::read(&SOURCE, &when), Reading::Missing(_)));
    }
}
