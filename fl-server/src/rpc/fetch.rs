//! `Fetch`: the model, as the model updates after the client's version, as one snapshot, or as a short snapshot of an older
//! version and the model updates after it, whichever is fewest bytes.

use std::sync::Arc;

use fl_compress::FrameKind;
use fl_proto::{FetchRequest, FramePart, MAX_CHAIN, ModelHeader, wire};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use wire::model_chunk::Part;

use super::context::Peer;
use super::download::{Download, fail};
use crate::accounting::client_counters::DownloadKind;
use crate::accounting::transfers::DownloadAccount;
use crate::coordinator::command::Command;
use crate::model::version_path;
use crate::rpc::admission::CallKind;
use crate::rpc::context::Service;
use crate::state_machine::State;

type Chunks = mpsc::Sender<Result<wire::ModelChunk, Status>>;

pub(super) async fn fetch(
    service: Arc<Service>,
    peer: Peer,
    asked: wire::FetchRequest,
) -> Result<ReceiverStream<Result<wire::ModelChunk, Status>>, Status> {
    peer.counters.asked(&asked);
    let asked = FetchRequest::try_from(asked)?;
    service.check_run(&asked.run)?;
    let mut turn = service.turn(CallKind::Fetch, &peer);
    let header = tokio::select! {
        header = choose(&service, &asked) => header?,
        status = turn.over() => return Err(status),
    };
    let (chunks, stream) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut account = DownloadAccount::begin(&peer.counters, DownloadKind::Steps);
        let span = service.tracer.download(&peer.client, asked.want, &header);
        let sent = tokio::select! {
            sent = send(&service, &peer, &asked, &header, &mut account, &chunks) => sent,
            status = turn.over() => Err(status),
        };
        match sent {
            Ok(()) => {
                account.finish(asked.want);
                span.done();
            }
            Err(status) => fail(&chunks, status).await,
        }
    });
    Ok(ReceiverStream::new(stream))
}

/// The form with the fewest bytes. Snapshots are made of the current version only; an older one is sent if it is short, or
/// continued if the client has a part of it and the server still has it.
async fn choose(service: &Service, asked: &FetchRequest) -> Result<ModelHeader, Status> {
    let state = service.state();
    let version = state.version();
    let values = service.layout.len();
    let kept = match service.plan.rounded {
        Some(_) => service.ask(|reply| Command::KeptSnapshots { reply }).await?,
        None => Vec::new(),
    };
    if let Some(partial) = &asked.partial {
        let digest = partial.digest;
        let begun = service.ask(|reply| Command::KeptSnapshot { digest, reply }).await?;
        if let Some(header) = begun.and_then(|begun| continued(&state, values, asked, begun, &kept)) {
            return Ok(header);
        }
    }
    let header = match form(&state, values, asked, &kept).map_err(Status::failed_precondition)? {
        Form::Steps(parts) => ModelHeader::steps(parts),
        Form::Older(snapshot, after) => ModelHeader::after_snapshot(snapshot, after),
        Form::Smaller(steps) => {
            let snapshot = service.ask(|reply| Command::Snapshot { version, reply }).await?;
            let Some(part) = snapshot else {
                return Err(Status::failed_precondition(superseded(version)));
            };
            smaller(steps, part)
        }
    };
    Ok(resumed(header, asked))
}

/// The rest of the snapshot `begun` that the client has a part of, and the model updates after it, if these are fewer bytes than
/// the other forms.
fn continued(
    state: &State,
    values: usize,
    asked: &FetchRequest,
    begun: FramePart,
    kept: &[FramePart],
) -> Option<ModelHeader> {
    let header = ModelHeader::after_snapshot(begun, after(state, begun, asked)?);
    let header = resumed(header, asked);
    let other = steps(state, asked).map_or(4 * values as u64, |steps| cost(&steps));
    let short = shortest(state, kept, asked).map_or(u64::MAX, |(snapshot, after)| snapshot.len + cost(&after));
    (header.offset() > 0 && header.sent_bytes() <= other.min(short)).then_some(header)
}

/// The model updates after a kept snapshot, if they lead to the wanted version.
fn after(state: &State, snapshot: FramePart, asked: &FetchRequest) -> Option<Vec<FramePart>> {
    version_path(state, snapshot.version, asked.want).filter(|after| after.len() < MAX_CHAIN)
}

/// Of the snapshots in `kept`, the one with the fewest bytes to the wanted version, and the model updates after it.
fn shortest(state: &State, kept: &[FramePart], asked: &FetchRequest) -> Option<(FramePart, Vec<FramePart>)> {
    let paths = kept
        .iter()
        .filter_map(|&snapshot| Some((snapshot, after(state, snapshot, asked)?)));
    paths.min_by_key(|(snapshot, after)| snapshot.len + cost(after))
}

/// Leaves out what the client has of one of the frames.
fn resumed(header: ModelHeader, asked: &FetchRequest) -> ModelHeader {
    let partial = asked.partial.filter(|partial| {
        let mut frames = header.frames().iter();
        frames.any(|part| part.digest == partial.digest && partial.held <= part.len)
    });
    match partial {
        Some(partial) => header.resumed(partial.held),
        None => header,
    }
}

pub(crate) enum Form {
    /// As these model updates.
    Steps(Vec<FramePart>),
    /// As this snapshot of an older version, and these model updates.
    Older(FramePart, Vec<FramePart>),
    /// As a snapshot of the current version, or as these model updates if they are fewer bytes.
    Smaller(Option<Vec<FramePart>>),
}

/// How the wanted version of a model of `values` values travels. `kept`: snapshots that may be short.
///
/// # Errors
/// Why it cannot travel.
pub(crate) fn form(state: &State, values: usize, asked: &FetchRequest, kept: &[FramePart]) -> Result<Form, String> {
    let version = state.version();
    if asked.want > version {
        return Err(format!(
            "version {} is wanted, the newest is {version}; watch the rounds again",
            asked.want
        ));
    }
    let whole = 4 * values as u64;
    let steps = steps(state, asked);
    if let Some((snapshot, after)) = shortest(state, kept, asked) {
        let bytes = snapshot.len + cost(&after);
        // A snapshot of exact values takes a little more than the values.
        let other = steps.as_ref().map_or(whole, |steps| cost(steps).min(whole));
        if bytes < other || (steps.is_none() && asked.want < version) {
            return Ok(Form::Older(snapshot, after));
        }
    }
    match steps {
        Some(parts) if asked.want < version || cost(&parts) <= whole => Ok(Form::Steps(parts)),
        None if asked.want < version => Err(superseded(asked.want)),
        steps => Ok(Form::Smaller(steps)),
    }
}

/// The smaller of the model updates, if they lead there, and a snapshot.
pub(crate) fn smaller(steps: Option<Vec<FramePart>>, snapshot: FramePart) -> ModelHeader {
    match steps {
        Some(parts) if cost(&parts) <= snapshot.len => ModelHeader::steps(parts),
        _ => ModelHeader::snapshot(snapshot),
    }
}

fn cost(parts: &[FramePart]) -> u64 {
    parts.iter().map(|part| part.len).sum()
}

fn superseded(version: u64) -> String {
    format!("version {version} is no longer the newest; watch the rounds again")
}

/// The model updates from the client's version to the wanted one, if they lead there.
fn steps(state: &State, asked: &FetchRequest) -> Option<Vec<FramePart>> {
    let held = asked
        .held
        .filter(|&held| held <= asked.want && asked.want - held <= MAX_CHAIN as u64)?;
    version_path(state, held, asked.want)
}

async fn send(
    service: &Arc<Service>,
    peer: &Peer,
    asked: &FetchRequest,
    header: &ModelHeader,
    account: &mut DownloadAccount,
    chunks: &Chunks,
) -> Result<(), Status> {
    let first = wire::ModelChunk {
        part: Some(Part::Header(header.into())),
    };
    peer.counters.answered(&first);
    let mut download = Download::begin(service, peer, header.sent_bytes(), chunks);
    download.give(first).await?;
    for (kind, part) in header.parts() {
        account.sends(match kind {
            FrameKind::Snapshot => DownloadKind::Snapshot,
            _ => DownloadKind::Steps,
        });
        let is_partial = asked.partial.is_some_and(|partial| partial.digest == part.digest);
        let from = if is_partial { header.offset() } else { 0 };
        download
            .send_blob(&part.digest, from..part.len, account, |data| wire::ModelChunk {
                part: Some(Part::Data(data)),
            })
            .await?;
    }
    Ok(())
}
