//! Who is calling: the name in the verified certificate, and whether that client is admitted.

use std::path::Path;
use std::sync::Arc;

use fl_proto::{ClientId, Meter, PeerInfo, peer_expiry, peer_name};
use time::OffsetDateTime;
use tonic::transport::server::TlsConnectInfo;
use tonic::{Request, Status};

use crate::tally::Tally;
use crate::traffic::Traffic;

/// The caller.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// Its name.
    pub(crate) client: ClientId,
    /// When its certificate ends, if that can be told.
    pub(crate) ends: Option<OffsetDateTime>,
    /// Counts its connection's bytes.
    pub(crate) meter: Arc<Meter>,
    /// Counts what it sends and gets.
    pub(crate) tally: Arc<Tally>,
}

/// Name of the caller, from its certificate and nothing else. Its connection is booked to it from here on.
///
/// # Errors
/// `UNAUTHENTICATED` without a usable certificate, `PERMISSION_DENIED` if the client is revoked.
pub(crate) fn identify<T>(request: &Request<T>, traffic: &Traffic, revoked: &Path) -> Result<Peer, Status> {
    let info = request.extensions().get::<TlsConnectInfo<PeerInfo>>();
    let info = info.ok_or_else(|| Status::unauthenticated("the connection is not protected by TLS"))?;
    let certificates = info.peer_certs();
    let own = certificates.as_ref().and_then(|chain| chain.first());
    let own = own.ok_or_else(|| Status::unauthenticated("the client showed no certificate"))?;
    let client = peer_name(own).map_err(|error| Status::unauthenticated(error.to_string()))?;
    let tally = traffic.identified(&info.get_ref().meter, &client);
    admit(revoked, &client)?;
    let ends = peer_expiry(own).ok();
    Ok(Peer {
        client,
        ends,
        meter: Arc::clone(&info.get_ref().meter),
        tally,
    })
}

/// Refuses a client whose name stands in the file `revoked`, or in whose name there is a file in the folder `revoked`.
///
/// # Errors
/// `PERMISSION_DENIED`; `UNAVAILABLE` if the list is there but cannot be read: nobody is admitted on a guess.
pub(crate) fn admit(revoked: &Path, client: &ClientId) -> Result<(), Status> {
    let is_revoked = match std::fs::read_to_string(revoked) {
        Ok(names) => names.lines().any(|line| line.trim() == client.as_str()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) if error.kind() == std::io::ErrorKind::IsADirectory => revoked.join(client.as_str()).exists(),
        Err(error) => {
            tracing::error!(path = %revoked.display(), %error, "list of revoked clients cannot be read");
            return Err(Status::unavailable(
                "the server cannot read its list of revoked clients",
            ));
        }
    };
    if is_revoked {
        return Err(Status::permission_denied(format!(
            "client `{client}` is revoked; ask who runs the federation"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn revocation_is_by_a_line_of_a_file_or_a_file_of_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let (client, path) = ("camera-07".parse().unwrap(), dir.path().join("revoked"));
        assert!(admit(&path, &client).is_ok(), "no list, nobody revoked");
        std::fs::write(&path, "camera-070\n camera-07 \n").unwrap();
        assert_eq!(admit(&path, &client).unwrap_err().code(), Code::PermissionDenied);
        std::fs::write(&path, "camera-070\n").unwrap();
        assert!(admit(&path, &client).is_ok());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(admit(&path, &client).is_ok());
        std::fs::write(path.join("camera-07"), "").unwrap();
        assert_eq!(admit(&path, &client).unwrap_err().code(), Code::PermissionDenied);
    }

    #[test]
    fn an_unreadable_list_admits_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("revoked");
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert_eq!(
            admit(&path, &"a".parse().unwrap()).unwrap_err().code(),
            Code::Unavailable
        );
    }
}
