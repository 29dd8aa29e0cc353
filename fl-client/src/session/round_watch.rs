//! The latest state of the run, and the updates that travel on its stream. Older states that were not acted upon are dropped.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use fl_proto::{Availability, MAX_PUSH, Phase, RoundState, UpdateHeader, UpdateReply, wire};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::Streaming;

use crate::error::Error;
use crate::rpc::{Rpc, Updates};
use crate::waits::if_ok;

/// The last message of the watch stream. A task reads the stream, so that the server never waits for a busy client.
#[derive(Debug)]
pub(super) struct RoundWatch {
    seen: watch::Receiver<WatchState>,
    acted: u64,
    updates: Updates,
    sent: AtomicU64,
    reader: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct WatchState {
    state: Option<RoundState>,
    count: u64,
    answers: u64,
    /// The last of them; `None` if the server has no answer.
    answer: Option<UpdateReply>,
    end: Option<End>,
}

#[derive(Debug)]
enum End {
    Clean,
    Broken(Error),
}

impl RoundWatch {
    pub(super) fn start(stream: Streaming<wire::RoundState>, updates: Updates, rpc: Rpc) -> Self {
        let (sender, seen) = watch::channel(WatchState::default());
        Self {
            seen,
            acted: 0,
            updates,
            sent: AtomicU64::new(0),
            reader: tokio::spawn(read(stream, rpc, sender)),
        }
    }

    /// The latest state, once there is one that was not returned yet; `None` if the server ended the stream after the last.
    /// A broken stream is an error once every state was returned.
    pub(super) async fn next(&mut self) -> Result<Option<RoundState>, Error> {
        let acted = self.acted;
        let seen = self
            .seen
            .wait_for(|seen| seen.count > acted || seen.end.is_some())
            .await
            .map_err(|_| closed())?;
        match &seen.state {
            Some(state) if seen.count > acted => {
                self.acted = seen.count;
                Ok(Some(state.clone()))
            }
            _ => match &seen.end {
                Some(End::Clean) => Ok(None),
                Some(End::Broken(error)) => Err(error.clone()),
                None => Err(closed()),
            },
        }
    }

    /// Sends a whole update on the stream; returns the answer. `None` if the update must be sent by a call of its own. After
    /// an upload that was dropped, the next one does not take its answer.
    pub(super) async fn upload(&self, header: &UpdateHeader, frame: &Bytes) -> Result<Option<UpdateReply>, Error> {
        if header.len > MAX_PUSH || header.offset > 0 {
            return Ok(None);
        }
        let mut update = wire::UpdateHeader::from(header);
        if let Some(id) = &mut update.id {
            id.run.clear();
        }
        let request = wire::WatchRequest {
            update: Some(update),
            frame: frame.clone(),
            ..wire::WatchRequest::default()
        };
        let place = self.updates.reserve().await.map_err(|_| closed())?;
        let own = 1 + self.sent.fetch_add(1, Ordering::Relaxed);
        place.send(request);
        let mut seen = self.seen.clone();
        let seen = seen
            .wait_for(|seen| seen.answers >= own || seen.end.is_some())
            .await
            .map_err(|_| closed())?;
        match seen.answers >= own {
            true => Ok(seen.answer.clone()),
            false => match &seen.end {
                Some(End::Broken(error)) => Err(error.clone()),
                _ => Err(closed()),
            },
        }
    }

    /// Tells the server whether the client is available.
    pub(super) async fn report(&self, availability: Availability) -> Result<(), Error> {
        let request = wire::WatchRequest {
            availability: Some(availability.into()),
            ..wire::WatchRequest::default()
        };
        self.updates.send(request).await.map_err(|_| closed())
    }

    /// Completes when a newer state makes work for `old` useless. Never completes for a stream that has ended: the work may
    /// still be of use after the next connection.
    pub(super) async fn supersedes(&self, old: &RoundState) {
        let mut seen = self.seen.clone();
        let newer = seen.wait_for(|seen| seen.state.as_ref().is_some_and(|new| is_another(old, new)));
        if_ok(newer).await;
    }
}

impl Drop for RoundWatch {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

fn closed() -> Error {
    Error::Broken("the watch stream ended".to_owned())
}

fn is_another(old: &RoundState, new: &RoundState) -> bool {
    (old.round, old.version, old.model) != (new.round, new.version, new.model)
        || matches!(new.phase, Phase::Done | Phase::Failed)
}

async fn read(mut stream: Streaming<wire::RoundState>, rpc: Rpc, seen: watch::Sender<WatchState>) {
    let end = loop {
        let state = match stream.message().await {
            Ok(Some(wire::RoundState { reply: Some(reply), .. })) => {
                // Without a verdict the server has no answer.
                let answer = UpdateReply::try_from(reply).ok();
                seen.send_modify(|seen| {
                    seen.answers += 1;
                    seen.answer = answer;
                });
                continue;
            }
            Ok(Some(message)) => RoundState::try_from(message).map_err(Error::from),
            Ok(None) => break End::Clean,
            Err(status) => Err(rpc.error_of(&status)),
        };
        match state {
            Ok(state) => seen.send_modify(|seen| {
                seen.state = Some(state);
                seen.count += 1;
            }),
            Err(error) => break End::Broken(error),
        }
    };
    seen.send_modify(|seen| seen.end = Some(end));
}
