//! `Fetch`: the model, as the model updates after the client's version or as one snapshot, whichever is fewer bytes.

use std::sync::Arc;

use fl_proto::{FetchRequest, FramePart, MAX_CHAIN, ModelHeader, wire};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status};
use wire::model_chunk::Part;

use super::download::Download;
use super::peer::Peer;
use super::turns::Kind;
use crate::accounting::client_counters::Sent;
use crate::accounting::transfers::DownloadAccount;
use crate::coordinator::command::Command;
use crate::model::version_path;
use crate::rpc::context::Service;
use crate::state_machine::State;

type Chunks = mpsc::Sender<Result<wire::ModelChunk, Status>>;

pub(super) async fn fetch(
    service: Arc<Service>,
    request: Request<wire::FetchRequest>,
) -> Result<ReceiverStream<Result<wire::ModelChunk, Status>>, Status> {
    let peer = service.caller(&request)?;
    let asked = FetchRequest::try_from(request.into_inner())?;
    service.check_run(&asked.run)?;
    let mut turn = service.turns.take(&peer.client, Kind::Fetch);
    let header = tokio::select! {
        header = choose(&service, &asked) => header?,
        status = turn.over() => return Err(status),
    };
    let (chunks, stream) = mpsc::channel(1);
    tokio::spawn(async move {
        let kind = match header {
            ModelHeader::Snapshot(_) => Sent::Snapshot,
            ModelHeader::Steps(_) => Sent::Steps,
        };
        let account = DownloadAccount::begin(&peer.counters, kind);
        let span = service.tracer.download(&peer.client, asked.want, &header);
        let sent = tokio::select! {
            sent = send(&service, &peer, &header, &account, &chunks) => sent,
            status = turn.over() => Err(status),
        };
        match sent {
            Ok(()) => {
                account.finish(asked.want);
                span.done();
            }
            Err(status) => drop(chunks.try_send(Err(status))),
        }
    });
    Ok(ReceiverStream::new(stream))
}

/// The smaller of the two forms. Snapshots exist only of the current version.
async fn choose(service: &Service, asked: &FetchRequest) -> Result<ModelHeader, Status> {
    let state = service.state();
    let version = state.version();
    if asked.want > version {
        let text = format!(
            "version {} is wanted, the newest is {version}; watch the rounds again",
            asked.want
        );
        return Err(Status::failed_precondition(text));
    }
    let steps = steps(&state, asked);
    let cost = |parts: &[FramePart]| parts.iter().map(|part| part.len).sum::<u64>();
    let whole = 4 * service.layout.len() as u64;
    match steps {
        Some(parts) if asked.want < version || cost(&parts) <= whole => Ok(ModelHeader::Steps(parts)),
        None if asked.want < version => {
            let text = format!("version {} is no longer the newest; watch the rounds again", asked.want);
            Err(Status::failed_precondition(text))
        }
        steps => {
            let snapshot = service.ask(|reply| Command::Snapshot { version, reply }).await?;
            let Some(part) = snapshot else {
                let text = format!("version {version} is no longer the newest; watch the rounds again");
                return Err(Status::failed_precondition(text));
            };
            Ok(match steps {
                Some(parts) if cost(&parts) <= part.len => ModelHeader::Steps(parts),
                _ => ModelHeader::Snapshot(part),
            })
        }
    }
}

/// The model updates from the client's version to the wanted one, if they lead there.
fn steps(state: &State, asked: &FetchRequest) -> Option<Vec<FramePart>> {
    let held = asked
        .held
        .filter(|&held| held <= asked.want && asked.want - held <= MAX_CHAIN as u64)?;
    version_path(state, held, asked.want)
}

/// Sends the header, then the frames from their files.
async fn send(
    service: &Service,
    peer: &Peer,
    header: &ModelHeader,
    account: &DownloadAccount,
    chunks: &Chunks,
) -> Result<(), Status> {
    let bytes: u64 = header.frames().iter().map(|part| part.len).sum();
    let first = wire::ModelChunk {
        part: Some(Part::Header(header.into())),
    };
    peer.counters.answered(&first);
    let mut download = Download::begin(service, peer, bytes, chunks);
    download.give(first).await?;
    let chunk = |data| wire::ModelChunk {
        part: Some(Part::Data(data)),
    };
    for part in header.frames() {
        download.send_blob(&part.digest, 0..part.len, account, chunk).await?;
    }
    Ok(())
}
