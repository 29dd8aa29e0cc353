//! `Evaluate`: one client's evaluation of one model version.

use std::sync::Arc;

use fl_proto::{ClientId, EvaluationReport, wire};
use tonic::Status;

use crate::coordinator::command::Command;
use crate::rpc::context::{Peer, Service};
use crate::state_machine::{Input, Reply};

pub(super) async fn evaluate(
    service: Arc<Service>,
    peer: Peer,
    report: wire::EvaluationReport,
) -> Result<wire::EvaluationReply, Status> {
    peer.counters.evaluated(&report);
    let report = EvaluationReport::try_from(report)?;
    service.check_run(&report.run)?;
    let counted = book(&service, &peer.client, report).await?;
    let reply = wire::EvaluationReply { counted };
    peer.counters.answered(&reply);
    Ok(reply)
}

/// Whether an evaluation of this run counts. Idempotent.
pub(super) async fn book(service: &Service, client: &ClientId, report: EvaluationReport) -> Result<bool, Status> {
    let client = client.clone();
    let input = Input::Evaluation { client, report };
    let reply = service.ask(|reply| Command::Decide { input, reply }).await?;
    Ok(matches!(reply, Reply::Evaluation { counted: true }))
}
