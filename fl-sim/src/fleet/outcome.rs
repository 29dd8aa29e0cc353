//! Result of a fleet, and the promises that it broke.

use serde::Serialize;

use super::device::Misfortune;

/// What happened to devices.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Events {
    /// Ended by SIGTERM, and started again later.
    pub stopped: u64,
    /// Ended by SIGKILL, and started again later.
    pub killed: u64,
    /// Stopped by SIGSTOP, and resumed later.
    pub slept: u64,
    /// Connections that broke.
    pub cut: u64,
    /// Times without a connection for some rounds.
    pub offline: u64,
    /// Revocations.
    pub revoked: u64,
    /// Switched off until the certificate had expired.
    pub expired: u64,
    /// Enrollments of devices whose certificate had expired.
    pub enrolled_again: u64,
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

/// Result of a fleet.
#[derive(Debug, Clone, Serialize)]
pub struct Lasted {
    /// Duration in seconds, with enrollment and the last rounds.
    pub seconds: f64,
    /// Rounds closed.
    pub rounds: u64,
    /// Attempts of those rounds.
    pub attempts: u64,
    /// Updates counted.
    pub updates: u64,
    /// Members of cohorts that were replaced in their round.
    pub replaced: u64,
    /// Certificates renewed.
    pub renewals: u64,
    /// Renewals that the server refused.
    pub refused_renewals: u64,
    /// Certificates issued to devices that enrolled, the first ones included.
    pub enrollments: u64,
    /// What happened to devices.
    pub events: Events,
    /// Whether the ledger equals the sockets.
    pub balanced: bool,
    /// Bytes of all sockets in the ledger, up and down.
    pub ledger: (u64, u64),
    /// Exit code of `verify`, which repeats every round.
    pub verified: i32,
    /// Digest of the last model.
    pub model: String,
    /// Devices that hold the last model or the one before: the last round may close while they stop. The others hold an older one.
    /// Each was compared bit by bit.
    pub current: u64,
    /// Broken promises.
    pub broken: Vec<String>,
}

impl Lasted {
    /// Adds the broken promises. `clients`: in the fleet.
    pub(super) fn judged(mut self, clients: u64) -> Self {
        let enrollments = clients + self.events.enrolled_again;
        let checks = [
            (
                self.attempts == self.rounds,
                format!("{} attempts of {} rounds: some failed", self.attempts, self.rounds),
            ),
            (
                self.enrollments == enrollments,
                format!("{} certificates were issued, not {enrollments}", self.enrollments),
            ),
            (
                self.refused_renewals == 0,
                format!("{} renewals were refused", self.refused_renewals),
            ),
            (self.balanced, "the ledger is not what the sockets carried".to_owned()),
            (self.verified == 0, format!("verify ends with code {}", self.verified)),
            (
                self.current > 0,
                "no device holds one of the last two models".to_owned(),
            ),
        ];
        let failed = checks.into_iter().filter(|(holds, _)| !holds).map(|(_, why)| why);
        self.broken.extend(failed);
        self
    }

    /// The result for people.
    pub fn text(&self) -> String {
        let mut text = format!(
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
        for why in &self.broken {
            text.push_str(&format!("BROKEN     {why}\n"));
        }
        text.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lasted() -> Lasted {
        Lasted {
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
                Lasted {
                    attempts: 6,
                    ..lasted()
                },
                "6 attempts",
            ),
            (
                Lasted {
                    enrollments: 6,
                    ..lasted()
                },
                "6 certificates",
            ),
            (
                Lasted {
                    refused_renewals: 1,
                    ..lasted()
                },
                "1 renewals",
            ),
            (
                Lasted {
                    balanced: false,
                    ..lasted()
                },
                "ledger",
            ),
            (
                Lasted {
                    verified: 4,
                    ..lasted()
                },
                "code 4",
            ),
            (Lasted { current: 0, ..lasted() }, "no device"),
        ] {
            let broken = broken.judged(4).broken;
            assert_eq!(broken.len(), 1, "{broken:?}");
            assert!(broken[0].contains(why), "{broken:?}");
        }
    }
}
