//! Result of a fleet, and the promises that it broke.

use serde::Serialize;

use super::device::Misfortune;
use crate::promises::{self, check};

#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Events {
    /// Ended by SIGTERM, and started again later.
    pub(crate) stopped: u64,
    /// Ended by SIGKILL, and started again later.
    pub(crate) killed: u64,
    /// Stopped by SIGSTOP, and resumed later.
    pub(crate) slept: u64,
    pub(crate) cut: u64,
    /// Times without a connection for some rounds.
    pub(crate) offline: u64,
    pub(crate) revoked: u64,
    /// Switched off until the certificate had expired.
    pub(crate) expired: u64,
    pub(crate) enrolled_again: u64,
}

impl Events {
    pub(super) fn add(&mut self, what: Misfortune) {
        let count = match what {
            Misfortune::Stopped => &mut self.stopped,
            Misfortune::Killed => &mut self.killed,
            Misfortune::Asleep => &mut self.slept,
            Misfortune::Cut => &mut self.cut,
            Misfortune::Offline => &mut self.offline,
            Misfortune::Revoked => &mut self.revoked,
            Misfortune::Expired => &mut self.expired,
        };
        *count += 1;
    }

    pub(super) fn text(&self) -> String {
        format!(
            "{} stopped, {} killed, {} asleep, {} cut, {} offline, {} revoked, {} switched off until their certificate had expired",
            self.stopped, self.killed, self.slept, self.cut, self.offline, self.revoked, self.expired
        )
    }
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct FleetOutcome {
    /// Duration in seconds, with enrollment and the last rounds.
    pub(crate) seconds: f64,
    pub(crate) rounds: u64,
    /// Attempts of those rounds.
    pub(crate) attempts: u64,
    pub(crate) updates: u64,
    /// Members of cohorts that were replaced in their round.
    pub(crate) replaced: u64,
    pub(crate) renewals: u64,
    pub(crate) refused_renewals: u64,
    /// Certificates issued to devices that enrolled, the first ones included.
    pub(crate) enrollments: u64,
    pub(crate) events: Events,
    pub(crate) balanced: bool,
    /// Bytes of all sockets in the ledger, up and down.
    pub(crate) ledger: (u64, u64),
    /// Exit code of `verify`, which repeats every round.
    pub(crate) verified: i32,
    pub(crate) model: String,
    /// Devices that hold the last model or the one before: the last round may close while they stop. The others hold an older one.
    /// Each was compared bit by bit.
    pub(crate) current: u64,
    pub(crate) broken: Vec<String>,
}

impl FleetOutcome {
    /// Adds the broken promises. `clients`: in the fleet.
    pub(super) fn judged(mut self, clients: u64) -> Self {
        let enrollments = clients + self.events.enrolled_again;
        let broken = &mut self.broken;
        let why = format!("{} attempts of {} rounds: some failed", self.attempts, self.rounds);
        check(broken, self.attempts == self.rounds, why);
        let why = format!("{} certificates were issued, not {enrollments}", self.enrollments);
        check(broken, self.enrollments == enrollments, why);
        let why = format!("{} renewals were refused", self.refused_renewals);
        check(broken, self.refused_renewals == 0, why);
        check(broken, self.balanced, "the ledger is not what the sockets carried");
        let why = format!("verify ends with code {}", self.verified);
        check(broken, self.verified == 0, why);
        check(broken, self.current > 0, "no device holds one of the last two models");
        self
    }

    pub(crate) fn text(&self) -> String {
        let text = format!(
            "rounds     {} in {} attempts and {:.0} s, {} updates; {} members of cohorts replaced\n\
             devices    {}\n\
             keys       {} renewals, {} refused; {} enrollments, {} of them again after the certificate had expired\n\
             ledger     {}: {} bytes up, {} down; verify: code {}\n\
             model      {}; {} devices hold it or the one before, the others an older version, each with the server's bits\n",
            self.rounds,
            self.attempts,
            self.seconds,
            self.updates,
            self.replaced,
            self.events.text(),
            self.renewals,
            self.refused_renewals,
            self.enrollments,
            self.events.enrolled_again,
            if self.balanced {
                "equal to the sockets"
            } else {
                "NOT THE SOCKETS"
            },
            self.ledger.0,
            self.ledger.1,
            self.verified,
            self.model,
            self.current,
        );
        promises::text(text, &self.broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lasted() -> FleetOutcome {
        FleetOutcome {
            seconds: 1.0,
            rounds: 5,
            attempts: 5,
            updates: 10,
            replaced: 1,
            renewals: 2,
            refused_renewals: 0,
            enrollments: 5,
            events: Events {
                enrolled_again: 1,
                ..Events::default()
            },
            balanced: true,
            ledger: (1, 2),
            verified: 0,
            model: "a".to_owned(),
            current: 1,
            broken: Vec::new(),
        }
    }

    #[test]
    fn every_promise_can_be_broken_and_none_is_without_a_reason() {
        assert_eq!(lasted().judged(4).broken, Vec::<String>::new());
        for (broken, why) in [
            (
                FleetOutcome {
                    attempts: 6,
                    ..lasted()
                },
                "6 attempts",
            ),
            (
                FleetOutcome {
                    enrollments: 6,
                    ..lasted()
                },
                "6 certificates",
            ),
            (
                FleetOutcome {
                    refused_renewals: 1,
                    ..lasted()
                },
                "1 renewals",
            ),
            (
                FleetOutcome {
                    balanced: false,
                    ..lasted()
                },
                "ledger",
            ),
            (
                FleetOutcome {
                    verified: 4,
                    ..lasted()
                },
                "code 4",
            ),
            (FleetOutcome { current: 0, ..lasted() }, "no device"),
        ] {
            let broken = broken.judged(4).broken;
            assert_eq!(broken.len(), 1, "{broken:?}");
            assert!(broken[0].contains(why), "{broken:?}");
        }
    }
}
