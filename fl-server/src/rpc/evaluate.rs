//! `Evaluate`: one client's evaluation of one model version.

use fl_proto::{EvaluationReport, wire};
use tonic::{Request, Status};

use crate::coordinator::command::Command;
use crate::rpc::context::Service;
use crate::state_machine::{Input, Reply};

pub(super) async fn evaluate(
    service: &Service,
    request: Request<wire::EvaluationReport>,
) -> Result<wire::EvaluationReply, Status> {
    let peer = service.peer(&request)?;
    peer.counters.evaluated(request.get_ref());
    let report = EvaluationReport::try_from(request.into_inner())?;
    service.check_run(&report.run)?;
    let input = Input::Evaluation {
        client: peer.client,
        version: report.version,
        examples: report.examples,
        loss: report.loss,
        correct: report.correct,
        metrics: report.metrics,
    };
    let reply = service.ask(|reply| Command::Decide { input, reply }).await?;
    let counted = matches!(reply, Reply::Evaluation { counted: true });
    let reply = wire::EvaluationReply { counted };
    peer.counters.answered(&reply);
    Ok(reply)
}
