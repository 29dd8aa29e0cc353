//! What a soak test found, and which invariants it broke.

use serde::Serialize;

use super::hostile::Hostility;

/// How much more memory the server's last life may take at its end than at its beginning.
const GROWTH: u64 = 48 << 20;
/// Accuracy that the honest clients reach alone within a minute; a model that an attack decides is far below.
const ACCURACY: f64 = 0.5;

/// What a soak test found.
#[derive(Debug, Clone, Serialize)]
pub struct Soaked {
    /// Seconds that it ran.
    pub seconds: f64,
    /// Rounds closed.
    pub rounds: u64,
    /// Attempts that were needed for them.
    pub attempts: u64,
    /// Kills of the server, and of clients.
    pub kills: (u64, u64),
    /// Jumps of the server's clock.
    pub jumps: u64,
    /// What strangers and bad clients did.
    pub hostility: Hostility,
    /// Digest of the server's model, and its version.
    pub server: (u64, String),
    /// Digest and version of the model that each honest client kept.
    pub clients: Vec<(u64, String)>,
    /// Share of held-out examples that the newest evaluated model classifies correctly.
    pub accuracy: Option<f64>,
    /// Resident memory of the server's last process, first and last, in bytes.
    pub memory: (u64, u64),
    /// Whether the ledger is what the sockets carried.
    pub balanced: bool,
    /// Bytes of all sockets in the ledger.
    pub ledger: (u64, u64),
    /// Exit code of `verify`.
    pub verified: i32,
    /// Invariants that do not hold.
    pub broken: Vec<String>,
}

impl Soaked {
    /// Adds the invariants that do not hold.
    pub(super) fn judged(mut self) -> Self {
        let minutes = self.seconds / 60.0;
        let checks = [
            (
                self.rounds as f64 >= 5.0 * minutes,
                format!("only {} rounds closed", self.rounds),
            ),
            (self.kills.0 > 0 && self.kills.1 > 0, "nobody was killed".to_owned()),
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

    /// For a person.
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
