//! Whether the figures of a signed report agree with each other.
//!
//! A signature says that the server wrote them, not that they add up. Only what a line has is compared: reports of
//! earlier programs, which had fewer columns, stay consistent.

use std::collections::{BTreeMap, BTreeSet};

use super::lines::{CLIENT, PARTICIPATION, ROUND, ReadHeader, TENSOR};
use super::rows::{ClientRow, ParticipationRow, RoundRow, TensorRow, row};
use crate::columns::Line;
use crate::flow::Flow;

/// Statements of a report that cannot all be true.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Differences {
    /// The first of them, each a sentence with both figures.
    pub found: Vec<String>,
    /// How many there are besides.
    pub more: usize,
}

impl Differences {
    /// Whether all figures agree.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    fn add(&mut self, difference: String) {
        if self.found.len() < NAMED {
            self.found.push(difference);
        } else {
            self.more += 1;
        }
    }
}

/// Differences that are named.
const NAMED: usize = 20;
/// Bytes by stage, in the rows of rounds (with `_up`) and of participations.
const STAGES: [&str; 5] = ["fp32", "reduced", "quantized", "coded", "framed"];
/// How far two ratios may be apart, of their size.
const RATIO_ERROR: f64 = 1e-9;

/// The figures of a report, line by line.
#[derive(Debug, Default)]
pub(super) struct Figures {
    header: ReadHeader,
    counts: BTreeMap<&'static str, u64>,
    rounds: BTreeMap<u64, Round>,
    clients: BTreeMap<String, Client>,
    /// (round, client) of the participations.
    seen: BTreeSet<(u64, String)>,
    differences: Differences,
}

/// What the lines of one round say.
#[derive(Debug, Default)]
struct Round {
    said: Option<RoundRow>,
    sums: Sums,
    /// Sections of the updates, and of the step.
    sections: [u64; 2],
}

/// What the lines of one client say.
#[derive(Debug, Default)]
struct Client {
    said: Option<ClientRow>,
    sums: Sums,
}

/// Participations added up.
#[derive(Debug, Default)]
struct Sums {
    flow: Flow,
    updates: u64,
    examples: u64,
    stages: [u64; 5],
}

impl Figures {
    pub(super) fn new(header: ReadHeader) -> Self {
        Self {
            header,
            ..Self::default()
        }
    }

    /// Takes in a row. Rows of kinds that later programs may add are passed over.
    ///
    /// # Errors
    /// Why it is no row, for a person.
    pub(super) fn read(&mut self, line: &[u8]) -> Result<(), String> {
        let rest = line.strip_prefix(b"{\"kind\":\"").unwrap_or_default();
        let kind = rest.split(|byte| *byte == b'"').next().unwrap_or_default();
        match std::str::from_utf8(kind).unwrap_or_default() {
            ROUND => self.round(row(line)?),
            CLIENT => self.client(row(line)?),
            PARTICIPATION => self.participation(&row(line)?),
            TENSOR => self.tensor(&row(line)?),
            "header" | "authority" | "certificate" | "signature" => {
                return Err("it stands in the wrong place".to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    fn round(&mut self, row: RoundRow) {
        self.count(ROUND);
        let who = format!("round {}", row.round);
        self.sockets(&who, &row.flow);
        for (what, share) in [
            ("accuracy", row.accuracy),
            ("density_up", row.density_up),
            ("density_down", row.density_down),
        ] {
            self.share(&who, what, share);
        }
        let equal = (row.flow.socket_up, row.flow.socket_down) == (row.metered_up, row.metered_down);
        self.flag(&who, row.balanced, equal);
        if self.rounds.entry(row.round).or_default().said.replace(row).is_some() {
            self.differences.add(format!("{who} stands there twice"));
        }
    }

    fn client(&mut self, row: ClientRow) {
        self.count(CLIENT);
        let who = client_name(&row.client);
        self.sockets(&who, &row.flow);
        let client = self.clients.entry(row.client.clone()).or_default();
        if client.said.replace(row).is_some() {
            self.differences.add(format!("{who} stands there twice"));
        }
    }

    fn participation(&mut self, row: &ParticipationRow<'_>) {
        self.count(PARTICIPATION);
        if sums_up(&row.flow) != row.flow.socket_up || sums_down(&row.flow) != row.flow.socket_down {
            let who = format!("round {}, {}", row.round, client_name(&row.client));
            self.sockets(&who, &row.flow);
        }
        self.rounds.entry(row.round).or_default().sums.add(row);
        if !self.clients.contains_key(&*row.client) {
            self.clients.insert(row.client.to_string(), Client::default());
        }
        if let Some(client) = self.clients.get_mut(&*row.client) {
            client.sums.add(row);
        }
        if !self.seen.insert((row.round, row.client.to_string())) {
            let who = client_name(&row.client);
            self.differences
                .add(format!("round {}: {who} stands there twice", row.round));
        }
    }

    fn tensor(&mut self, row: &TensorRow<'_>) {
        self.count(TENSOR);
        let parts = [row.recipe_bytes, row.index_bytes, row.scale_bytes, row.value_bytes];
        let sum = parts.into_iter().fold(0, u64::saturating_add);
        let who = || {
            format!(
                "round {}, {} `{}`",
                row.round,
                row.direction.escape_debug(),
                row.tensor.escape_debug()
            )
        };
        if sum != row.bytes {
            self.same(&who(), "bytes", row.bytes, "its parts", sum);
        }
        if row.density.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            self.share(&who(), "density", row.density);
        }
        let direction = usize::from(row.direction != "up");
        let sections = &mut self.rounds.entry(row.round).or_default().sections[direction];
        *sections = sections.saturating_add(row.bytes);
    }

    /// The header, and what does not agree.
    pub(super) fn finish(mut self) -> (ReadHeader, Differences) {
        let mut rounds = std::mem::take(&mut self.rounds);
        let mut clients = std::mem::take(&mut self.clients);
        let opened: Vec<u64> = rounds
            .iter()
            .filter(|round| round.1.said.is_some())
            .map(|round| *round.0)
            .collect();
        let mut total = (Flow::default(), Flow::default());
        let mut metered = (0_u64, 0_u64);
        let mut link = String::new();
        let (mut all_balanced, mut unopened) = (true, false);
        for (round, Round { said, sums, sections }) in &mut rounds {
            let who = format!("round {round}");
            let Some(said) = said else {
                // Bytes before the first round, or after the last, belong to one that never opened.
                let within = opened.first() < Some(round) && Some(round) < opened.last();
                if within || sums.updates > 0 || *sections != [0, 0] {
                    let text = format!("{who} has rows of clients or tensors, and none of its own");
                    self.differences.add(text);
                }
                unopened = true;
                total.0.add(&sums.flow);
                continue;
            };
            total.0.add(&said.flow);
            metered.0 = metered.0.saturating_add(said.metered_up);
            metered.1 = metered.1.saturating_add(said.metered_down);
            all_balanced &= said.balanced;
            if !said.link.is_empty() {
                link = std::mem::take(&mut said.link);
            }
            self.flow(&who, &said.flow, "its clients", &sums.flow);
            self.same(&who, "updates", said.updates, "its clients", sums.updates);
            self.same(&who, "examples", said.examples, "its clients", sums.examples);
            let stages = [
                said.fp32_up,
                said.reduced_up,
                said.quantized_up,
                said.coded_up,
                said.framed_up,
            ];
            for ((name, said), sum) in STAGES.iter().zip(stages).zip(sums.stages) {
                self.same(&who, &format!("{name}_up"), said, "its clients", sum);
            }
            let frames = [("updates", said.framed_up), ("step", said.framed_down)];
            for ((name, framed), sections) in frames.into_iter().zip(*sections) {
                if sections > framed {
                    let text =
                        format!("{who}: the tensors of its {name} have {sections} B, its frames only {framed} B");
                    self.differences.add(text);
                }
            }
        }
        for (client, Client { said, sums }) in &mut clients {
            let who = client_name(client);
            let Some(said) = said else {
                self.differences
                    .add(format!("{who} has rows in rounds, and none of its own"));
                continue;
            };
            total.1.add(&said.flow);
            self.flow(&who, &said.flow, "its rounds", &sums.flow);
            self.same(&who, "updates", said.updates, "its rounds", sums.updates);
            self.same(&who, "examples", said.examples, "its rounds", sums.examples);
            self.same(&who, "framed", said.framed, "its rounds", sums.stages[4]);
        }
        self.whole(&total, metered, all_balanced, unopened, &link);
        (self.header, self.differences)
    }

    /// What the header says of the whole run.
    fn whole(
        &mut self,
        (rounds, clients): &(Flow, Flow),
        metered: (u64, u64),
        all_balanced: bool,
        unopened: bool,
        link: &str,
    ) {
        let header = std::mem::take(&mut self.header);
        let who = "the run";
        self.sockets(who, &header.totals);
        self.flow(who, &header.totals, "its rounds", rounds);
        self.flow(who, &header.totals, "its clients", clients);
        for (what, said, sum) in [
            ("metered_up", header.metered_up, metered.0),
            ("metered_down", header.metered_down, metered.1),
        ] {
            // What was metered in rounds that never opened stands nowhere else.
            if !unopened || said < sum {
                self.same(who, what, said, "its rounds", sum);
            }
        }
        let sockets = (header.totals.socket_up, header.totals.socket_down);
        let equal = all_balanced && sockets == (header.metered_up, header.metered_down);
        if header.balanced || !unopened {
            self.flag(who, header.balanced, equal);
        }
        if header.run.chain != link {
            let chain = header.run.chain.escape_debug();
            let link = link.escape_debug();
            self.differences.add(format!(
                "{who}: its chain is `{chain}`, and the newest link of a round `{link}`"
            ));
        }
        for (kind, said) in &header.lines {
            let found = self
                .counts
                .iter()
                .find(|(name, _)| *name == kind)
                .map_or(0, |(_, found)| *found);
            if [ROUND, CLIENT, PARTICIPATION, TENSOR].contains(&kind.as_str()) {
                self.same(
                    "the header",
                    &format!("lines of kind `{kind}`"),
                    *said,
                    "the file",
                    found,
                );
            }
        }
        let flow = &header.totals;
        let frames = flow.frames_up().saturating_add(flow.frames_down());
        for baseline in &header.baselines {
            let bytes = baseline.up.saturating_add(baseline.down);
            let name = baseline.name.escape_debug().to_string();
            self.ratio(&name, "frames_ratio", baseline.frames_ratio, bytes, frames);
            self.ratio(&name, "socket_ratio", baseline.socket_ratio, bytes, flow.socket());
        }
        self.header = header;
    }

    fn count(&mut self, kind: &'static str) {
        *self.counts.entry(kind).or_default() += 1;
    }

    fn same(&mut self, who: &str, what: &str, said: u64, of: &str, sum: u64) {
        if said != sum {
            self.differences
                .add(format!("{who}: {what} is {said}, that of {of} {sum}"));
        }
    }

    fn flow(&mut self, who: &str, said: &Flow, of: &str, sum: &Flow) {
        if said == sum {
            return;
        }
        let mut columns = Vec::new();
        Flow::columns(&[], &mut columns);
        for (column, (said, sum)) in columns.iter().zip(said.fields().into_iter().zip(sum.fields())) {
            self.same(who, column.name, said, of, sum);
        }
    }

    fn sockets(&mut self, who: &str, flow: &Flow) {
        self.same(who, "socket_up", flow.socket_up, "its kinds together", sums_up(flow));
        self.same(
            who,
            "socket_down",
            flow.socket_down,
            "its kinds together",
            sums_down(flow),
        );
    }

    fn share(&mut self, who: &str, what: &str, share: Option<f64>) {
        if let Some(share) = share.filter(|share| !(0.0..=1.0).contains(share)) {
            self.differences
                .add(format!("{who}: {what} is {share}, and a share is between 0 and 1"));
        }
    }

    fn flag(&mut self, who: &str, balanced: bool, equal: bool) {
        if balanced != equal {
            let (says, is) = if balanced {
                ("balanced", "not")
            } else {
                ("not balanced", "balanced")
            };
            self.differences.add(format!(
                "{who}: it says that it is {says}, and by its figures it is {is}"
            ));
        }
    }

    fn ratio(&mut self, baseline: &str, what: &str, said: f64, bytes: u64, of: u64) {
        // Without any byte there is no ratio, whatever is said instead.
        let ratio = bytes as f64 / of as f64;
        if of > 0 && (said - ratio).abs() > RATIO_ERROR * ratio.max(1.0) {
            self.differences.add(format!(
                "{baseline}: {what} is {said}, its bytes over those moved {ratio}"
            ));
        }
    }
}

impl Sums {
    fn add(&mut self, row: &ParticipationRow<'_>) {
        self.flow.add(&row.flow);
        if !row.updated {
            return;
        }
        self.updates += 1;
        self.examples = self.examples.saturating_add(row.examples);
        let stages = [row.fp32, row.reduced, row.quantized, row.coded, row.framed];
        for (sum, bytes) in self.stages.iter_mut().zip(stages) {
            *sum = sum.saturating_add(bytes);
        }
    }
}

fn sums_up(flow: &Flow) -> u64 {
    sums(flow, "up")
}

fn sums_down(flow: &Flow) -> u64 {
    sums(flow, "down")
}

fn sums(flow: &Flow, direction: &str) -> u64 {
    let kinds = flow.kinds().into_iter().filter(|kind| kind.0 == direction);
    kinds.fold(0, |sum, kind| sum.saturating_add(kind.2))
}

fn client_name(client: &str) -> String {
    format!("client {}", client.escape_debug())
}
