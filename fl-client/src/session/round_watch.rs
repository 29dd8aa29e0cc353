//! The latest state of the run. Older states that were not acted upon are dropped.

use fl_proto::{Phase, RoundState, wire};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::Streaming;

use crate::error::Error;
use crate::rpc::Rpc;

/// The last message of the watch stream. A task reads the stream, so that the server never waits for a busy client.
#[derive(Debug)]
pub(super) struct RoundWatch {
    seen: watch::Receiver<Seen>,
    acted: u64,
    reader: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Seen {
    state: Option<RoundState>,
    /// Messages so far.
    count: u64,
    end: Option<Error>,
}

impl RoundWatch {
    pub(super) fn start(stream: Streaming<wire::RoundState>, rpc: Rpc) -> Self {
        let (sender, seen) = watch::channel(Seen::default());
        Self {
            seen,
            acted: 0,
            reader: tokio::spawn(read(stream, rpc, sender)),
        }
    }

    /// The latest state, once there is one that was not returned yet.
    ///
    /// # Errors
    /// Why the stream ended, once every state was returned.
    pub(super) async fn next(&mut self) -> Result<RoundState, Error> {
        let acted = self.acted;
        let closed = || Error::Broken("the watch stream ended".to_owned());
        let seen = self
            .seen
            .wait_for(|seen| seen.count > acted || seen.end.is_some())
            .await
            .map_err(|_| closed())?;
        match &seen.state {
            Some(state) if seen.count > acted => {
                self.acted = seen.count;
                Ok(state.clone())
            }
            _ => Err(seen.end.clone().unwrap_or_else(closed)),
        }
    }

    /// Completes when a newer state makes work for `old` useless. Never completes for a stream that has ended: the work may
    /// still be of use after the next connection.
    pub(super) async fn supersedes(&self, old: &RoundState) {
        let mut seen = self.seen.clone();
        let newer = seen
            .wait_for(|seen| seen.state.as_ref().is_some_and(|new| is_another(old, new)))
            .await
            .is_ok();
        if !newer {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for RoundWatch {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

fn is_another(old: &RoundState, new: &RoundState) -> bool {
    (old.round, old.version, old.model) != (new.round, new.version, new.model)
        || matches!(new.phase, Phase::Done | Phase::Failed)
}

async fn read(mut stream: Streaming<wire::RoundState>, rpc: Rpc, seen: watch::Sender<Seen>) {
    let end = loop {
        let state = match stream.message().await {
            Ok(Some(message)) => RoundState::try_from(message).map_err(Error::from),
            Ok(None) => Err(Error::Broken("the server ended the watch: it is stopping".to_owned())),
            Err(status) => Err(rpc.error_of(&status)),
        };
        match state {
            Ok(state) => seen.send_modify(|seen| {
                seen.state = Some(state);
                seen.count += 1;
            }),
            Err(error) => break error,
        }
    };
    seen.send_modify(|seen| seen.end = Some(end));
}
