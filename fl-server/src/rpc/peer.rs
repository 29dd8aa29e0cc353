//! The caller: the name in its verified certificate, and whether that client is admitted.

use std::net::IpAddr;
use std::sync::Arc;

use fl_proto::{ClientId, Fingerprint, Lifetime, Meter, Role};
use tonic::{Request, Status};

use crate::accounting::client_counters::ClientCounters;
use crate::accounting::connections::Connections;
use crate::rpc::admission::Admission;
use crate::rpc::door::{Call, Caller};

/// The caller.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// Its name.
    pub(crate) client: ClientId,
    /// Of its certificate.
    pub(crate) fingerprint: Fingerprint,
    /// Of its certificate.
    pub(crate) role: Role,
    /// The certificate, DER.
    pub(crate) certificate: Arc<[u8]>,
    /// Where it is.
    pub(crate) address: IpAddr,
    /// When the certificate expires, if that can be read.
    pub(crate) lifetime: Option<Lifetime>,
    /// Counts the connection's bytes.
    pub(crate) meter: Arc<Meter>,
    /// Counts the client's messages.
    pub(crate) counters: Arc<ClientCounters>,
    /// Marks the connection as in use.
    _call: Arc<Call>,
}

/// The caller, from its certificate alone. From here on the connection's bytes are booked to the client.
///
/// # Errors
/// `UNAUTHENTICATED` without a certificate, `PERMISSION_DENIED` if the client is revoked, `RESOURCE_EXHAUSTED` if it
/// has too many calls open.
pub(crate) fn identify<T>(request: &Request<T>, traffic: &Connections, admission: &Admission) -> Result<Peer, Status> {
    let caller = request.extensions().get::<Caller>();
    let caller = caller.ok_or_else(|| Status::unauthenticated("the connection is not protected by TLS"))?;
    let counters = traffic.identified(&caller.meter, &caller.client);
    let call = Arc::new(caller.call()?);
    admission.admit(&caller.client, &caller.fingerprint)?;
    Ok(Peer {
        client: caller.client.clone(),
        fingerprint: caller.fingerprint,
        role: caller.role,
        certificate: Arc::clone(&caller.certificate),
        address: caller.address,
        lifetime: caller.lifetime,
        meter: Arc::clone(&caller.meter),
        counters,
        _call: call,
    })
}
