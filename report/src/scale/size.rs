//! The size at which a run is estimated.

use std::str::FromStr;

use serde::Serialize;

/// The size of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Scale {
    /// Devices in the federation, at least 1.
    pub devices: u64,
    /// Rounds, at least 1.
    pub rounds: u64,
}

/// Largest number of devices or rounds: their product with the bytes of a model is exact enough as an `f64`.
const MOST: u64 = 1_000_000_000;

impl FromStr for Scale {
    type Err = String;

    /// Parses `devices=1000,rounds=300`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut devices = None;
        let mut rounds = None;
        for part in text.split(',') {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let slot = match key.trim() {
                "devices" => &mut devices,
                "rounds" => &mut rounds,
                other => {
                    return Err(format!(
                        "`{other}` is neither `devices` nor `rounds`: write devices=1000,rounds=300"
                    ));
                }
            };
            let number = value.trim().parse().ok().filter(|number| (1..=MOST).contains(number));
            let number = number.ok_or_else(|| format!("`{}` must be a number from 1 to {MOST}", key.trim()))?;
            if slot.replace(number).is_some() {
                return Err(format!("`{}` is there twice", key.trim()));
            }
        }
        match (devices, rounds) {
            (Some(devices), Some(rounds)) => Ok(Self { devices, rounds }),
            _ => Err("both are needed: devices=1000,rounds=300".to_owned()),
        }
    }
}
