//! `Watch`: the run as one client sees it, whenever that changes. While a client watches, it is present.

use std::sync::Arc;

use fl_proto::{ClientId, Phase, RoundState, RunName, wire};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status};

use super::{Service, peer, stopping};
use crate::driver::Command;

type Messages = mpsc::Sender<Result<wire::RoundState, Status>>;

pub(super) fn watch(
    service: Arc<Service>,
    request: Request<wire::WatchRequest>,
) -> Result<ReceiverStream<Result<wire::RoundState, Status>>, Status> {
    let peer = service.peer(&request)?;
    let run: RunName = request.into_inner().run.parse()?;
    service.check_run(&run)?;
    // One message is in the channel, one is being made: a client that does not read sees the latest, not a backlog.
    let (messages, stream) = mpsc::channel(1);
    tokio::spawn(attend(service, peer.client, messages));
    Ok(ReceiverStream::new(stream))
}

/// Present from here to the end of the stream, however it ends.
async fn attend(service: Arc<Service>, client: ClientId, messages: Messages) {
    if service.commands.send(Command::Arrived(client.clone())).await.is_err() {
        let _ = messages.send(Err(stopping())).await;
        return;
    }
    tracing::debug!(%client, "watching");
    if let Err(status) = tell(&service, &client, &messages).await {
        let _ = messages.try_send(Err(status));
    }
    tracing::debug!(%client, "no longer watching");
    let _ = service.commands.send(Command::Left(client)).await;
}

async fn tell(service: &Service, client: &ClientId, messages: &Messages) -> Result<(), Status> {
    let mut state = service.state.clone();
    let mut stop = service.stopping.clone();
    let mut last: Option<RoundState> = None;
    loop {
        let view = {
            let state = state.borrow_and_update();
            state.view(&service.plan, client, (service.clock)())
        };
        let over = matches!(view.phase, Phase::Done | Phase::Failed);
        if last.as_ref().is_none_or(|last| differs(last, &view)) {
            peer::admit(&service.revoked, client)?;
            last = Some(view.clone());
            tokio::select! {
                sent = messages.send(Ok(view.into())) => if sent.is_err() { return Ok(()) },
                _ = stop.wait_for(|stop| *stop) => return Err(stopping()),
            }
        }
        if over {
            return Ok(());
        }
        tokio::select! {
            changed = state.changed() => changed.map_err(|_| stopping())?,
            _ = stop.wait_for(|stop| *stop) => return Err(stopping()),
            () = messages.closed() => return Ok(()),
        }
    }
}

/// Whether there is something new to say; time running is nothing new.
fn differs(last: &RoundState, now: &RoundState) -> bool {
    let still = |state: &RoundState| RoundState {
        left: None,
        ..state.clone()
    };
    still(last) != still(now)
}
