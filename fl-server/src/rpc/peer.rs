//! The caller of a call that is admitted.

use std::net::IpAddr;
use std::sync::Arc;

use fl_proto::{ClientId, Meter};

use crate::accounting::client_counters::ClientCounters;
use crate::registry::credential::Credential;
use crate::rpc::door::Call;

/// The caller. Only [`Service::enter`](super::context::Service::enter) makes one, so that no handler begins before it.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) client: ClientId,
    /// What its certificate says.
    pub(crate) credential: Arc<Credential>,
    pub(crate) address: IpAddr,
    /// Counts the connection's bytes.
    pub(crate) meter: Arc<Meter>,
    /// Counts the client's messages.
    pub(crate) counters: Arc<ClientCounters>,
    /// Marks the connection as in use.
    pub(super) call: Arc<Call>,
}
