//! Whom the server admits: neither the operator's list nor the registry has revoked the client or its certificate.

use std::path::PathBuf;
use std::sync::Arc;

use fl_proto::{ClientId, Fingerprint};
use tokio::sync::watch;
use tonic::Status;

use crate::config::revoked;
use crate::registry::Refused;

/// Decides whether a client is admitted. Clones share what the registry says.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    /// The operator's list, read at each call ([`crate::config::revoked`]). May be missing.
    list: PathBuf,
    refused: watch::Receiver<Arc<Refused>>,
}

/// The beginning of the message when the list cannot be read.
pub(super) const UNREADABLE: &str = "the server cannot read its list of revoked clients";

impl Admission {
    pub(crate) fn new(list: PathBuf, refused: watch::Receiver<Arc<Refused>>) -> Self {
        Self { list, refused }
    }

    /// Refuses a client that is revoked, and a certificate that is revoked or replaced.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`; `UNAVAILABLE` if the list exists but cannot be read: no client is admitted then.
    pub(crate) fn admit(&self, client: &ClientId, fingerprint: &Fingerprint) -> Result<(), Status> {
        let denied = |text: String| Err(Status::permission_denied(text));
        match revoked::names(&self.list, client, fingerprint) {
            Ok(false) => {}
            Ok(true) => return denied(format!("client `{client}` is revoked")),
            Err(error) => {
                let list = self.list.display();
                return Err(Status::unavailable(format!("{UNREADABLE} ({list}): {error}")));
            }
        }
        let refused = Arc::clone(&self.refused.borrow());
        if let Some(why) = refused.clients.get(client) {
            let why = if why.is_empty() {
                String::new()
            } else {
                format!(": {why}")
            };
            return denied(format!("client `{client}` is revoked{why}"));
        }
        if refused.certificates.contains(fingerprint) {
            return denied(format!("this certificate of `{client}` is revoked"));
        }
        if refused.replaced.contains(fingerprint) {
            return denied(format!(
                "`{client}` has used a newer certificate, so this one is not valid any more; if the folder of the client was \
                 restored from a copy, enroll it again (`fl-server enroll {client} --again`)"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    const DENIED: Option<Code> = Some(Code::PermissionDenied);

    /// The status codes for a client and for another certificate of the same name.
    fn codes(list: &std::path::Path, refused: Refused) -> [Option<Code>; 2] {
        let client = "camera-07".parse().unwrap();
        let (_sender, refused) = watch::channel(Arc::new(refused));
        let admission = Admission::new(list.to_owned(), refused);
        ["one", "other"].map(|der| {
            let admitted = admission.admit(&client, &Fingerprint::of(der.as_bytes()));
            admitted.err().map(|status| status.code())
        })
    }

    #[test]
    fn revocation_is_by_a_line_of_a_file_or_a_file_of_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("revoked");
        let codes = |path: &std::path::Path| codes(path, Refused::default());
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
    fn the_registry_revokes_names_and_certificates() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("revoked");
        let one = Fingerprint::of(b"one");
        let refused = Refused::default;
        let mut by_name = refused();
        by_name
            .clients
            .insert("camera-07".parse().unwrap(), "stolen".to_owned());
        assert_eq!(codes(&path, by_name), [DENIED, DENIED]);
        let mut by_certificate = refused();
        by_certificate.certificates.insert(one);
        assert_eq!(codes(&path, by_certificate), [DENIED, None]);
        let mut replaced = refused();
        replaced.replaced.insert(one);
        assert_eq!(codes(&path, replaced), [DENIED, None]);
    }

    #[test]
    fn an_unreadable_list_admits_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("revoked");
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert_eq!(codes(&path, Refused::default()), [Some(Code::Unavailable); 2]);
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let codes = codes(&pipe, Refused::default());
        assert_eq!(codes, [Some(Code::Unavailable); 2], "a pipe without a writer");
    }
}
