//! `Fetch`: the model, as the model updates after the client's version or as one snapshot, whichever is fewer bytes.

use std::io::Read;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use fl_proto::{CHUNK, FetchRequest, FramePart, MAX_CHAIN, ModelHeader, wire};
use tokio::sync::{SemaphorePermit, mpsc};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status};
use wire::model_chunk::Part;

use super::pace::{Pace, TooSlow};
use super::peer::Peer;
use super::turns::Kind;
use crate::accounting::client_counters::Sent;
use crate::accounting::transfers::DownloadAccount;
use crate::coordinator::command::Command;
use crate::model::version_path;
use crate::rpc::context::{Service, internal, unable};
use crate::rpc::transfers::LAPSE;
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

/// Sends the header, then the frames from their files in chunks: a whole frame is never in memory.
async fn send(
    service: &Service,
    peer: &Peer,
    header: &ModelHeader,
    account: &DownloadAccount,
    chunks: &Chunks,
) -> Result<(), Status> {
    let mut pace = Pace::down(&service.tuning, &peer.meter);
    let bytes: u64 = header.frames().iter().map(|part| part.len).sum();
    let first = wire::ModelChunk {
        part: Some(Part::Header(header.into())),
    };
    peer.counters.answered(&first);
    give(&mut pace, chunks, first).await?;
    let mut to = Reader {
        service,
        bytes,
        chunks,
        pace,
        place: None,
    };
    for part in header.frames() {
        send_frame(account, part, &mut to).await?;
    }
    Ok(())
}

async fn send_frame(account: &DownloadAccount, part: &FramePart, to: &mut Reader<'_>) -> Result<(), Status> {
    to.take_place().await?;
    let (mut file, path) = to.service.blobs.file(&part.digest).map_err(|e| unable(&e))?;
    let mut left = part.len;
    while left > 0 {
        to.take_place().await?;
        let want = left.min(CHUNK as u64) as usize;
        let read = move || {
            let mut piece = vec![0; want];
            file.read_exact(&mut piece).map(|()| (file, piece))
        };
        let (back, piece) = tokio::task::spawn_blocking(read)
            .await
            .map_err(internal)?
            .map_err(|e| internal(format!("{} is shorter than recorded: {e}", path.display())))?;
        file = back;
        left -= want as u64;
        account.chunk(want as u64);
        let part = Some(Part::Data(Bytes::from(piece)));
        to.give(wire::ModelChunk { part }).await?;
        to.pace.moved(want as u64);
    }
    Ok(())
}

/// A download in progress.
struct Reader<'a> {
    service: &'a Service,
    /// Bytes of all frames.
    bytes: u64,
    chunks: &'a Chunks,
    pace: Pace,
    /// Held while the client reads.
    place: Option<SemaphorePermit<'a>>,
}

impl Reader<'_> {
    /// Acquires a permit, unless one is held.
    async fn take_place(&mut self) -> Result<(), Status> {
        if self.place.is_none() {
            let begun = Instant::now();
            self.place = Some(self.service.limits.downloads.place(self.bytes).await?);
            self.pace.excuse(begun.elapsed());
        }
        Ok(())
    }

    /// As [`give`]. Releases the permit if the client is slow.
    async fn give(&mut self, chunk: wire::ModelChunk) -> Result<(), Status> {
        let mut giving = pin!(give(&mut self.pace, self.chunks, chunk));
        match timeout(LAPSE, &mut giving).await {
            Ok(given) => given,
            Err(_) => {
                self.place = None;
                giving.await
            }
        }
    }
}

/// Passes one message to the connection, or ends the call of a client that reads too slowly.
async fn give(pace: &mut Pace, chunks: &Chunks, chunk: wire::ModelChunk) -> Result<(), Status> {
    given(pace.wait(chunks.send(Ok(chunk))).await)
}

/// The status of a message that could not be sent.
fn given<T, E>(waited: Result<Result<T, E>, TooSlow>) -> Result<T, Status> {
    match waited {
        Ok(Ok(given)) => Ok(given),
        Ok(Err(_)) => Err(Status::cancelled("the client is gone")),
        Err(TooSlow) => Err(Status::deadline_exceeded(
            "the client reads more slowly than this server waits for; fetch again",
        )),
    }
}
