//! What a run would move with other numbers of devices and rounds, estimated from what it has moved.

use serde::Serialize;

use crate::costs::plan::{CostsPlan, GB};
use crate::report::Report;
use crate::report::flow::Flow;
use crate::scale::size::Scale;
use crate::table::Table;
use crate::table::line::line;
use crate::table::schema::Schema;
use crate::text::number::percent;

line! {
    /// Bytes of one kind, in this run and at the other size.
    pub struct ScaleLine {
        /// `up` from the clients, `down` to them.
        direction: String [""],
        /// The kind of bytes, as in the table `direction`.
        kind: String [""],
        /// Bytes of this run.
        bytes: u64 ["B"],
        /// Bytes that each device costs once, when it joins.
        once: f64 ["B"],
        /// Bytes that each device costs for each round in whose cohort it is.
        each: f64 ["B"],
        /// Bytes at the other size.
        scaled: f64 ["B"],
    }
}

/// A run at another size. Its table is an object of columns in JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scaled {
    /// The size.
    pub scale: Scale,
    /// Share of the devices in a cohort, as in this run.
    pub asked: f64,
    /// Bytes up.
    pub up: f64,
    /// Bytes down.
    pub down: f64,
    /// Payload of fp32 federated averaging at this size.
    pub baseline: f64,
    /// The baseline's bytes over those of the run at this size.
    pub ratio: f64,
    /// The currency of `money`, if prices are given.
    pub currency: Option<String>,
    /// Price, on the link that applies to clients without one of their own.
    pub money: Option<f64>,
    /// Energy in kWh.
    pub kwh: Option<f64>,
    /// Carbon dioxide in grams.
    pub co2_g: Option<f64>,
    /// What a reader must know to read this, as sentences.
    pub notes: Vec<String>,
    /// Bytes by kind.
    pub kinds: Table,
}

/// The table of an estimate.
pub(crate) static SCHEMAS: &[Schema] = &[Schema::of::<ScaleLine>(
    "scale",
    "One line per direction and kind of bytes: `kinds` of the JSON of `--scale`.",
)];

/// The bytes of the closed rounds, in the two parts of which an estimate is made.
struct Parts {
    /// The first closed round, and what came before it.
    early: Flow,
    asked_early: u64,
    /// The closed rounds after the first.
    later: Flow,
    asked_later: u64,
}

impl Parts {
    /// `None` before the first round has closed.
    fn of(report: &Report) -> Option<Self> {
        let first = report.closed().map(|line| line.round).min()?;
        let mut parts = Self {
            early: Flow::default(),
            asked_early: 0,
            later: Flow::default(),
            asked_later: 0,
        };
        for line in report.closed() {
            if line.round == first {
                parts.early.add(&line.flow);
                parts.asked_early += line.asked;
            } else {
                parts.later.add(&line.flow);
                parts.asked_later += line.asked;
            }
        }
        let before = report.participations.iter().filter(|line| line.round < first);
        before.for_each(|line| parts.early.add(&line.flow));
        Some(parts)
    }
}

impl Report {
    /// Estimates what this run would move at another size; `None` before its first round has closed.
    ///
    /// A device costs bytes once, when it joins (handshake, joining, the first model), and again for each round in whose cohort
    /// it is. A round costs the mean of this run's closed rounds from the second on; what the rounds before cost beyond that
    /// was for joining.
    pub fn scaled(&self, scale: Scale, costs: Option<&CostsPlan>) -> Option<Scaled> {
        let mut parts = Parts::of(self)?;
        let rounds = self.closed().count() as u64;
        let devices = self.clients.iter().filter(|line| line.asked > 0).count() as u64;
        let asked = parts.asked_early + parts.asked_later;
        if asked == 0 || devices == 0 {
            return None;
        }
        let share = asked as f64 / (rounds * devices) as f64;
        let mut notes = vec![format!(
            "Estimated from {rounds} closed rounds with {devices} devices, of which {} are in the cohort of a round: bytes per \
             device and round stay the same, and so does that share. Model updates of another cohort may differ in size.",
            percent(share)
        )];
        if parts.asked_later == 0 {
            parts = Parts {
                later: parts.early,
                asked_later: parts.asked_early,
                early: Flow::default(),
                asked_early: 0,
            };
            notes.push(
                "Only one round has closed: all of its bytes, joining included, count for every round.".to_owned(),
            );
        }
        let tasks = scale.devices as f64 * scale.rounds as f64 * share;
        let lines = lines(&self.totals, &parts, devices, (scale.devices as f64, tasks));
        let [up, down] = ["up", "down"].map(|direction| {
            let lines = lines.iter().filter(|line| line.direction == direction);
            lines.map(|line| line.scaled).sum::<f64>()
        });
        let baseline = 8.0 * self.run.parameters as f64 * tasks;
        let link = costs.map(|plan| &plan.default);
        let kwh = link.map(|link| (up + down) / GB * link.kwh_per_gb);
        Some(Scaled {
            scale,
            asked: share,
            up,
            down,
            baseline,
            ratio: if up + down > 0.0 { baseline / (up + down) } else { 0.0 },
            currency: costs.map(|plan| plan.currency.clone()),
            money: link.map(|link| up / GB * link.price_per_gb_up + down / GB * link.price_per_gb_down),
            co2_g: kwh.zip(costs).map(|(kwh, plan)| kwh * plan.carbon_g_per_kwh),
            kwh,
            notes,
            kinds: Table::of(lines.iter()),
        })
    }
}

/// The bytes by kind. `devices`: those of this run. `to`: devices and participations at the other size.
fn lines(totals: &Flow, parts: &Parts, devices: u64, to: (f64, f64)) -> Vec<ScaleLine> {
    let kinds = totals.kinds().into_iter();
    let kinds = kinds.zip(parts.early.kinds()).zip(parts.later.kinds());
    kinds
        .filter(|(((_, kind, bytes), _), _)| *kind != "base" || *bytes > 0)
        .map(|(((direction, kind, bytes), (.., early)), (.., later))| {
            let each = later as f64 / parts.asked_later as f64;
            let once = (early as f64 - each * parts.asked_early as f64).max(0.0) / devices as f64;
            ScaleLine {
                direction: direction.to_owned(),
                kind: kind.to_owned(),
                bytes,
                once,
                each,
                scaled: once * to.0 + each * to.1,
            }
        })
        .collect()
}
