//! Result of a hostile run, and the promises that it broke.

use std::collections::BTreeMap;

use serde::Serialize;

use super::attack::{End, Kind};
use crate::promises::{self, check, mib};

/// Devices that enroll during the attack.
pub(super) const DEVICES: usize = 3;
/// Most growth of the server's memory.
const GROWTH: u64 = 20 << 20;

/// Connections by kind and end.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Ends(BTreeMap<Kind, BTreeMap<End, u64>>);

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

    pub(super) fn total(&self) -> u64 {
        Kind::ALL.into_iter().map(|kind| self.of_kind(kind)).sum()
    }
}

/// Resident memory of the server in bytes: before the attack, at most, and after it.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Memory {
    /// After some rounds.
    pub(crate) before: u64,
    /// During the attack and after it.
    pub(crate) most: u64,
    /// Some rounds after the attack.
    pub(crate) after: u64,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct HostileOutcome {
    pub(crate) seconds: f64,
    pub(crate) ends: Ends,
    /// Attempts of each device that enrolled during the attack.
    pub(crate) enrolled: Vec<u32>,
    /// What the server counted at its ports, as in `/metrics`.
    pub(crate) edge: Vec<(String, u64)>,
    pub(crate) rounds: u64,
    pub(crate) rounds_during: u64,
    pub(crate) attempts: u64,
    pub(crate) updates: u64,
    pub(crate) memory: Memory,
    pub(crate) balanced: bool,
    /// Bytes of all sockets of the main port in the ledger, up and down.
    pub(crate) ledger: (u64, u64),
    pub(crate) verified: i32,
    pub(crate) model: String,
    /// Digest of the model after the same rounds without attackers.
    pub(crate) quiet: String,
    /// Memory of the server in those rounds.
    pub(crate) quiet_memory: Memory,
    pub(crate) broken: Vec<String>,
}

impl HostileOutcome {
    /// Adds the broken promises. `connections`: those asked for; `clients`: in every round.
    pub(super) fn judged(mut self, connections: u64, clients: u64) -> Self {
        let Memory { before, most, .. } = self.memory;
        let served = self.ends.of_end(End::Served);
        let expected = self.rounds * clients;
        let broken = &mut self.broken;
        check(broken, self.ends.total() == connections, "some connections have no end");
        let why = format!("{served} hostile connections got what they asked for");
        check(broken, served == 0, why);
        check(broken, self.rounds_during > 0, "no round closed during the attack");
        let why = format!("{} attempts of {} rounds: some failed", self.attempts, self.rounds);
        check(broken, self.attempts == self.rounds, why);
        let why = format!("{} updates counted, not {expected}", self.updates);
        check(broken, self.updates == expected, why);
        let why = format!("the server's memory grew from {before} to {most} bytes");
        check(broken, before > 0 && most <= before + GROWTH, why);
        let why = format!("only {} of {DEVICES} devices were enrolled", self.enrolled.len());
        check(broken, self.enrolled.len() == DEVICES, why);
        check(broken, self.balanced, "the ledger is not what the sockets carried");
        let why = format!("verify ends with code {}", self.verified);
        check(broken, self.verified == 0, why);
        let why = format!("the model is {}, and {} without attackers", self.model, self.quiet);
        check(broken, self.model == self.quiet, why);
        self
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{:<22}{:>8}{:>11}{:>9}{:>9}{:>9}{:>9}\n",
            "connections", "sent", "unreached", "closed", "refused", "open", "served"
        );
        for kind in Kind::ALL {
            let ends = End::ALL.map(|end| self.ends.get(kind, end));
            text.push_str(&row(kind.name(), self.ends.of_kind(kind), ends));
        }
        let ends = End::ALL.map(|end| self.ends.of_end(end));
        text.push_str(&row("all", self.ends.total(), ends));
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
        promises::text(text, &self.broken)
    }
}

fn row(name: &str, sent: u64, [unreached, closed, refused, open, served]: [u64; 5]) -> String {
    format!("{name:<22}{sent:>8}{unreached:>11}{closed:>9}{refused:>9}{open:>9}{served:>9}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn withstood() -> HostileOutcome {
        let mut ends = Ends::default();
        ends.add(Kind::Garbage, End::Closed);
        ends.add(Kind::Guess, End::Refused);
        HostileOutcome {
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
                HostileOutcome {
                    rounds_during: 0,
                    ..withstood()
                },
                2,
                "no round closed",
            ),
            (
                HostileOutcome {
                    attempts: 6,
                    ..withstood()
                },
                2,
                "6 attempts",
            ),
            (
                HostileOutcome {
                    updates: 9,
                    ..withstood()
                },
                2,
                "9 updates",
            ),
            (HostileOutcome { memory, ..withstood() }, 2, "memory grew"),
            (
                HostileOutcome {
                    balanced: false,
                    ..withstood()
                },
                2,
                "ledger",
            ),
            (
                HostileOutcome {
                    enrolled: vec![1],
                    ..withstood()
                },
                2,
                "only 1 of 3 devices",
            ),
            (
                HostileOutcome {
                    verified: 4,
                    ..withstood()
                },
                2,
                "code 4",
            ),
            (
                HostileOutcome {
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
