//! Brings the model held to a version: by the steps after it, or by a snapshot if they do not lead there.

use bytes::Bytes;
use fl_compress::{Digest, FrameKind};
use fl_proto::wire::model_chunk::Part;
use fl_proto::{Assembler, FetchRequest, Joined, ModelHeader, max_frame, wire};
use tonic::Streaming;

use crate::Error;
use crate::event::{Event, Sink};
use crate::rpc::Rpc;
use crate::worker::Worker;

/// Makes the worker hold `version`, whose digest is `digest`. What was applied before this is dropped or fails stays.
///
/// # Errors
/// `Protocol` if even a snapshot does not lead to that digest; whatever breaks the call.
pub(super) async fn bring(
    rpc: &mut Rpc,
    worker: &Worker,
    events: &Sink,
    joined: &Joined,
    (version, digest): (u64, Digest),
) -> Result<(), Error> {
    worker.call(|work| work.begin()).await??;
    if worker.call(move |work| work.holds(version, digest)).await?? {
        return Ok(());
    }
    events.send(Event::Fetching { version });
    let held = worker.call(|work| work.held()).await?.filter(|held| *held < version);
    if held.is_some() {
        match fetch(rpc, worker, joined, held, version).await {
            Ok(()) => {
                if worker.call(move |work| work.holds(version, digest)).await?? {
                    events.send(Event::Fetched { version });
                    return Ok(());
                }
            }
            Err(Error::Protocol(why)) => tracing::warn!(version, why, "steps cannot be used, fetching a snapshot"),
            Err(error) => return Err(error),
        }
        worker.call(|work| work.drop_model()).await?;
    }
    fetch(rpc, worker, joined, None, version).await?;
    if worker.call(move |work| work.holds(version, digest)).await?? {
        events.send(Event::Fetched { version });
        return Ok(());
    }
    Err(Error::Protocol(format!(
        "the server's snapshot of model version {version} does not have the digest {digest} that it announced: its store is \
         damaged; whoever runs the server should check it"
    )))
}

async fn fetch(rpc: &mut Rpc, worker: &Worker, joined: &Joined, held: Option<u64>, want: u64) -> Result<(), Error> {
    let mut chunks = Chunks {
        stream: rpc
            .fetch(FetchRequest {
                run: joined.run.clone(),
                held,
                want,
            })
            .await?,
        rpc: rpc.clone(),
        rest: Bytes::new(),
    };
    let header = chunks.header().await?;
    let (kind, parts) = match &header {
        ModelHeader::Snapshot(part) => (FrameKind::Snapshot, std::slice::from_ref(part)),
        ModelHeader::Steps(parts) => (FrameKind::Step, parts.as_slice()),
    };
    if parts.last().is_none_or(|last| last.version != want) {
        return Err(Error::Protocol(format!(
            "the server sent no way to model version {want}"
        )));
    }
    let max = max_frame(joined.layout.len(), joined.layout.tensors().len());
    for part in parts.iter().copied() {
        let mut frame = Assembler::new(part.len, max, part.digest)?;
        while frame.missing() > 0 {
            let data = chunks.data().await?;
            chunks.rest = frame.push(data);
        }
        worker.call(move |work| work.apply(part, kind, frame)).await??;
    }
    Ok(())
}

/// The chunks of one fetch, cut anywhere.
struct Chunks {
    stream: Streaming<wire::ModelChunk>,
    rpc: Rpc,
    /// Read, but not part of the frame before.
    rest: Bytes,
}

impl Chunks {
    async fn next(&mut self) -> Result<Part, Error> {
        let message = self.stream.message().await.map_err(|status| self.rpc.blame(&status))?;
        let chunk = message.ok_or_else(|| Error::Protocol("the server ended a fetch too early".to_owned()))?;
        chunk
            .part
            .ok_or_else(|| Error::Protocol("the server sent an empty chunk".to_owned()))
    }

    async fn header(&mut self) -> Result<ModelHeader, Error> {
        match self.next().await? {
            Part::Header(header) => Ok(header.try_into()?),
            Part::Data(_) => Err(Error::Protocol("a fetch must begin with its header".to_owned())),
        }
    }

    async fn data(&mut self) -> Result<Bytes, Error> {
        if !self.rest.is_empty() {
            return Ok(std::mem::take(&mut self.rest));
        }
        match self.next().await? {
            Part::Data(data) if !data.is_empty() => Ok(data),
            _ => Err(Error::Protocol("a fetch has one header and no empty chunks".to_owned())),
        }
    }
}
