//! An estimate for another size as text.

use std::fmt::Write as _;

use crate::scale::estimate::Scaled;
use crate::text::number::{count, digits, name, short, size};
use crate::text::table;

impl Scaled {
    /// Formats the estimate for a person.
    pub fn text(&self) -> String {
        let mut out = format!(
            "With {} devices and {} rounds: {} up and {} down, {} in all\n",
            count(self.scale.devices),
            count(self.scale.rounds),
            size(self.up),
            size(self.down),
            size(self.up + self.down)
        );
        let _ = writeln!(
            out,
            "The payload of fp32 federated averaging for the same would be {}, {} times as much.",
            size(self.baseline),
            digits(self.ratio)
        );
        if let (Some(currency), Some(money), Some(kwh), Some(co2_g)) =
            (&self.currency, self.money, self.kwh, self.co2_g)
        {
            let _ = writeln!(
                out,
                "Costs: {} {}, {} kWh, {} g of carbon dioxide",
                short(money),
                name(currency),
                short(kwh),
                short(co2_g)
            );
        }
        for note in &self.notes {
            let _ = writeln!(out, "{note}");
        }
        out.push('\n');
        table::write(&mut out, &self.kinds);
        out
    }
}
