//! `Evaluate`: one client's evaluation of one model version.

use fl_proto::{EvaluationReport, wire};
use tonic::{Request, Status};

use crate::coordinator::command::Command;
use crate::rpc::context::Service;

pub(super) async fn evaluate(
    service: &Service,
    request: Request<wire::EvaluationReport>,
) -> Result<wire::EvaluationReply, Status> {
    let peer = service.peer(&request)?;
    peer.counters.evaluated(request.get_ref());
    let report = EvaluationReport::try_from(request.into_inner())?;
    service.check_run(&report.run)?;
    let counted = service
        .ask(|reply| Command::Evaluation {
            client: peer.client,
            report,
            reply,
        })
        .await?;
    let reply = wire::EvaluationReply { counted };
    peer.counters.answered(&reply);
    Ok(reply)
}
