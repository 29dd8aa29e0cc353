//! What the server notes of clients while they take part.

use std::net::IpAddr;
use std::sync::Arc;

use fl_proto::ClientId;

use crate::clock::Millis;
use crate::registry::book::Registry;
use crate::registry::client::Exclusion;
use crate::registry::credential::Credential;
use crate::storage::store::StoreError;

/// A client that joined, or an operator who read the page with a certificate.
#[derive(Debug, Clone)]
pub(crate) struct Joining {
    pub(crate) shown: Arc<Credential>,
    pub(crate) address: IpAddr,
    /// As the client says.
    pub(crate) software: String,
    pub(crate) device: String,
}

/// How old the stored time of a client's last join may be.
const STALE: Millis = 60_000;

impl Registry {
    /// Notes that a client joined. Stored at once if it is new, or with a certificate for the first time: that one replaces the
    /// one before. Otherwise stored with the next change, or if the stored time is old. Returns whether the certificate
    /// was used for the first time.
    pub(crate) fn joined(&mut self, joining: &Joining, now: Millis) -> Result<bool, StoreError> {
        let Joining {
            shown,
            address,
            software,
            device,
        } = joining;
        // It may have waited behind a change of an operator.
        if self.standings().refusal(shown).is_some() {
            return Ok(false);
        }
        let client = self.clients.entry(shown.client.clone()).or_default();
        let known = client
            .certificates
            .iter()
            .find(|one| one.fingerprint == shown.fingerprint);
        let first = known.is_none_or(|one| one.used.is_none());
        let stale = client.last_seen.is_none_or(|last| last.saturating_add(STALE) <= now);
        client.joined(shown, now);
        client.address = Some(*address);
        client.software.clone_from(software);
        client.device.clone_from(device);
        self.unsaved.insert(shown.client.clone());
        if first || stale {
            self.save(&[])?;
        }
        Ok(first)
    }

    /// Notes that a known client was turned away. Not stored at once: a client that retries would fill the disk.
    pub(crate) fn rejected(&mut self, client: &ClientId, why: &str, now: Millis) {
        if let Some(record) = self.clients.get_mut(client) {
            let why = why.chars().take(300).collect();
            record.rejected = Some(Box::new(Exclusion { at: now, why }));
            self.unsaved.insert(client.clone());
        }
    }

    /// Stores what is in memory only.
    pub(crate) fn flush(&mut self) -> Result<(), StoreError> {
        self.save(&[])
    }
}
