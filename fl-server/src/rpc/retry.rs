//! Why the client of an upload keeps its update and comes again. An update that is accepted, refused, or wanted from an offset on
//! has an [`UpdateReply`](fl_proto::UpdateReply) instead.

use fl_proto::ProtocolError;
use tonic::Status;

use crate::coordinator::command::Command;
use crate::rpc::context::{Service, unable};
use crate::storage::blobs::BlobError;

#[derive(Debug)]
pub(super) enum Retry {
    /// The round cannot take updates now, but will.
    NotNow(&'static str),
    /// The upload cannot be written or read back.
    Storage(BlobError),
    /// The call ends with this status.
    Call(Status),
}

impl Retry {
    /// The status that the client gets. A failing disk stops the server.
    pub(super) async fn status(self, service: &Service) -> Status {
        match self {
            Self::NotNow(why) => Status::failed_precondition(why),
            Self::Storage(error) => {
                if let BlobError::Disk(error) = &error
                    && !error.is_busy()
                {
                    let _ = service.commands.send(Command::Broken(error.clone())).await;
                }
                unable(&error)
            }
            Self::Call(status) => status,
        }
    }
}

impl From<BlobError> for Retry {
    fn from(error: BlobError) -> Self {
        Self::Storage(error)
    }
}

impl From<Status> for Retry {
    fn from(status: Status) -> Self {
        Self::Call(status)
    }
}

impl From<ProtocolError> for Retry {
    fn from(error: ProtocolError) -> Self {
        Self::Call(error.into())
    }
}
