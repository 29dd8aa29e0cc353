//! `on_mains`: the device does not run on its battery.

use super::super::reading::Reading;
use super::power_supply::PowerSupplies;
use super::source::{Context, Source};

pub(super) const SOURCE: Source = Source::new("on_mains", |when| when.on_mains, read);

fn read(context: &mut Context<'_>) -> Result<Reading, String> {
    Ok(judge(&PowerSupplies::read(&context.when.surroundings)?))
}

fn judge(supplies: &PowerSupplies) -> Reading {
    if supplies.batteries.is_empty() {
        return Reading::Holds("on mains: no battery".to_owned());
    }
    if let Some((name, _)) = supplies.adapters.iter().find(|(_, online)| *online) {
        return Reading::Holds(format!("on mains: {name}"));
    }
    let discharging = supplies.batteries.iter().find(|battery| battery.discharging);
    match (discharging, supplies.adapters.is_empty()) {
        (Some(battery), _) => Reading::Fails(format!("on battery: {}", battery.name)),
        // Some boards have no adapter that the kernel knows.
        (None, true) => Reading::Holds("on mains: no battery discharges".to_owned()),
        (None, false) => Reading::Fails("on battery: no adapter delivers power".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake;
    use super::*;

    const AC: &str = "sys/class/power_supply/AC";
    const BAT: &str = "sys/class/power_supply/BAT0";

    fn reading(files: &[(&str, &str)]) -> Reading {
        let files: Vec<(String, &str)> = files
            .iter()
            .map(|(path, text)| {
                (
                    path.replace("AC/", &format!("{AC}/"))
                        .replace("BAT/", &format!("{BAT}/")),
                    *text,
                )
            })
            .collect();
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let root = fake::root(&files);
        let mut when = fake::when(root.path());
        when.on_mains = true;
        fake::read(&SOURCE, &when)
    }

    #[test]
    fn a_laptop_is_on_mains_while_its_adapter_delivers() {
        let battery = [("BAT/type", "Battery\n"), ("BAT/present", "1\n")];
        let files = |online, status| {
            let adapter = [("AC/type", "Mains\n"), ("AC/online", online), ("BAT/status", status)];
            reading(&[battery.as_slice(), &adapter].concat())
        };
        assert_eq!(files("1\n", "Charging\n"), Reading::Holds("on mains: AC".into()));
        assert_eq!(files("1\n", "Discharging\n"), Reading::Holds("on mains: AC".into()));
        assert_eq!(files("0\n", "Discharging\n"), Reading::Fails("on battery: BAT0".into()));
        assert!(matches!(files("0\n", "Full\n"), Reading::Fails(_)));
        assert!(
            matches!(files("yes\n", "Discharging\n"), Reading::Fails(_)),
            "nonsense is no power"
        );
    }

    #[test]
    fn a_device_without_a_battery_is_on_mains() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("sys/class/power_supply")).unwrap();
        let mut when = fake::when(root.path());
        when.on_mains = true;
        assert!(matches!(fake::read(&SOURCE, &when), Reading::Holds(_)));
        let mouse = [
            ("BAT/type", "Battery"),
            ("BAT/scope", "Device"),
            ("BAT/status", "Discharging"),
        ];
        assert!(
            matches!(reading(&mouse), Reading::Holds(_)),
            "a mouse is another device"
        );
        let bay = [
            ("BAT/type", "Battery"),
            ("BAT/present", "0"),
            ("BAT/status", "Discharging"),
        ];
        assert!(matches!(reading(&bay), Reading::Holds(_)), "an empty bay is no battery");
    }

    #[test]
    fn a_board_whose_adapter_the_kernel_does_not_know_goes_by_its_battery() {
        let board = |status| reading(&[("BAT/type", "Battery"), ("BAT/status", status)]);
        assert!(matches!(board("Charging"), Reading::Holds(_)));
        assert!(matches!(board("Discharging"), Reading::Fails(_)));
    }

    #[test]
    fn without_readable_files_the_source_is_missing() {
        let missing = reading(&[("proc/loadavg", "0")]);
        assert!(
            matches!(&missing, Reading::Missing(why) if why.contains("sys/class/power_supply")),
            "{missing:?}"
        );
        assert!(matches!(reading(&[("BAT/status", "Full")]), Reading::Missing(_)));
    }
}
