//! Result of a hostile run, and the promises that it broke.

use std::collections::BTreeMap;

use serde::Serialize;

use super::attack::{End, Kind};

/// Devices that enroll during the attack.
pub(super) const DEVICES: usize = 3;
/// Most growth of the server's memory.
const GROWTH: u64 = 20 << 20;

/// Connections by kind and end.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub struct Ends(BTreeMap<Kind, BTreeMap<End, u64>>);

impl Ends {
    pub(super) fn add(&mut self, kind: Kind, end: End) {
        *self.0.entry(kind).or_default().entry(end).or_default() += 1;
    }

    fn get(&self, kind: Kind, end: End) -> u64 {
        self.0.get(&kind).and_then(|ends| ends.get(&end)).copied().unwrap_or(0)
    }

    fn of_kind(&self, kind: Kind) -> u64 {
        End::ALL.into_iter().map(|end| self.get(kind, end)).sum()
    }

    fn of_end(&self, end: End) -> u64 {
        Kind::ALL.into_iter().map(|kind| self.get(kind, end)).sum()
    }

    /// All connections.
    pub(super) fn total(&self) -> u64 {
        Kind::ALL.into_iter().map(|kind| self.of_kind(kind)).sum()
    }
}

/// Resident memory of the server in bytes: before the attack, at most, and after it.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Memory {
    /// After some rounds.
    pub before: u64,
    /// During the attack and after it.
    pub most: u64,
    /// Some rounds after the attack.
    pub after: u64,
}

/// Result of a hostile run.
#[derive(Debug, Clone, Serialize)]
pub struct Withstood {
    /// Duration of the attack in seconds.
    pub seconds: f64,
    /// Hostile connections by kind and end.
    pub ends: Ends,
    /// Attempts of each device that enrolled during the attack.
    pub enrolled: Vec<u32>,
    /// What the server counted at its ports, as in `/metrics`.
    pub edge: Vec<(String, u64)>,
    /// Rounds of the run.
    pub rounds: u64,
    /// Rounds that closed during the attack.
    pub rounds_during: u64,
    /// Attempts of all rounds.
    pub attempts: u64,
    /// Updates in all rounds.
    pub updates: u64,
    /// Memory of the server.
    pub memory: Memory,
    /// Whether the ledger equals the sockets.
    pub balanced: bool,
    /// Bytes of all sockets of the main port in the ledger, up and down.
    pub ledger: (u64, u64),
    /// Exit code of `verify`.
    pub verified: i32,
    /// Digest of the last model.
    pub model: String,
    /// Digest of the model after the same rounds without attackers.
    pub quiet: String,
    /// Memory of the server in those rounds.
    pub quiet_memory: Memory,
    /// Broken promises.
    pub broken: Vec<String>,
}

impl Withstood {
    /// Adds the broken promises. `connections`: those asked for; `clients`: in every round.
    pub(super) fn judged(mut self, connections: u64, clients: u64) -> Self {
        let Memory { before, most, .. } = self.memory;
        let served = self.ends.of_end(End::Served);
        let expected = self.rounds * clients;
        let checks = [
            (
                self.ends.total() == connections,
                "some connections have no end".to_owned(),
            ),
            (
                served == 0,
                format!("{served} hostile connections got what they asked for"),
            ),
            (self.rounds_during > 0, "no round closed during the attack".to_owned()),
            (
                self.attempts == self.rounds,
                format!("{} attempts of {} rounds: some failed", self.attempts, self.rounds),
            ),
            (
                self.updates == expected,
                format!("{} updates counted, not {expected}", self.updates),
            ),
            (
                before > 0 && most <= before + GROWTH,
                format!("the server's memory grew from {before} to {most} bytes"),
            ),
            (
                self.enrolled.len() == DEVICES,
                format!("only {} of {DEVICES} devices were enrolled", self.enrolled.len()),
            ),
            (self.balanced, "the ledger is not what the sockets carried".to_owned()),
            (self.verified == 0, format!("verify ends with code {}", self.verified)),
            (
                self.model == self.quiet,
                format!("the model is {}, and {} without attackers", self.model, self.quiet),
            ),
        ];
        let failed = checks.into_iter().filter(|(holds, _)| !holds).map(|(_, why)| why);
        self.broken.extend(failed);
        self
    }

    /// The result for people.
    pub fn text(&self) -> String {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let mut text = format!(
            "{:<22}{:>8}{:>11}{:>9}{:>9}{:>9}{:>9}\n",
            "connections", "sent", "unreached", "closed", "refused", "open", "served"
        );
        let mut row = |name: &str, sent: u64, count: &dyn Fn(End) -> u64| {
            let [unreached, closed, refused, open, served] = End::ALL.map(count);
            text.push_str(&format!(
                "{name:<22}{sent:>8}{unreached:>11}{closed:>9}{refused:>9}{open:>9}{served:>9}\n"
            ));
        };
        for kind in Kind::ALL {
            row(kind.name(), self.ends.of_kind(kind), &|end| self.ends.get(kind, end));
        }
        row("all", self.ends.total(), &|end| self.ends.of_end(end));
        for (series, value) in &self.edge {
            text.push_str(&format!("{series} {value}\n"));
        }
        let Memory { before, most, after } = self.memory;
        text.push_str(&format!(
            "attack     {:.0} s, {} rounds closed meanwhile\n\
             devices    {} enrolled meanwhile, in {} attempts\n\
             rounds     {} in {} attempts, {} updates\n\
             memory     {:.1} MiB before, {:.1} at most, {:.1} after; without attackers {:.1}, {:.1}, {:.1}\n\
             ledger     {}: {} bytes up, {} down; verify: code {}\n\
             model      {}, {} without attackers\n",
            self.seconds,
            self.rounds_during,
            self.enrolled.len(),
            self.enrolled.iter().sum::<u32>(),
            self.rounds,
            self.attempts,
            self.updates,
            mib(before),
            mib(most),
            mib(after),
            mib(self.quiet_memory.before),
            mib(self.quiet_memory.most),
            mib(self.quiet_memory.after),
            if self.balanced {
                "equal to the sockets"
            } else {
                "NOT THE SOCKETS"
            },
            self.ledger.0,
            self.ledger.1,
            self.verified,
            self.model,
            if self.model == self.quiet {
                "the same"
            } else {
                "ANOTHER"
            },
        ));
        for why in &self.broken {
            text.push_str(&format!("BROKEN     {why}\n"));
        }
        text.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn withstood() -> Withstood {
        let mut ends = Ends::default();
        ends.add(Kind::Garbage, End::Closed);
        ends.add(Kind::Guess, End::Refused);
        Withstood {
            seconds: 1.0,
            ends,
            enrolled: vec![1; DEVICES],
            edge: Vec::new(),
            rounds: 5,
            rounds_during: 2,
            attempts: 5,
            updates: 10,
            memory: Memory {
                before: 10 << 20,
                most: 30 << 20,
                after: 11 << 20,
            },
            balanced: true,
            ledger: (1, 2),
            verified: 0,
            model: "a".to_owned(),
            quiet: "a".to_owned(),
            quiet_memory: Memory::default(),
            broken: Vec::new(),
        }
    }

    #[test]
    fn a_run_that_kept_its_promises_breaks_none() {
        assert_eq!(withstood().judged(2, 2).broken, Vec::<String>::new());
    }

    #[test]
    fn every_promise_can_be_broken() {
        let mut served = withstood();
        served.ends.add(Kind::Guess, End::Served);
        let memory = Memory {
            most: (30 << 20) + 1,
            ..withstood().memory
        };
        for (broken, connections, why) in [
            (withstood(), 3, "no end"),
            (served, 3, "got what they asked for"),
            (
                Withstood {
                    rounds_during: 0,
                    ..withstood()
                },
                2,
                "no round closed",
            ),
            (
                Withstood {
                    attempts: 6,
                    ..withstood()
                },
                2,
                "6 attempts",
            ),
            (
                Withstood {
                    updates: 9,
                    ..withstood()
                },
                2,
                "9 updates",
            ),
            (Withstood { memory, ..withstood() }, 2, "memory grew"),
            (
                Withstood {
                    balanced: false,
                    ..withstood()
                },
                2,
                "ledger",
            ),
            (
                Withstood {
                    enrolled: vec![1],
                    ..withstood()
                },
                2,
                "only 1 of 3 devices",
            ),
            (
                Withstood {
                    verified: 4,
                    ..withstood()
                },
                2,
                "code 4",
            ),
            (
                Withstood {
                    quiet: "b".to_owned(),
                    ..withstood()
                },
                2,
                "without attackers",
            ),
        ] {
            let broken = broken.judged(connections, 2).broken;
            assert_eq!(broken.len(), 1, "{broken:?}");
            assert!(broken[0].contains(why), "{broken:?}");
        }
    }
}
