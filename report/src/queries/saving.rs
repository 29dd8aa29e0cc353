//! What the bytes on the sockets were spent on, the largest cost first, each with a way to reduce it.

use std::collections::BTreeSet;

use crate::queries::filter::Filter;
use crate::queries::query::Query;
use crate::report::Report;
use crate::report::flow::Flow;
use crate::report::notes::bits_per_value;
use crate::report::participation::Participation;
use crate::report::saving::Saving;
use crate::report::settings::FrameBudget;
use crate::table::Table;
use crate::table::schema::Schema;
use crate::table::sums::sum;
use crate::text::number::{count, digits, size};

pub(super) static QUERY: Query = Query {
    name: "saving",
    about: "a cost, with a way to reduce it",
    schemas: &[Schema::of::<Saving>(
        "saving",
        "One line per cost, the largest first; they add up to the sockets. `savings` of the JSON has the first three.",
    )],
    answer: |report, filter| Ok(Table::of(costs(report, filter).iter())),
};

/// Name of the cost of `[limits]`.
const LIMITED: &str = "limited updates";
/// How many costs a whole report names.
const NAMED: usize = 3;
/// Mean connections per client from which on clients connect too often.
const OFTEN: f64 = 1.5;
/// Bits per parameter from which on a frame is hardly compressed.
const PLAIN: f64 = 16.0;
/// More bytes than TLS and HTTP/2 take for one connection; of the payload, they take less than 2 %.
const CONNECTION: u64 = 8 * 1024;
/// Bytes of a probe, both directions.
const PROBE: u64 = 512 * 1024;

/// The largest costs of a run.
pub fn savings(report: &Report) -> Vec<Saving> {
    let mut lines = costs(report, &Filter::default());
    lines.retain(|line| line.bytes > 0);
    let mut place = 0;
    // What the limits take costs accuracy, however few bytes it is.
    lines.retain(|line| {
        place += 1;
        place <= NAMED || line.cost == LIMITED
    });
    lines
}

/// All costs of the lines asked for, the largest first.
fn costs(report: &Report, filter: &Filter) -> Vec<Saving> {
    let flow = filter.flow(report);
    let parts: Vec<_> = filter.participations(report).collect();
    let left_out = left_out(&flow, &parts);
    let mut lines = vec![
        updates(report, &flow, &parts, left_out.bytes),
        model_updates(report, &flow),
        whole_models(report, &flow),
        cost(
            "useless frames",
            flow.waste(),
            "Frames were refused, sent twice or broken off.".to_owned(),
            "Ask no more clients than are needed (`size` near `target` in [cohort] of run.toml), or wait longer for late ones \
             (`grace`, `deadline`).",
        ),
        connections(&flow, &parts),
        cost(
            "messages",
            sum([flow.control_up, flow.control_down, flow.evaluation]),
            "Clients joined, watched, offered updates, evaluated, and were answered.".to_owned(),
            RETRAIN,
        ),
    ];
    if left_out.bytes > 0 {
        lines.push(left_out);
    }
    if flow.base > 0 {
        lines.push(cost(
            "base models",
            flow.base,
            "Clients fetched the frozen tensors of the model, once each.".to_owned(),
            "Put the file of the base model on the devices before, and name its folder with `models` in client.toml.",
        ));
    }
    let all = flow.socket();
    for line in &mut lines {
        line.share = (all > 0).then(|| line.bytes as f64 / all as f64);
    }
    // Stable: equal costs keep the order above.
    lines.sort_by_key(|line| std::cmp::Reverse(line.bytes));
    lines
}

/// A cost, without its share. `change`: how to reduce it.
fn cost(name: &str, bytes: u64, why: String, change: impl Into<String>) -> Saving {
    Saving {
        cost: name.to_owned(),
        bytes,
        share: None,
        why,
        change: change.into(),
    }
}

const RETRAIN: &str =
    "Do more work in each round (`epochs` in [train] of run.toml), so that fewer rounds reach the same model.";

/// What the limits take of updates.
fn left_out(flow: &Flow, parts: &[&Participation]) -> Saving {
    let lines: Vec<_> = parts.iter().filter(|line| line.left_out > 0.0).collect();
    let bytes: f64 = lines.iter().map(|line| line.left_out * line.flow.update as f64).sum();
    let shares: f64 = lines.iter().map(|line| line.left_out).sum();
    cost(
        LIMITED,
        (bytes as u64).min(flow.update),
        format!(
            "Of {} updates, {:.0} % on average did not count, because of `[limits]`: one client would otherwise weigh more than \
             the others allow.",
            count(lines.len() as u64),
            100.0 * shares / lines.len().max(1) as f64
        ),
        "If these clients may decide the model, because they are trusted and have most of the data: raise `share` (1.0: no bound) \
         and `examples` in [limits] of run.toml.",
    )
}

fn updates(report: &Report, flow: &Flow, parts: &[&Participation], left_out: u64) -> Saving {
    let updates = parts.iter().filter(|line| line.updated).count() as u64;
    let bytes = sum(parts.iter().map(|line| line.stages.framed));
    let (at, mut change) = size_of_frames(report, "uplink", report.settings.budget_up.as_ref(), (bytes, updates));
    let mut why = format!("Clients sent {} updates{at}.", count(updates));
    let silent = report.closed();
    let silent = silent.filter(|line| line.density_up == Some(0.0) && line.density_down == Some(0.0));
    let silent = silent.count() as u64;
    if silent > 0 {
        why = format!("{why} In {} rounds all of them were zero.", count(silent));
        change =
            "Look whether the training of the clients reaches the model: updates of zeros change nothing.".to_owned();
    }
    cost("updates", flow.update - left_out, why, change)
}

fn model_updates(report: &Report, flow: &Flow) -> Saving {
    let framed = sum(report.closed().map(|line| line.down.framed));
    let frames = (framed, report.closed().count() as u64);
    let (at, budget) = size_of_frames(report, "downlink", report.settings.budget_down.as_ref(), frames);
    let why = format!("Clients fetched the model updates of the rounds{at}.");
    cost("model updates", flow.steps, why, budget)
}

fn whole_models(report: &Report, flow: &Flow) -> Saving {
    let whole = report.run.parameters.saturating_mul(4);
    let models = if whole > 0 {
        flow.snapshot as f64 / whole as f64
    } else {
        0.0
    };
    cost(
        "whole models",
        flow.snapshot,
        format!(
            "Clients fetched whole models, as much as {} of them in fp32.",
            digits(models)
        ),
        "Give run.toml the `seed` of `fl-client init`, so that clients make the first weights themselves, and keep the \
         clients' state folders, so that they need model updates only.",
    )
}

fn connections(flow: &Flow, parts: &[&Participation]) -> Saving {
    // Connections without a certificate belong to no client.
    let unnamed = parts.iter().filter(|line| line.client == "-");
    let unnamed = sum(unnamed.map(|line| line.flow.connections));
    let connections = flow.connections.saturating_sub(unnamed);
    let mut clients: BTreeSet<&str> = parts.iter().map(|line| line.client.as_str()).collect();
    clients.remove("-");
    let clients = clients.len();
    let each = if clients > 0 {
        connections as f64 / clients as f64
    } else {
        0.0
    };
    let transport = sum([flow.transport_up, flow.transport_down]);
    let usual = flow.connections.saturating_mul(CONNECTION);
    let rest = sum([flow.socket_up, flow.socket_down]).saturating_sub(transport);
    let probes = if transport.saturating_sub(sum([usual, rest / 50])) >= PROBE {
        " That is more than connections take: each `fl-client check --online` adds 512 KiB."
    } else {
        ""
    };
    let pings = sum([flow.heartbeat_up, flow.heartbeat_down]);
    cost(
        "connections",
        sum([transport, pings]),
        format!(
            "TLS and HTTP/2 took this, on {} connections, {} for each client.{probes}",
            count(connections),
            digits(each)
        ),
        if pings > transport {
            "Most of it were pings to clients that waited: ping more rarely (`ping_every` in server.toml)."
        } else if each > OFTEN {
            "Keep clients connected between rounds: every new connection costs a handshake."
        } else {
            RETRAIN
        },
    )
}

/// The size of each of these frames, and how to reduce it.
fn size_of_frames(
    report: &Report,
    link: &str,
    budget: Option<&FrameBudget>,
    (bytes, frames): (u64, u64),
) -> (String, String) {
    let Some(bits) = bits_per_value(bytes, frames, report.run.parameters) else {
        let each = format!(" of {} each", size(bytes as f64 / frames.max(1) as f64));
        return (each, RETRAIN.to_owned());
    };
    let change = match budget {
        None if bits >= PLAIN => format!(
            "Compress them: run.toml sends them plain; without its `default` in [compression.{link}] they take a quarter of a bit."
        ),
        _ => format!(
            "Lower `budget` in [compression.{link}] of run.toml; try it with `fl-server report --what-if` first."
        ),
    };
    (format!(" at {} bits a parameter", digits(bits)), change)
}
