//! Checks that the figures of a signed report agree with each other.
//!
//! A signature proves that the server wrote the figures, not that they add up. A column that a line lacks counts as zero.

use std::collections::{BTreeMap, BTreeSet};

use crate::report::flow::Flow;
use crate::report::stages::StageBytes;
use crate::signed::differences::Differences;
use crate::signed::format::{CLIENT, PARTICIPATION, ROUND, TENSOR};
use crate::signed::lines::ReadHeader;
use crate::signed::rows::{ClientRow, ParticipationRow, RoundRow, TensorRow, row};
use crate::table::Table;
use crate::table::column::Values;
use crate::table::sums::sum;

/// The figures of a report, collected line by line.
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

/// The lines of one round.
#[derive(Debug, Default)]
struct Round {
    said: Option<RoundRow>,
    sums: Sums,
    /// Bytes of sections, of the updates and of the model update.
    sections: [u64; 2],
}

/// The lines of one client.
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
    stages: StageBytes,
}

impl Figures {
    pub(super) fn new(header: ReadHeader) -> Self {
        Self {
            header,
            ..Self::default()
        }
    }

    /// Adds a row. Rows of kinds that a later version may add are ignored.
    ///
    /// # Errors
    /// Why the line is not a row, for a person.
    pub(super) fn read(&mut self, line: &[u8]) -> Result<(), String> {
        let rest = line.strip_prefix(b"{\"kind\":\"").unwrap_or_default();
        let kind = rest.split(|byte| *byte == b'"').next().unwrap_or_default();
        match std::str::from_utf8(kind).unwrap_or_default() {
            ROUND => self.round(row(line)?),
            CLIENT => self.client(row(line)?),
            PARTICIPATION => self.participation(&row(line)?),
            TENSOR => self.tensor(&row(line)?),
            "header" | "authority" | "certificate" | "signature" => {
                return Err("it is in the wrong place".to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    fn round(&mut self, row: RoundRow) {
        self.count(ROUND);
        let who = format!("round {}", row.round);
        self.differences.sockets(&who, &row.flow);
        for (what, share) in [
            ("accuracy", row.accuracy),
            ("density_up", row.density_up),
            ("density_down", row.density_down),
        ] {
            self.differences.share(&who, what, share);
        }
        let equal = (row.flow.socket_up, row.flow.socket_down) == (row.metered_up, row.metered_down);
        self.differences.flag(&who, row.balanced, equal);
        if self.rounds.entry(row.round).or_default().said.replace(row).is_some() {
            self.differences.add(format!("{who} occurs twice"));
        }
    }

    fn client(&mut self, row: ClientRow) {
        self.count(CLIENT);
        let who = client_name(&row.client);
        self.differences.sockets(&who, &row.flow);
        let client = self.clients.entry(row.client.clone()).or_default();
        if client.said.replace(row).is_some() {
            self.differences.add(format!("{who} occurs twice"));
        }
    }

    fn participation(&mut self, row: &ParticipationRow<'_>) {
        self.count(PARTICIPATION);
        if row.flow.kinds_in("up") != row.flow.socket_up || row.flow.kinds_in("down") != row.flow.socket_down {
            let who = format!("round {}, {}", row.round, client_name(&row.client));
            self.differences.sockets(&who, &row.flow);
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
            self.differences.add(format!("round {}: {who} occurs twice", row.round));
        }
    }

    fn tensor(&mut self, row: &TensorRow<'_>) {
        self.count(TENSOR);
        let parts = [row.recipe_bytes, row.index_bytes, row.scale_bytes, row.value_bytes];
        let sum = sum(parts);
        let who = || {
            format!(
                "round {}, {} `{}`",
                row.round,
                row.direction.escape_debug(),
                row.tensor.escape_debug()
            )
        };
        if sum != row.bytes {
            self.differences.same(&who(), "bytes", row.bytes, "its parts", sum);
        }
        if row.density.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            self.differences.share(&who(), "density", row.density);
        }
        let direction = usize::from(row.direction != "up");
        let sections = &mut self.rounds.entry(row.round).or_default().sections[direction];
        *sections = sections.saturating_add(row.bytes);
    }

    /// Compares the sums. Returns the header and the differences.
    pub(super) fn finish(mut self) -> (ReadHeader, Differences) {
        let mut rounds = std::mem::take(&mut self.rounds);
        let mut clients = std::mem::take(&mut self.clients);
        let opened = rounds.iter().filter(|round| round.1.said.is_some());
        let opened: Vec<u64> = opened.map(|round| *round.0).collect();
        let found = &mut self.differences;
        let mut total = (Flow::default(), Flow::default());
        let mut metered = (0_u64, 0_u64);
        let mut link = String::new();
        let mut all_balanced = true;
        let mut unopened = false;
        for (round, Round { said, sums, sections }) in &mut rounds {
            let who = format!("round {round}");
            let Some(said) = said else {
                // Bytes before the first round, or after the last, are booked to a round that never opened.
                let within = opened.first() < Some(round) && Some(round) < opened.last();
                if within || sums.updates > 0 || *sections != [0, 0] {
                    let text = format!("{who} has rows of clients or tensors, but no round row");
                    found.add(text);
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
            found.flow(&who, &said.flow, "its clients", &sums.flow);
            found.same(&who, "updates", said.updates, "its clients", sums.updates);
            found.same(&who, "examples", said.examples, "its clients", sums.examples);
            stages(found, &who, &said.stages, &sums.stages);
            let frames = [("updates", said.stages.framed), ("model update", said.framed_down)];
            for ((name, framed), sections) in frames.into_iter().zip(*sections) {
                if sections > framed {
                    let text =
                        format!("{who}: the tensors of its {name} have {sections} B, its frames only {framed} B");
                    found.add(text);
                }
            }
        }
        for (client, Client { said, sums }) in &mut clients {
            let who = client_name(client);
            let Some(said) = said else {
                found.add(format!("{who} has rows in rounds, but no client row"));
                continue;
            };
            total.1.add(&said.flow);
            found.flow(&who, &said.flow, "its rounds", &sums.flow);
            found.same(&who, "updates", said.updates, "its rounds", sums.updates);
            found.same(&who, "examples", said.examples, "its rounds", sums.examples);
            found.same(&who, "framed", said.framed, "its rounds", sums.stages.framed);
        }
        self.whole(&total, metered, all_balanced, unopened, &link);
        (self.header, self.differences)
    }

    /// Compares the header with the sums over the whole run.
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
        let found = &mut self.differences;
        found.sockets(who, &header.totals);
        found.flow(who, &header.totals, "its rounds", rounds);
        found.flow(who, &header.totals, "its clients", clients);
        for (what, said, sum) in [
            ("metered_up", header.metered_up, metered.0),
            ("metered_down", header.metered_down, metered.1),
        ] {
            // Bytes metered in rounds that never opened have no row.
            if !unopened || said < sum {
                found.same(who, what, said, "its rounds", sum);
            }
        }
        let sockets = (header.totals.socket_up, header.totals.socket_down);
        let equal = all_balanced && sockets == (header.metered_up, header.metered_down);
        if header.balanced || !unopened {
            found.flag(who, header.balanced, equal);
        }
        if header.run.chain != link {
            let chain = header.run.chain.escape_debug();
            let link = link.escape_debug();
            found.add(format!(
                "{who}: its chain is `{chain}`, and the newest link of a round `{link}`"
            ));
        }
        for (kind, said) in &header.lines {
            if [ROUND, CLIENT, PARTICIPATION, TENSOR].contains(&kind.as_str()) {
                let lines = self.counts.get(kind.as_str()).copied().unwrap_or(0);
                let what = format!("lines of kind `{kind}`");
                found.same("the header", &what, *said, "the file", lines);
            }
        }
        let flow = &header.totals;
        let frames = flow.frames_up().saturating_add(flow.frames_down());
        for baseline in &header.baselines {
            let bytes = baseline.up.saturating_add(baseline.down);
            let name = baseline.name.escape_debug().to_string();
            found.ratio(&name, "frames_ratio", baseline.frames_ratio, bytes, frames);
            found.ratio(&name, "socket_ratio", baseline.socket_ratio, bytes, flow.socket());
        }
        self.header = header;
    }

    fn count(&mut self, kind: &'static str) {
        *self.counts.entry(kind).or_default() += 1;
    }
}

impl Sums {
    fn add(&mut self, row: &ParticipationRow<'_>) {
        self.flow.add(&row.flow);
        if row.updated {
            self.updates += 1;
            self.examples = self.examples.saturating_add(row.examples);
            self.stages.add(&row.stages);
        }
    }
}

fn client_name(client: &str) -> String {
    format!("client {}", client.escape_debug())
}

/// Compares the stages of a round's updates with those of its clients, except for the entropy bound, which is a float.
fn stages(found: &mut Differences, who: &str, said: &StageBytes, sum: &StageBytes) {
    for column in Table::of([said, sum].into_iter()).columns {
        if let Values::Integers(bytes) = column.values {
            found.same(who, &format!("{}_up", column.name), bytes[0], "its clients", bytes[1]);
        }
    }
}
