//! `FetchBase`: the frozen tensors of the run, from the byte on that the client lacks.

use std::sync::Arc;

use fl_compress::weights::BasePlan;
use fl_proto::{BaseRequest, wire};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::context::Peer;
use super::download::{Download, fail};
use crate::accounting::client_counters::DownloadKind;
use crate::accounting::transfers::DownloadAccount;
use crate::rpc::admission::CallKind;
use crate::rpc::context::{Service, internal, unable};

pub(super) async fn fetch_base(
    service: Arc<Service>,
    peer: Peer,
    asked: wire::BaseRequest,
) -> Result<ReceiverStream<Result<wire::BaseChunk, Status>>, Status> {
    peer.counters.asked(&asked);
    let asked = BaseRequest::try_from(asked)?;
    service.check_run(&asked.run)?;
    let len = available(&service, &asked)?;
    let mut turn = service.turn(CallKind::FetchBase, &peer);
    let (chunks, stream) = mpsc::channel(1);
    tokio::spawn(async move {
        let account = DownloadAccount::begin(&peer.counters, DownloadKind::Base);
        let span = service.tracer.base(&peer.client, asked.offset, len);
        let mut download = Download::begin(&service, &peer, len - asked.offset, &chunks);
        let sent = tokio::select! {
            sent = download.send_blob(&asked.base, asked.offset..len, &account, |data| wire::BaseChunk { data }) => sent,
            status = turn.over() => Err(status),
        };
        match sent {
            Ok(()) => span.done(),
            Err(status) => fail(&chunks, status).await,
        }
    });
    Ok(ReceiverStream::new(stream))
}

/// The bytes of the base, if the server has it and the client may have the rest of it.
fn available(service: &Service, asked: &BaseRequest) -> Result<u64, Status> {
    let run = &service.plan.name;
    if service.aside.base != Some(asked.base) {
        let text = format!("{} is not the base of run `{run}`; join again", asked.base);
        return Err(Status::failed_precondition(text));
    }
    if !service.plan.serve_base {
        let text = format!("run `{run}` does not serve its base: its run.toml has no `serve_base = true`");
        return Err(Status::failed_precondition(text));
    }
    let plan = BasePlan::of(&service.aside.tensors).map_err(internal)?;
    let len = plan.map_or(0, |plan| plan.file_len());
    if asked.offset > len {
        let text = format!("offset: {} is beyond the {len} bytes of the base", asked.offset);
        return Err(Status::invalid_argument(text));
    }
    match service.blobs.len(&asked.base).map_err(|e| unable(&e))? {
        Some(found) if found == len => Ok(len),
        found => {
            let found = found.map_or("is missing".to_owned(), |found| format!("has {found} bytes, not {len}"));
            let path = service.blobs.path(&asked.base);
            tracing::error!(path = %path.display(), "the base {found}; restore the file from a backup");
            Err(Status::unavailable(format!(
                "the server's file of the base {found}; the operator of the server can restore it, see `fl-server verify`"
            )))
        }
    }
}
