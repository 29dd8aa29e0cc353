//! The kernel's power supplies, `/sys/class/power_supply`.

use super::super::surroundings::Surroundings;

const FOLDER: &str = "sys/class/power_supply";

/// The power supplies of the device itself; those of a mouse or a headset do not count.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PowerSupplies {
    /// Names of the adapters, and whether each delivers power.
    pub(super) adapters: Vec<(String, bool)>,
    pub(super) batteries: Vec<Battery>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Battery {
    pub(super) name: String,
    pub(super) discharging: bool,
    /// 0 to 100; `None` if unreadable.
    pub(super) percent: Option<f64>,
}

impl PowerSupplies {
    /// A folder without entries is a device without a battery.
    pub(super) fn read(surroundings: &Surroundings) -> Result<Self, String> {
        let mut supplies = Self::default();
        let mut unreadable = None;
        let mut known = false;
        for name in surroundings.names(FOLDER)? {
            let text = |file: &str| surroundings.text(&format!("{FOLDER}/{name}/{file}"));
            let kind = match text("type") {
                Ok(kind) => kind,
                Err(why) => {
                    unreadable = Some(why);
                    continue;
                }
            };
            known = true;
            let is = |file: &str, value: &str| text(file).is_ok_and(|text| text == value);
            if is("scope", "Device") {
                continue;
            }
            match kind.as_str() {
                "Battery" | "UPS" if !is("present", "0") => {
                    let percent = text("capacity").ok().and_then(|text| text.parse::<f64>().ok());
                    supplies.batteries.push(Battery {
                        discharging: is("status", "Discharging"),
                        percent: percent.filter(|percent| (0.0..=100.0).contains(percent)),
                        name,
                    });
                }
                "Mains" | "USB" | "Wireless" => {
                    let online = text("online").is_ok_and(|text| matches!(text.as_str(), "1" | "2"));
                    supplies.adapters.push((name, online));
                }
                _ => {}
            }
        }
        match unreadable {
            Some(why) if !known => Err(why),
            _ => Ok(supplies),
        }
    }
}
