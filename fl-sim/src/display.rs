//! The live view of a run on a terminal: one bar per round, and below it the state of each client.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fl_cli::out;
use fl_client::{Event, Progress, Verdict};
use fl_proto::ClientId;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::score::bytes;

/// Most clients shown below the bar.
const SHOWN: usize = 8;

/// The state of each client, updated by the clients' events and drawn a few times a second. Nothing is drawn if stderr is not a
/// terminal.
#[derive(Debug, Clone)]
pub(crate) struct Display {
    clients: Arc<Mutex<BTreeMap<ClientId, Doing>>>,
    bars: MultiProgress,
    round: ProgressBar,
    names: ProgressBar,
}

#[derive(Debug)]
enum Doing {
    Waiting,
    Fetching,
    Training(Arc<Progress>),
    Sending(u64),
    Sent(u64),
    Gone,
}

impl Display {
    pub(crate) fn new(rounds: u64) -> Self {
        let bars = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        let style =
            |template: &str| ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let round = bars.add(ProgressBar::new(1000).with_style(style("{prefix} [{bar:32}] {percent:>3} %  {elapsed}")));
        let names = bars.add(ProgressBar::new_spinner().with_style(style("  {wide_msg}")));
        round.set_prefix(format!("round  -/{rounds}"));
        Self {
            clients: Arc::default(),
            bars,
            round,
            names,
        }
    }

    pub(crate) fn open(&self, round: u64, rounds: u64, cohort: &[ClientId]) {
        let mut clients = self.lock();
        cohort.iter().for_each(|name| {
            clients.insert(name.clone(), Doing::Waiting);
        });
        drop(clients);
        self.round.reset();
        self.round.set_prefix(format!("round {round:>2}/{rounds}"));
    }

    pub(crate) fn note(&self, client: &ClientId, event: &Event) {
        let doing = match event {
            Event::Fetching { .. } | Event::FetchingBase { .. } => Doing::Fetching,
            Event::Training { progress, .. } => Doing::Training(Arc::clone(progress)),
            Event::Sending { bytes, .. } => Doing::Sending(*bytes),
            Event::Sent {
                bytes,
                verdict: Verdict::Accepted,
                ..
            } => Doing::Sent(*bytes),
            Event::Sent { .. } | Event::LeftRound { .. } => Doing::Waiting,
            Event::Disconnected { .. } => Doing::Gone,
            _ => return,
        };
        self.lock().insert(client.clone(), doing);
    }

    /// Prints a line above the bars. A failed write does not stop the run.
    pub(crate) fn println(&self, line: &str) {
        self.above(|| drop(out::line(format_args!("{line}"))));
    }

    pub(crate) fn eprintln(&self, line: &str) {
        self.above(|| out::note(format_args!("{line}")));
    }

    fn above(&self, print: impl FnOnce()) {
        if self.bars.is_hidden() {
            print();
        } else {
            self.bars.suspend(print);
        }
    }

    /// Draws until it is dropped or aborted; runs as a task.
    pub(crate) async fn draw(self) {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        while !self.bars.is_hidden() {
            ticks.tick().await;
            let (permille, text) = self.state();
            // indicatif does not always draw a position soon after a reset.
            self.round.set_position(permille);
            self.round.tick();
            self.names.set_message(text);
        }
    }

    pub(crate) fn clear(&self) {
        self.round.finish_and_clear();
        self.names.finish_and_clear();
    }

    fn state(&self) -> (u64, String) {
        let clients = self.lock();
        let done = clients.values().map(Doing::part).sum::<f64>() / clients.len().max(1) as f64;
        let mut parts: Vec<String> = clients
            .iter()
            .take(SHOWN)
            .map(|(name, doing)| format!("{name} {doing}"))
            .collect();
        if clients.len() > SHOWN {
            let sent = clients.values().filter(|doing| matches!(doing, Doing::Sent(_))).count();
            parts.push(format!("… {sent} of {} sent", clients.len()));
        }
        ((done * 1000.0) as u64, parts.join("  "))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<ClientId, Doing>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Doing {
    /// Progress of a client in the round, 0 to 1. Training takes nearly all of a round.
    fn part(&self) -> f64 {
        match self {
            Self::Waiting | Self::Fetching | Self::Gone => 0.0,
            Self::Training(progress) => {
                let (done, total) = progress.read();
                0.95 * done as f64 / total.max(1) as f64
            }
            Self::Sending(_) => 0.95,
            Self::Sent(_) => 1.0,
        }
    }
}

impl std::fmt::Display for Doing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Waiting => f.write_str("·"),
            Self::Fetching => f.write_str("fetches"),
            Self::Training(_) => write!(f, "trains {:.0}%", 100.0 * self.part() / 0.95),
            Self::Sending(n) => write!(f, "sends {}", bytes(*n)),
            Self::Sent(n) => write!(f, "sent {}", bytes(*n)),
            Self::Gone => f.write_str("away"),
        }
    }
}
