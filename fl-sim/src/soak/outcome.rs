//! Result of a soak test, and the invariants that it broke.

use serde::Serialize;

use super::hostile::Hostility;

/// Most growth of the memory of the server's last process.
const GROWTH: u64 = 48 << 20;
/// Accuracy that the honest clients alone reach within a minute. A model that an attacker decides is far below.
const ACCURACY: f64 = 0.5;

/// Result of a soak test.
#[derive(Debug, Clone, Serialize)]
pub struct Soaked {
    /// Duration in seconds.
    pub seconds: f64,
    /// Rounds closed.
    pub rounds: u64,
    /// Attempts of those rounds.
    pub attempts: u64,
    /// Kills of the server, and of clients.
    pub kills: (u64, u64),
    /// Jumps of the server's clock.
    pub jumps: u64,
    /// Counts of attacks.
    pub hostility: Hostility,
    /// Digest of the server's model, and its version.
    pub server: (u64, String),
    /// Digest and version of the model that each honest client kept.
    pub clients: Vec<(u64, String)>,
    /// Accuracy of the latest evaluated model.
    pub accuracy: Option<f64>,
    /// Resident memory of the server's last process, at its start and its end, in bytes.
    pub memory: (u64, u64),
    /// Whether the ledger equals the sockets.
    pub balanced: bool,
    /// Bytes of all sockets in the ledger.
    pub ledger: (u64, u64),
    /// Exit code of `verify`.
    pub verified: i32,
    /// Broken invariants.
    pub broken: Vec<String>,
}

impl Soaked {
    /// Adds the broken invariants.
    pub(super) fn judged(mut self) -> Self {
        let minutes = self.seconds / 60.0;
        let checks = [
            (
                self.rounds as f64 >= 5.0 * minutes,
                format!("only {} rounds closed", self.rounds),
            ),
            (self.kills.0 > 0 && self.kills.1 > 0, "no process was killed".to_owned()),
            (self.jumps > 0, "the clock never jumped".to_owned()),
            (self.verified == 0, format!("verify ends with code {}", self.verified)),
            (self.balanced, "the ledger is not what the sockets carried".to_owned()),
            (
                self.memory.1 <= self.memory.0 + GROWTH,
                format!(
                    "the server's memory grew from {} to {} bytes",
                    self.memory.0, self.memory.1
                ),
            ),
            (
                self.accuracy
                    .is_some_and(|accuracy| (ACCURACY..=1.0).contains(&accuracy)),
                format!("the accuracy is {:?}", self.accuracy),
            ),
        ];
        self.broken
            .extend(checks.into_iter().filter(|(holds, _)| !holds).map(|(_, why)| why));
        self
    }

    /// The result for people.
    pub fn text(&self) -> String {
        let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
        let Hostility {
            silent,
            garbage,
            malicious,
            broken,
            refused,
        } = self.hostility;
        let same = self
            .clients
            .iter()
            .filter(|(version, _)| *version == self.server.0)
            .count();
        let mut text = format!(
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
        for why in &self.broken {
            text.push_str(&format!("BROKEN     {why}\n"));
        }
        text.trim_end().to_owned()
    }
}
