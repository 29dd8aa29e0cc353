//! The caller: the name in its verified certificate, and whether that client is admitted.

use std::path::Path;
use std::sync::Arc;

use fl_proto::{ClientId, Fingerprint, Meter};
use time::OffsetDateTime;
use tonic::{Request, Status};

use crate::accounting::client_counters::ClientCounters;
use crate::accounting::connections::Connections;
use crate::config::revoked;
use crate::rpc::door::{Call, Caller};

/// The caller.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// Its name.
    pub(crate) client: ClientId,
    /// Of its certificate.
    pub(crate) fingerprint: Fingerprint,
    /// When the certificate expires, if that can be read.
    pub(crate) ends: Option<OffsetDateTime>,
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
pub(crate) fn identify<T>(request: &Request<T>, traffic: &Connections, revoked: &Path) -> Result<Peer, Status> {
    let caller = request.extensions().get::<Caller>();
    let caller = caller.ok_or_else(|| Status::unauthenticated("the connection is not protected by TLS"))?;
    let counters = traffic.identified(&caller.meter, &caller.client);
    let call = Arc::new(caller.call()?);
    admit(revoked, &caller.client, &caller.fingerprint)?;
    Ok(Peer {
        client: caller.client.clone(),
        fingerprint: caller.fingerprint,
        ends: caller.ends,
        meter: Arc::clone(&caller.meter),
        counters,
        _call: call,
    })
}

/// Refuses a client whose name or certificate is in the list `revoked` ([`crate::config::revoked`]).
///
/// # Errors
/// `PERMISSION_DENIED`; `UNAVAILABLE` if the list exists but cannot be read: no client is admitted then.
pub(crate) fn admit(revoked: &Path, client: &ClientId, fingerprint: &Fingerprint) -> Result<(), Status> {
    match revoked::names(revoked, client, fingerprint) {
        Ok(false) => Ok(()),
        Ok(true) => Err(Status::permission_denied(format!("client `{client}` is revoked"))),
        Err(error) => Err(Status::unavailable(format!(
            "{UNREADABLE} ({}): {error}",
            revoked.display()
        ))),
    }
}

/// The beginning of the message of that `UNAVAILABLE`.
pub(super) const UNREADABLE: &str = "the server cannot read its list of revoked clients";

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    /// The status codes for a client and for another certificate of the same name.
    fn codes(path: &Path) -> [Option<Code>; 2] {
        let client = "camera-07".parse().unwrap();
        ["one", "other"].map(|der| {
            let admitted = admit(path, &client, &Fingerprint::of(der.as_bytes()));
            admitted.err().map(|status| status.code())
        })
    }

    #[test]
    fn revocation_is_by_a_line_of_a_file_or_a_file_of_a_folder() {
        const DENIED: Option<Code> = Some(Code::PermissionDenied);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("revoked");
        assert_eq!(codes(&path), [None, None], "without a list, no client is revoked");
        let fingerprint = Fingerprint::of(b"one").to_string();
        let pairs = format!("sha256:{}", fingerprint[7..].to_uppercase());
        for (lines, expected) in [
            ("camera-070\n camera-07 \n", [DENIED, DENIED]),
            ("camera-070\n", [None, None]),
            (&format!("someone\n  {fingerprint}\n"), [DENIED, None]),
            (&pairs, [DENIED, None]),
        ] {
            std::fs::write(&path, lines).unwrap();
            assert_eq!(codes(&path), expected, "{lines}");
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(codes(&path), [None, None]);
        std::fs::write(path.join(fingerprint), "").unwrap();
        assert_eq!(codes(&path), [DENIED, None]);
        std::fs::write(path.join("camera-07"), "").unwrap();
        assert_eq!(codes(&path), [DENIED, DENIED]);
    }

    #[test]
    fn an_unreadable_list_admits_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("revoked");
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert_eq!(codes(&path), [Some(Code::Unavailable); 2]);
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        assert_eq!(codes(&pipe), [Some(Code::Unavailable); 2], "a pipe without a writer");
    }
}
