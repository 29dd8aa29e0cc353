//! Who may make which call, at this moment. Every call asks here before its handler begins, and every stream once a second.

use std::path::PathBuf;
use std::sync::Arc;

use fl_proto::{ClientId, Role};
use tokio::sync::watch;
use tonic::Status;

use crate::clock::{Clock, Millis, minute};
use crate::config::revoked;
use crate::identity::Certificates;
use crate::registry::credential::Credential;
use crate::registry::standing::{CertificateRefusal, Standings};
use crate::telemetry::turned_away::TurnedFor;

/// The calls of `fl.v1.Federation`, and the admin page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallKind {
    Join,
    Watch,
    Fetch,
    FetchBase,
    Offer,
    Submit,
    Evaluate,
    Leave,
    Renew,
    Probe,
    /// `grpc.health.v1.Health`.
    Health,
    Page,
}

impl CallKind {
    /// The roles whose certificates may make this call.
    const fn roles(self) -> &'static [Role] {
        match self {
            Self::Join
            | Self::Watch
            | Self::Fetch
            | Self::FetchBase
            | Self::Offer
            | Self::Evaluate
            | Self::Leave
            | Self::Renew
            | Self::Probe => &[Role::Client, Role::Evaluator],
            Self::Submit => &[Role::Client],
            Self::Health => &[Role::Client, Role::Evaluator, Role::Operator],
            Self::Page => &[Role::Operator],
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denial {
    #[error("this certificate is an operator's, who takes part in no run; enroll this device as a client")]
    Operator,
    #[error(
        "this certificate is of the role {0}, which may not make this call; enroll this device with another `--role`"
    )]
    Role(Role),
    #[error("the certificate of `{client}` expired on {}", minute(*at))]
    Expired { client: ClientId, at: Millis },
    #[error("the authority that signed the certificate of `{0}` is not one of this federation any more")]
    Issuer(ClientId),
    #[error("client `{client}` is revoked{}{why}", if why.is_empty() { "" } else { ": " })]
    Name { client: ClientId, why: String },
    #[error("this certificate of `{0}` is revoked")]
    Certificate(ClientId),
    #[error(
        "`{0}` has used a newer certificate or was forgotten, so this one is not valid any more; if the folder of the client was \
         restored from a copy, enroll it again (`fl-server enroll {0} --again`)"
    )]
    Replaced(ClientId),
    /// No client is admitted then.
    #[error("the server cannot read its list of revoked clients ({list}): {why}")]
    Unreadable { list: String, why: String },
}

impl Denial {
    pub(crate) fn reason(&self) -> TurnedFor {
        match self {
            Self::Operator | Self::Role(_) | Self::Expired { .. } | Self::Issuer(_) => TurnedFor::Certificate,
            Self::Name { .. } | Self::Certificate(_) | Self::Replaced(_) | Self::Unreadable { .. } => {
                TurnedFor::Revoked
            }
        }
    }
}

impl From<Denial> for Status {
    fn from(denied: Denial) -> Self {
        let text = denied.to_string();
        match denied {
            // Another handshake decides: the clock of this moment may be wrong.
            Denial::Expired { .. } | Denial::Issuer(_) => Self::unauthenticated(text),
            Denial::Unreadable { .. } => Self::unavailable(text),
            _ => Self::permission_denied(text),
        }
    }
}

/// Decides whether a caller is admitted. Clones share what the registry and the certificates say.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    /// The operator's list, read at each call ([`crate::config::revoked`]). May be missing.
    pub(crate) list: PathBuf,
    pub(crate) standings: Standings,
    pub(crate) certificates: watch::Receiver<Arc<Certificates>>,
    pub(crate) clock: Clock,
}

impl Admission {
    /// Refuses a call that the role may not make, a certificate that has expired, is of an authority that was removed, revoked or
    /// replaced, and a client that is revoked.
    pub(crate) fn admit(&self, call: CallKind, shown: &Credential) -> Result<(), Denial> {
        let client = &shown.client;
        if !call.roles().contains(&shown.role) {
            return Err(match shown.role {
                Role::Operator => Denial::Operator,
                role => Denial::Role(role),
            });
        }
        // To the second, as the handshake.
        if self.clock.wall() / 1000 > shown.expires() / 1000 {
            let at = shown.expires();
            let client = client.clone();
            return Err(Denial::Expired { client, at });
        }
        if !self.certificates.borrow().trusts(&shown.issuer) {
            return Err(Denial::Issuer(client.clone()));
        }
        match revoked::names(&self.list, client, &shown.fingerprint) {
            Ok(false) => {}
            Ok(true) => {
                return Err(Denial::Name {
                    client: client.clone(),
                    why: String::new(),
                });
            }
            Err(why) => {
                return Err(Denial::Unreadable {
                    list: self.list.display().to_string(),
                    why: why.to_string(),
                });
            }
        }
        match self.standings.refusal(shown) {
            None => Ok(()),
            Some(CertificateRefusal::Name(why)) => Err(Denial::Name {
                client: client.clone(),
                why,
            }),
            Some(CertificateRefusal::Certificate) => Err(Denial::Certificate(client.clone())),
            Some(CertificateRefusal::Replaced) => Err(Denial::Replaced(client.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use fl_proto::Authority;
    use time::{Duration, OffsetDateTime};
    use tonic::Code;

    use super::*;
    use crate::registry::client::{ClientRecord, Exclusion};

    const DENIED: Option<Code> = Some(Code::PermissionDenied);

    /// Two certificates of one name, and who decides about them.
    struct Gate {
        dir: tempfile::TempDir,
        both: [Credential; 2],
        admission: Admission,
        _certificates: watch::Sender<Arc<Certificates>>,
    }

    impl Gate {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let now = OffsetDateTime::now_utc();
            let (authority, root) = Authority::create("fed", now, Duration::days(9)).unwrap();
            let server = authority.issue_server(now, Duration::days(9)).unwrap();
            let certificates = Certificates::new(root.certificate.clone(), server, None).unwrap();
            let both = [(); 2].map(|()| {
                let issued = authority.issue_client(&"camera-07".parse().unwrap(), now, Duration::days(1));
                let der = fl_proto::certificates_of(&issued.unwrap().certificate)
                    .unwrap()
                    .remove(0);
                Credential::of(&[der], &certificates.authorities).unwrap()
            });
            let (sender, certificates) = watch::channel(Arc::new(certificates));
            let admission = Admission {
                list: dir.path().join("revoked"),
                standings: Standings::default(),
                certificates,
                clock: Clock::new(crate::clock::system, 0),
            };
            Self {
                dir,
                both,
                admission,
                _certificates: sender,
            }
        }

        fn codes(&self) -> [Option<Code>; 2] {
            let admitted = |shown| self.admission.admit(CallKind::Join, shown);
            self.both
                .each_ref()
                .map(|shown| admitted(shown).err().map(|denied| Status::from(denied).code()))
        }
    }

    #[test]
    fn revocation_is_by_a_line_of_a_file_or_a_file_of_a_folder() {
        let gate = Gate::new();
        let path = &gate.admission.list;
        assert_eq!(gate.codes(), [None, None], "without a list, no client is revoked");
        let fingerprint = gate.both[0].fingerprint.to_string();
        let pairs = format!("sha256:{}", fingerprint[7..].to_uppercase());
        for (lines, expected) in [
            ("camera-070\n camera-07 \n", [DENIED, DENIED]),
            ("camera-070\n", [None, None]),
            (&format!("someone\n  {fingerprint}\n"), [DENIED, None]),
            (&pairs, [DENIED, None]),
        ] {
            std::fs::write(path, lines).unwrap();
            assert_eq!(gate.codes(), expected, "{lines}");
        }
        std::fs::remove_file(path).unwrap();
        std::fs::create_dir(path).unwrap();
        assert_eq!(gate.codes(), [None, None]);
        std::fs::write(path.join(fingerprint), "").unwrap();
        assert_eq!(gate.codes(), [DENIED, None]);
        std::fs::write(path.join("camera-07"), "").unwrap();
        assert_eq!(gate.codes(), [DENIED, DENIED]);
    }

    #[test]
    fn the_registry_revokes_names_and_certificates_and_what_was_issued_before_a_time() {
        let gate = Gate::new();
        let says = |record: ClientRecord| {
            gate.admission.standings.update(&gate.both[0].client, Some(&record));
            gate.codes()
        };
        let revocation = || {
            let why = "stolen".to_owned();
            Some(Box::new(Exclusion { at: 0, why }))
        };
        let seen = || {
            let mut record = ClientRecord::default();
            record.joined(&gate.both[0], 1);
            record
        };
        let mut by_name = seen();
        by_name.revoked = revocation();
        assert_eq!(says(by_name), [DENIED, DENIED]);
        let mut by_certificate = seen();
        by_certificate.certificates[0].revoked = revocation();
        assert_eq!(says(by_certificate), [DENIED, None]);
        let mut replaced = seen();
        replaced.certificates[0].replaced = Some(1);
        assert_eq!(says(replaced), [DENIED, None]);
        let issued = gate.both[0].issued();
        let unknown = ClientRecord::default;
        assert_eq!(says(unknown().forgotten(issued)), [None, None], "in that second");
        assert_eq!(says(unknown().forgotten(issued + 1_000)), [DENIED, DENIED]);
        assert_eq!(says(seen().forgotten(issued)), [DENIED, None], "known in that second");
        assert_eq!(says(ClientRecord::default()), [None, None]);
    }

    #[test]
    fn an_unreadable_list_admits_nobody() {
        let mut gate = Gate::new();
        std::fs::write(&gate.admission.list, [0xff, 0xfe]).unwrap();
        assert_eq!(gate.codes(), [Some(Code::Unavailable); 2]);
        let pipe = gate.dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        gate.admission.list = pipe;
        assert_eq!(gate.codes(), [Some(Code::Unavailable); 2], "a pipe without a writer");
    }
}
