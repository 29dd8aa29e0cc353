//! Result of a soak test, and the invariants that it broke.

use serde::Serialize;

use super::hostile::Hostility;
use crate::promises::{self, check, mib};

/// Most growth of the memory of the server's last process.
const GROWTH: u64 = 48 << 20;
/// Accuracy that the honest clients alone reach within a minute. A model that an attacker decides is far below.
const ACCURACY: f64 = 0.5;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct SoakOutcome {
    pub(crate) seconds: f64,
    pub(crate) rounds: u64,
    /// Attempts of those rounds.
    pub(crate) attempts: u64,
    /// Kills of the server, and of clients.
    pub(crate) kills: (u64, u64),
    pub(crate) jumps: u64,
    pub(crate) hostility: Hostility,
    /// Digest of the server's model, and its version.
    pub(crate) server: (u64, String),
    /// Digest and version of the model that each honest client kept.
    pub(crate) clients: Vec<(u64, String)>,
    pub(crate) accuracy: Option<f64>,
    /// Resident memory of the server's last process, at its start and its end, in bytes.
    pub(crate) memory: (u64, u64),
    pub(crate) balanced: bool,
    pub(crate) ledger: (u64, u64),
    pub(crate) verified: i32,
    pub(crate) broken: Vec<String>,
}

impl SoakOutcome {
    pub(super) fn judged(mut self) -> Self {
        let minutes = self.seconds / 60.0;
        let broken = &mut self.broken;
        let why = format!("only {} rounds closed", self.rounds);
        check(broken, self.rounds as f64 >= 5.0 * minutes, why);
        check(broken, self.kills.0 > 0 && self.kills.1 > 0, "no process was killed");
        check(broken, self.jumps > 0, "the clock never jumped");
        let why = format!("verify ends with code {}", self.verified);
        check(broken, self.verified == 0, why);
        check(broken, self.balanced, "the ledger is not what the sockets carried");
        let (before, after) = self.memory;
        let why = format!("the server's memory grew from {before} to {after} bytes");
        check(broken, after <= before + GROWTH, why);
        let is_trained = self.accuracy.is_some_and(|share| (ACCURACY..=1.0).contains(&share));
        check(broken, is_trained, format!("the accuracy is {:?}", self.accuracy));
        self
    }

    pub(crate) fn text(&self) -> String {
        let Hostility {
            silent,
            garbage,
            malicious,
            broken,
            refused,
        } = self.hostility;
        let same = self.clients.iter().filter(|(version, _)| *version == self.server.0);
        let same = same.count();
        let text = format!(
            "rounds     {} closed in {:.0} s, {} attempts\n\
             kills      {} of the server, {} of clients; the clock jumped {} times\n\
             strangers  {silent} silent connections, {garbage} of garbage\n\
             bad        {malicious} malicious calls, {broken} broken calls, {refused} of them refused\n\
             model      version {}, digest {}; {same} of {} clients hold it, the others an older one\n\
             accuracy   {}\n\
             memory     {:.1} MiB first, {:.1} MiB last\n\
             ledger     {}: {} bytes up, {} down; verify: code {}\n",
            self.rounds,
            self.seconds,
            self.attempts,
            self.kills.0,
            self.kills.1,
            self.jumps,
            self.server.0,
            self.server.1,
            self.clients.len(),
            self.accuracy
                .map_or_else(|| "-".to_owned(), |share| format!("{share:.4}")),
            mib(self.memory.0),
            mib(self.memory.1),
            if self.balanced { "balanced" } else { "NOT BALANCED" },
            self.ledger.0,
            self.ledger.1,
            self.verified,
        );
        promises::text(text, &self.broken)
    }
}
