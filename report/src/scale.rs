//! What a run would move with other numbers of devices and rounds, reckoned from what it has moved.

use std::str::FromStr;

use serde::Serialize;

use crate::columns::{Table, line};
use crate::costs::CostsPlan;
use crate::flow::Flow;
use crate::report::Report;
use crate::text::{self, count, digits, short, size_of as size};

/// Numbers to reckon with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Scale {
    /// Devices in the federation, at least 1.
    pub devices: u64,
    /// Rounds, at least 1.
    pub rounds: u64,
}

/// Most devices or rounds: their product with the bytes of a model stays a number.
const MOST: u64 = 1_000_000_000;

impl FromStr for Scale {
    type Err = String;

    /// Reads `devices=1000,rounds=300`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (mut devices, mut rounds) = (None, None);
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

line! {
    /// Bytes of one kind, in this run and at the other size.
    pub struct ScaleLine {
        /// `up` from the clients, `down` to them.
        direction: String [""],
        /// What they were, as in the table `direction`.
        kind: String [""],
        /// Bytes of this run.
        bytes: u64 ["B"],
        /// What a device pays once, when it comes.
        once: f64 ["B"],
        /// What a device pays for each round that it is asked in.
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
    /// Share of the devices that is asked in a round, as in this run.
    pub asked: f64,
    /// Bytes up.
    pub up: f64,
    /// Bytes down.
    pub down: f64,
    /// Payload of fp32 federated averaging for the same.
    pub baseline: f64,
    /// Its bytes over those of the run at this size.
    pub ratio: f64,
    /// What `money` is counted in, where prices are given.
    pub currency: Option<String>,
    /// Price, on the link that no client is named for.
    pub money: Option<f64>,
    /// Energy in kWh.
    pub kwh: Option<f64>,
    /// Carbon dioxide in grams.
    pub co2_g: Option<f64>,
    /// What has to be known to read this.
    pub notes: Vec<String>,
    /// Bytes by kind.
    pub kinds: Table,
}

/// Bytes of a GB, in which links are priced.
const GB: f64 = 1e9;

impl Report {
    /// What this run would move at another size; `None` before its first round has closed.
    ///
    /// A device pays once when it comes (handshake, joining, the first model), and then for each round that it is asked in.
    /// What it pays for a round is the mean of this run's closed rounds from the second on; what the rounds before cost
    /// beyond that was paid once.
    pub fn scaled(&self, scale: Scale, costs: Option<&CostsPlan>) -> Option<Scaled> {
        let closed = self.rounds.iter().filter(|line| line.closed);
        let first = closed.clone().map(|line| line.round).min()?;
        let asked: u64 = closed.clone().map(|line| line.asked).sum();
        let rounds = closed.clone().count() as u64;
        let devices = self.clients.iter().filter(|line| line.asked > 0).count() as u64;
        if asked == 0 || devices == 0 {
            return None;
        }
        let (mut early, mut later) = (Flow::default(), Flow::default());
        let (mut asked_early, mut asked_later) = (0, 0);
        for line in closed {
            let (flow, asked) = match line.round == first {
                true => (&mut early, &mut asked_early),
                false => (&mut later, &mut asked_later),
            };
            flow.add(&line.flow);
            *asked += line.asked;
        }
        // What was moved before the first round is part of coming.
        let before = self.participations.iter().filter(|line| line.round < first);
        before.for_each(|line| early.add(&line.flow));
        let mut notes = vec![format!(
            "Reckoned from {rounds} closed rounds with {devices} devices, of which {} are asked in a round: what a round costs \
             a device stays as it was, and so does that share. Frames of another cohort's mean may differ.",
            text::percent(asked as f64 / (rounds * devices) as f64)
        )];
        if asked_later == 0 {
            (later, asked_later) = (early, asked_early);
            (early, asked_early) = (Flow::default(), 0);
            notes.push(
                "Only one round has closed: all that it cost counts for every round, coming included.".to_owned(),
            );
        }
        let share = asked as f64 / (rounds * devices) as f64;
        let tasks = scale.devices as f64 * scale.rounds as f64 * share;
        let kinds = self.totals.kinds().into_iter().zip(early.kinds()).zip(later.kinds());
        let lines: Vec<ScaleLine> = kinds
            .map(|(((direction, kind, bytes), (.., early)), (.., later))| {
                let each = later as f64 / asked_later as f64;
                let once = (early as f64 - each * asked_early as f64).max(0.0) / devices as f64;
                ScaleLine {
                    direction: direction.to_owned(),
                    kind: kind.to_owned(),
                    bytes,
                    once,
                    each,
                    scaled: once * scale.devices as f64 + each * tasks,
                }
            })
            .collect();
        let sum = |way: &str| {
            lines
                .iter()
                .filter(|line| line.direction == way)
                .map(|line| line.scaled)
                .sum::<f64>()
        };
        let (up, down) = (sum("up"), sum("down"));
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

impl Scaled {
    /// For a person.
    pub fn text(&self) -> String {
        let mut out = format!(
            "With {} devices and {} rounds: {} up and {} down, {} in all\n",
            count(self.scale.devices),
            count(self.scale.rounds),
            size(self.up),
            size(self.down),
            size(self.up + self.down)
        );
        out.push_str(&format!(
            "The payload of fp32 federated averaging for the same would be {}, {} times as much.\n",
            size(self.baseline),
            digits(self.ratio)
        ));
        if let (Some(currency), Some(money), Some(kwh), Some(co2_g)) =
            (&self.currency, self.money, self.kwh, self.co2_g)
        {
            out.push_str(&format!(
                "Costs: {} {}, {} kWh, {} g of carbon dioxide\n",
                short(money),
                text::name(currency),
                short(kwh),
                short(co2_g)
            ));
        }
        for note in &self.notes {
            out.push_str(note);
            out.push('\n');
        }
        out.push('\n');
        text::write(&mut out, &self.kinds);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::{ClientLine, Participation, RoundLine};
    use crate::report::tests::report;

    /// Two clients; coming costs each 700 B of the transport, a round 100 B up and 50 down.
    fn run(rounds: u64) -> Report {
        let mut report = report();
        report.run.parameters = 1_000;
        let client = |client: &str| ClientLine {
            client: client.into(),
            asked: rounds,
            ..ClientLine::default()
        };
        report.clients = vec![client("a"), client("b")];
        report.participations = vec![Participation {
            round: 0,
            client: "a".into(),
            flow: Flow {
                transport_up: 400,
                socket_up: 400,
                ..Flow::default()
            },
            ..Participation::default()
        }];
        let round = |round: u64| RoundLine {
            round,
            closed: true,
            asked: 2,
            flow: Flow {
                update: 200,
                transport_up: if round == 1 { 1_000 } else { 0 },
                steps: 100,
                ..Flow::default()
            },
            ..RoundLine::default()
        };
        report.rounds = (1..=rounds).map(round).collect();
        report
    }

    #[test]
    fn coming_is_paid_once_by_a_device_and_a_round_each_time_it_is_asked() {
        let scale = "devices=1000, rounds=300".parse().unwrap();
        let plan = CostsPlan::from_toml("[link]\nprice_per_gb_up = 2\nkwh_per_gb = 1").unwrap();
        let found = run(4).scaled(scale, Some(&plan)).unwrap();
        assert_eq!((found.asked, found.up), (1.0, 1_000.0 * (700.0 + 300.0 * 100.0)));
        assert_eq!(found.down, 1_000.0 * 300.0 * 50.0);
        assert_eq!(found.baseline, 300_000.0 * 8_000.0);
        assert_eq!(found.money, Some(found.up / 1e9 * 2.0));
        let text = found.text();
        assert!(
            text.starts_with("With 1,000 devices and 300 rounds: 29.3 MiB up"),
            "{text}"
        );
        let same = run(4).scaled(Scale { devices: 2, rounds: 4 }, None).unwrap();
        assert_eq!(
            (same.up, same.down),
            (2_200.0, 400.0),
            "at its own size a run costs what it cost"
        );
    }

    #[test]
    fn one_round_counts_for_all_and_none_for_nothing() {
        let scale = Scale {
            devices: 10,
            rounds: 10,
        };
        let found = run(1).scaled(scale, None).unwrap();
        assert!(found.notes[1].starts_with("Only one round"));
        assert_eq!(found.up, 100.0 * 800.0);
        assert_eq!(run(0).scaled(scale, None), None);
    }

    #[test]
    fn what_is_no_scale_is_refused_with_an_example() {
        for (text, said) in [
            ("devices=10", "both are needed"),
            ("clients=3,rounds=2", "`clients` is neither"),
            ("devices=0,rounds=2", "`devices` must be a number from 1"),
            ("devices=x,rounds=2", "`devices` must be"),
            ("devices=1,devices=2,rounds=3", "twice"),
            ("", "neither"),
        ] {
            let error = text.parse::<Scale>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
