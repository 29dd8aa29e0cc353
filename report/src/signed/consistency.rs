//! Whether the figures of a signed report agree with each other.
//!
//! A signature says that the server wrote them, not that they add up. Only what a line has is compared: reports of
//! earlier programs, which had fewer columns, stay consistent.

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
    stages: StageBytes,
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
            self.differences.add(format!("{who} stands there twice"));
        }
    }

    fn client(&mut self, row: ClientRow) {
        self.count(CLIENT);
        let who = client_name(&row.client);
        self.differences.sockets(&who, &row.flow);
        let client = self.clients.entry(row.client.clone()).or_default();
        if client.said.replace(row).is_some() {
            self.differences.add(format!("{who} stands there twice"));
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
            self.differences
                .add(format!("round {}: {who} stands there twice", row.round));
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
            self.differences.flow(&who, &said.flow, "its clients", &sums.flow);
            self.differences
                .same(&who, "updates", said.updates, "its clients", sums.updates);
            self.differences
                .same(&who, "examples", said.examples, "its clients", sums.examples);
            self.stages(&who, &said.stages, &sums.stages);
            let frames = [("updates", said.stages.framed), ("step", said.framed_down)];
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
            self.differences.flow(&who, &said.flow, "its rounds", &sums.flow);
            self.differences
                .same(&who, "updates", said.updates, "its rounds", sums.updates);
            self.differences
                .same(&who, "examples", said.examples, "its rounds", sums.examples);
            self.differences
                .same(&who, "framed", said.framed, "its rounds", sums.stages.framed);
        }
        self.whole(&total, metered, all_balanced, unopened, &link);
        (self.header, self.differences)
    }

    /// Compares the stages of a round's updates with those of its clients, but for the entropy bound, which is a float.
    fn stages(&mut self, who: &str, said: &StageBytes, sum: &StageBytes) {
        let table = Table::of([said, sum].into_iter());
        for column in table.columns {
            if let Values::Integers(bytes) = column.values {
                let (said, sum) = (bytes[0], bytes[1]);
                self.differences
                    .same(who, &format!("{}_up", column.name), said, "its clients", sum);
            }
        }
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
        self.differences.sockets(who, &header.totals);
        self.differences.flow(who, &header.totals, "its rounds", rounds);
        self.differences.flow(who, &header.totals, "its clients", clients);
        for (what, said, sum) in [
            ("metered_up", header.metered_up, metered.0),
            ("metered_down", header.metered_down, metered.1),
        ] {
            // What was metered in rounds that never opened stands nowhere else.
            if !unopened || said < sum {
                self.differences.same(who, what, said, "its rounds", sum);
            }
        }
        let sockets = (header.totals.socket_up, header.totals.socket_down);
        let equal = all_balanced && sockets == (header.metered_up, header.metered_down);
        if header.balanced || !unopened {
            self.differences.flag(who, header.balanced, equal);
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
                self.differences.same(
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
            self.differences
                .ratio(&name, "frames_ratio", baseline.frames_ratio, bytes, frames);
            self.differences
                .ratio(&name, "socket_ratio", baseline.socket_ratio, bytes, flow.socket());
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
