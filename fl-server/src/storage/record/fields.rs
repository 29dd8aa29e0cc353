//! The fields that several records have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fl_compress::wire::{Reader, Writer};
use fl_compress::{Digest, Error, Stages};
use fl_proto::{ClientId, Metric, Metrics};

use crate::storage::record::kinds::Accepted;

/// Longest text of a record in bytes; a longer one is cut.
const MAX_TEXT: usize = 4_096;

pub(super) fn write_text(text: &str, out: &mut Writer<'_>) {
    out.text(&text[..text.floor_char_boundary(MAX_TEXT)]);
}

pub(super) fn write_option(value: Option<u64>, out: &mut Writer<'_>) {
    out.u8(u8::from(value.is_some()));
    if let Some(value) = value {
        out.u64(value);
    }
}

pub(super) fn read_option(from: &mut Reader<'_>, what: &str) -> Result<Option<u64>, Error> {
    match from.u8(what)? {
        0 => Ok(None),
        1 => from.u64(what).map(Some),
        _ => Err(from.corrupt(what)),
    }
}

pub(super) fn read_digest(from: &mut Reader<'_>, what: &str) -> Result<Digest, Error> {
    from.array(what).map(Digest)
}

pub(super) fn read_client(from: &mut Reader<'_>) -> Result<ClientId, Error> {
    from.text("client")?.parse().map_err(|_| from.corrupt("client"))
}

pub(super) fn write_clients(clients: &BTreeSet<ClientId>, out: &mut Writer<'_>) {
    out.u32(clients.len() as u32);
    clients.iter().for_each(|client| write_text(client.as_str(), out));
}

/// A count, then that many names in strictly rising order.
pub(super) fn read_clients(from: &mut Reader<'_>) -> Result<BTreeSet<ClientId>, Error> {
    let count = from.u32("clients")?;
    // Not allocated by the count, which may be wrong.
    let mut out = Vec::new();
    for _ in 0..count {
        let client = read_client(from)?;
        if out.last().is_some_and(|last| *last >= client) {
            return Err(from.corrupt("clients"));
        }
        out.push(client);
    }
    // From a sorted vector, which is faster than one insertion after another.
    Ok(out.into_iter().collect())
}

pub(super) fn write_budgets(budgets: &BTreeMap<ClientId, u64>, out: &mut Writer<'_>) {
    write_by_client(budgets, out, |out, budget| out.u64(*budget));
}

pub(super) fn write_bandwidths(bandwidths: &BTreeMap<ClientId, u32>, out: &mut Writer<'_>) {
    write_by_client(bandwidths, out, |out, bandwidth| out.u32(*bandwidth));
}

fn write_by_client<T>(of: &BTreeMap<ClientId, T>, out: &mut Writer<'_>, write: impl Fn(&mut Writer<'_>, &T)) {
    out.u32(of.len() as u32);
    for (client, number) in of {
        write_text(client.as_str(), out);
        write(out, number);
    }
}

pub(super) fn read_budgets(from: &mut Reader<'_>) -> Result<BTreeMap<ClientId, u64>, Error> {
    read_by_client(from, "budgets", |from| from.u64("budget"))
}

pub(super) fn read_bandwidths(from: &mut Reader<'_>) -> Result<BTreeMap<ClientId, u32>, Error> {
    read_by_client(from, "bandwidths", |from| from.u32("bandwidth"))
}

/// A count, then that many names in strictly rising order, each with its number.
fn read_by_client<T>(
    from: &mut Reader<'_>,
    what: &str,
    read: impl Fn(&mut Reader<'_>) -> Result<T, Error>,
) -> Result<BTreeMap<ClientId, T>, Error> {
    let count = from.u32(what)?;
    // Not allocated by the count, which may be wrong.
    let mut out: Vec<(ClientId, T)> = Vec::new();
    for _ in 0..count {
        let client = read_client(from)?;
        if out.last().is_some_and(|(last, _)| *last >= client) {
            return Err(from.corrupt(what));
        }
        out.push((client, read(from)?));
    }
    Ok(out.into_iter().collect())
}

pub(super) fn write_stages(stages: &Stages, out: &mut Writer<'_>) {
    for bytes in [
        stages.fp32,
        stages.reduced,
        stages.quantized,
        stages.coded,
        stages.framed,
    ] {
        out.u64(bytes);
    }
    out.f64(stages.entropy_bound);
}

pub(super) fn read_stages(from: &mut Reader<'_>) -> Result<Stages, Error> {
    Ok(Stages {
        fp32: from.u64("stages")?,
        reduced: from.u64("stages")?,
        quantized: from.u64("stages")?,
        coded: from.u64("stages")?,
        framed: from.u64("stages")?,
        entropy_bound: from.f64("stages")?,
    })
}

/// A count (u8), then each metric's name, value and weight, sorted by name.
pub(super) fn write_metrics(metrics: &Metrics, out: &mut Writer<'_>) {
    out.u8(metrics.len() as u8);
    for (name, Metric { value, weight }) in metrics.iter() {
        out.text(name);
        out.f64(value);
        out.f64(weight);
    }
}

pub(super) fn read_metrics(from: &mut Reader<'_>) -> Result<Arc<Metrics>, Error> {
    let mut metrics = Metrics::new();
    let mut before = "";
    for _ in 0..from.u8("metrics")? {
        let name = from.text("metric")?;
        let (value, weight) = (from.f64("metric")?, from.f64("metric")?);
        let added = metrics.add(name, Metric { value, weight });
        if added.is_err() || name <= before {
            return Err(from.corrupt("metric"));
        }
        before = name;
    }
    Ok(metrics.into())
}

/// Without its metrics, which only version 3 has.
pub(super) fn write_accepted(update: &Accepted, out: &mut Writer<'_>) {
    out.bytes(&update.digest.0);
    out.u64(update.len);
    out.u64(update.examples);
    out.f64(update.loss);
    out.u64(update.train_ms);
    out.u64(update.encode_ms);
    write_stages(&update.stages, out);
    out.u64(update.at);
}

pub(super) fn read_accepted(from: &mut Reader<'_>) -> Result<Accepted, Error> {
    Ok(Accepted {
        digest: read_digest(from, "digest")?,
        len: from.u64("len")?,
        examples: from.u64("examples")?,
        loss: from.f64("loss")?,
        train_ms: from.u64("train_ms")?,
        encode_ms: from.u64("encode_ms")?,
        stages: read_stages(from)?,
        at: from.u64("at")?,
        metrics: Arc::default(),
    })
}
