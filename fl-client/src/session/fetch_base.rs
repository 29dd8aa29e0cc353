//! Finds the run's base on this device, or fetches it: from the byte on that is missing, once.

use std::path::PathBuf;

use fl_proto::{BaseRequest, Joined};

use crate::base::{Arrival, Part, RunBase};
use crate::client::ClientActor;
use crate::conditions::Monitor;
use crate::error::Error;
use crate::event::{Event, Sink};
use crate::rpc::Rpc;

/// A file with the frozen tensors of the run. `None` if the run has none, or this device has none and the server does not
/// send them. On an error, what has arrived is kept.
pub(super) async fn obtain_base(
    rpc: &mut Rpc,
    actor: &ClientActor,
    events: &Sink,
    joined: &Joined,
    monitor: &mut Monitor,
) -> Result<Option<PathBuf>, Error> {
    let Some(wanted) = RunBase::of(joined)? else {
        return Ok(None);
    };
    let find = wanted.clone();
    let found = actor.call(move |client| client.bases.find(&find)).await?;
    if let Some(path) = &found {
        tracing::debug!(path = %path.display(), "found the base");
    }
    if found.is_some() || !joined.serves_base {
        return Ok(found);
    }
    // Not watching yet, the client is in no cohort meanwhile.
    monitor.available().await;
    loop {
        let from = wanted.clone();
        let part = actor.call(move |client| client.bases.part(&from)).await??;
        let begun_before = part.len() > 0;
        let whole = fetch_rest(rpc, actor, events, joined, part).await?;
        match actor.call(|_| whole.finish()).await?? {
            Arrival::Base(path) => {
                events.send(Event::FetchedBase { bytes: wanted.len() });
                return Ok(Some(path));
            }
            // The fault may be in what an earlier call received, or in this device's disk.
            Arrival::Other(found) if begun_before => tracing::warn!(
                base = %wanted.digest,
                %found,
                "what had arrived of the base is not its beginning: it is deleted and fetched again"
            ),
            Arrival::Other(found) => {
                return Err(Error::Protocol(format!(
                    "the server sent a base with the digest {found} instead of {}, which is deleted here: the server's file is \
                     damaged; run `fl-server verify` on the server",
                    wanted.digest
                )));
            }
        }
    }
}

/// Fetches what is missing of the base. A chunk is on its way to the disk before the next one is read.
async fn fetch_rest(
    rpc: &mut Rpc,
    actor: &ClientActor,
    events: &Sink,
    joined: &Joined,
    mut part: Part,
) -> Result<Part, Error> {
    let Some(base) = joined.base.filter(|_| part.missing() > 0) else {
        return Ok(part);
    };
    events.send(Event::FetchingBase {
        held: part.len(),
        bytes: part.len() + part.missing(),
    });
    let request = BaseRequest {
        run: joined.run.clone(),
        base,
        offset: part.len(),
    };
    let mut stream = rpc.fetch_base(request).await?;
    while let Some(chunk) = stream.message().await.map_err(|status| rpc.error_of(&status))? {
        if chunk.data.is_empty() {
            return Err(Error::Protocol("a base has no empty chunks".to_owned()));
        }
        part = actor.call(move |_| part.append(&chunk.data).map(|()| part)).await??;
    }
    match part.missing() {
        0 => Ok(part),
        missing => Err(Error::Broken(format!(
            "the server ended the base {missing} bytes before its end"
        ))),
    }
}
