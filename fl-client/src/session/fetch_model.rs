//! Fetches a model version: the updates after the version held, or a snapshot if those do not lead there.

use bytes::Bytes;
use fl_compress::{Digest, FrameKind};
use fl_proto::wire::model_chunk::Part;
use fl_proto::{Assembler, FetchRequest, FramePart, Joined, ModelHeader, PartialFrame, RoundState, max_frame, wire};
use tonic::Streaming;

use super::stop_on_drop::StopOnDrop;
use crate::client::{ClientActor, ClientState, HeldModel};
use crate::error::Error;
use crate::event::{Event, Sink};
use crate::rpc::Rpc;
use crate::state::{KEPT_FROM, PartialFile};

/// Updates the client's model to that of `state`. Frames that were applied before the call fails or is dropped stay
/// applied.
pub(super) async fn fetch_model(
    rpc: &mut Rpc,
    actor: &ClientActor,
    events: &Sink,
    joined: &Joined,
    state: &RoundState,
) -> Result<(), Error> {
    let version = state.version;
    let digest = state.model;
    let stop = StopOnDrop::default();
    let progress = stop.progress();
    let found = actor.call(move |client| client.compare(version, digest, &progress));
    let held = match found.await?? {
        HeldModel::Wanted => return Ok(()),
        HeldModel::Version(held) => held.filter(|held| *held < version),
    };
    events.send(Event::Fetching { version });
    let had_partial = actor.call(ClientState::partial_frame).await??.is_some();
    if let Some(from) = held {
        let advanced = if !state.step.is_empty() && from + 1 == version {
            apply_step(actor, joined, state).await
        } else {
            fetch_frames(rpc, actor, joined, held, state).await
        };
        match advanced {
            Ok(true) => {
                events.send(Event::Fetched { version });
                return Ok(());
            }
            Ok(false) => {}
            Err(Error::Protocol(why)) => {
                tracing::warn!(version, why, "the model updates cannot be used; fetching a snapshot")
            }
            Err(error) => return Err(error),
        }
        actor.call(|client| client.drop_model()).await?;
    }
    let fetched = match fetch_frames(rpc, actor, joined, None, state).await {
        // What an earlier fetch left may be damaged. It is removed by now.
        Err(Error::Protocol(why)) if had_partial => {
            tracing::warn!(
                version,
                why,
                "what an earlier download left cannot be used; fetching all of it"
            );
            fetch_frames(rpc, actor, joined, None, state).await?
        }
        fetched => fetched?,
    };
    if fetched {
        events.send(Event::Fetched { version });
        return Ok(());
    }
    Err(Error::Protocol(format!(
        "the server's snapshot of model version {version} does not have the digest {digest} that it announced: its store is \
         damaged; run `fl-server verify` on the server"
    )))
}

/// Applies the model update that came with the state of the round. Whether the model is that of `state` then.
async fn apply_step(actor: &ClientActor, joined: &Joined, state: &RoundState) -> Result<bool, Error> {
    let version = state.version;
    let model = state.model;
    let len = state.step.len() as u64;
    let digest = Digest::of(&state.step);
    let max = max_frame(joined.layout.len(), joined.layout.tensors().len());
    let mut frame = Assembler::new(len, max, digest)?;
    frame.push(state.step.clone());
    let part = FramePart { version, len, digest };
    let applied = actor.call(move |client| {
        client.apply(part, FrameKind::ModelUpdate, frame)?;
        client.holds(version, model)
    });
    applied.await?
}

/// Fetches and applies the frames after version `held`, or a snapshot. Whether the model is that of `state` then.
async fn fetch_frames(
    rpc: &mut Rpc,
    actor: &ClientActor,
    joined: &Joined,
    held: Option<u64>,
    state: &RoundState,
) -> Result<bool, Error> {
    let want = state.version;
    let model = state.model;
    let partial = actor.call(ClientState::partial_frame).await??;
    let mut chunks = Chunks {
        stream: rpc
            .fetch(FetchRequest {
                run: joined.run.clone(),
                held,
                want,
                partial,
            })
            .await?,
        rpc: rpc.clone(),
        rest: Bytes::new(),
    };
    let header = chunks.header().await?;
    if header.frames().last().is_none_or(|last| last.version != want) {
        return Err(Error::Protocol(format!(
            "the server sent frames that do not end at model version {want}"
        )));
    }
    // Until its frame comes, the file is not written over.
    let mut partial = resumed(partial, &header)?;
    let max = max_frame(joined.layout.len(), joined.layout.tensors().len());
    let mut is_wanted = false;
    for (kind, part) in header.parts() {
        let mut frame = Assembler::new(part.len, max, part.digest)?;
        let file;
        if let Some(partial) = partial.take_if(|partial| partial.digest == part.digest) {
            (frame, file) = actor
                .call(move |client| {
                    let file = client.resume_partial_frame(partial, &mut frame)?;
                    Ok::<_, Error>((frame, Some(file)))
                })
                .await??;
            tracing::info!(
                version = part.version,
                held = partial.held,
                of = part.len,
                "the download is resumed"
            );
        } else if partial.is_none() && part.len > KEPT_FROM {
            file = actor
                .call(move |client| client.begin_partial_frame(&part.digest))
                .await??;
        } else {
            file = None;
        }
        let frame = chunks.receive(frame, file, actor).await?;
        let applied = actor.call(move |client| {
            client.apply(part, kind, frame)?;
            // Versions on the way are not hashed.
            client.holds(want, model)
        });
        is_wanted = applied.await??;
    }
    Ok(is_wanted)
}

fn resumed(partial: Option<PartialFrame>, header: &ModelHeader) -> Result<Option<PartialFrame>, Error> {
    match partial {
        _ if header.offset() == 0 => Ok(None),
        Some(partial)
            if partial.held == header.offset() && header.frames().iter().any(|part| part.digest == partial.digest) =>
        {
            Ok(Some(partial))
        }
        _ => Err(Error::Protocol(format!(
            "the server leaves out {} bytes that this client does not have",
            header.offset()
        ))),
    }
}

/// The chunks of one fetch. A chunk may end anywhere in a frame.
struct Chunks {
    stream: Streaming<wire::ModelChunk>,
    rpc: Rpc,
    /// Bytes that were read but belong to the next frame.
    rest: Bytes,
}

impl Chunks {
    async fn next(&mut self) -> Result<Part, Error> {
        let message = self
            .stream
            .message()
            .await
            .map_err(|status| self.rpc.error_of(&status))?;
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

    /// Receives the rest of a frame, and writes it to `file` as it comes.
    async fn receive(
        &mut self,
        mut frame: Assembler,
        mut file: Option<PartialFile>,
        actor: &ClientActor,
    ) -> Result<Assembler, Error> {
        while frame.missing() > 0 {
            let data = self.data().await?;
            self.rest = frame.push(data.clone());
            if let Some(begun) = file {
                let taken = data.slice(..data.len() - self.rest.len());
                file = actor.call(move |_| begun.append(&taken)).await?;
            }
        }
        Ok(frame)
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
