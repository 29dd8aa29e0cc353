//! Costs as a section of the text report.

use std::fmt::Write as _;

use crate::report::costs::Costs;
use crate::table::Table;
use crate::text::number::{name, short};
use crate::text::table;

pub(super) fn write(out: &mut String, costs: &Costs) {
    let currency = name(&costs.currency);
    let _ = writeln!(
        out,
        "\nCosts: {} {currency} ({} up, {} down), {} kWh, {} g of carbon dioxide",
        short(costs.money),
        short(costs.money_up),
        short(costs.money_down),
        short(costs.kwh),
        short(costs.co2_g)
    );
    let _ = writeln!(
        out,
        "The payload of fp32 federated averaging over the same links: {} {currency}, {} kWh, {} g",
        short(costs.baseline_money),
        short(costs.baseline_kwh),
        short(costs.baseline_co2_g)
    );
    table::write(out, &Table::of(costs.clients.iter()));
}
