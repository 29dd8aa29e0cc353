//! The registry: tokens and clients, held in memory and written to the store with every change.

use std::collections::{BTreeMap, BTreeSet};

use fl_proto::{ClientId, Fingerprint};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock::Millis;
use crate::registry::client::ClientRecord;
use crate::registry::refusal::Refusal;
use crate::registry::token::{Token, Use};
use crate::storage::store::{EntryChange, Store, StoreError, Table};

/// Tokens and clients of a federation.
#[derive(Debug)]
pub(crate) struct Registry {
    store: Store,
    /// By [`Token::id`].
    pub(super) tokens: BTreeMap<String, Token>,
    pub(super) clients: BTreeMap<ClientId, ClientRecord>,
    /// Clients whose record changed in memory only: when and from where they were last seen.
    pub(super) unsaved: BTreeSet<ClientId>,
}

/// What the registry refuses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Revoked clients, with the operator's reason.
    pub(crate) clients: BTreeMap<ClientId, String>,
    /// Revoked certificates.
    pub(crate) certificates: BTreeSet<Fingerprint>,
    /// Certificates of which the holder has used a newer one.
    pub(crate) replaced: BTreeSet<Fingerprint>,
}

impl Registry {
    /// Reads the registry of a store.
    ///
    /// # Errors
    /// `Broken`, `Entry`.
    pub(crate) fn open(store: Store) -> Result<Self, StoreError> {
        let tokens = read(&store, Table::Tokens, |name| Some(name.to_owned()))?;
        let clients = read(&store, Table::Clients, |name| name.parse().ok())?;
        Ok(Self {
            store,
            tokens,
            clients,
            unsaved: BTreeSet::new(),
        })
    }

    /// Whether a device may enroll now, or repeat its call.
    pub(crate) fn is_open(&self, now: Millis) -> bool {
        let is_done = |one: &Use| {
            let client = self.clients.get(&one.name);
            client.is_some_and(|client| client.has_used(&one.key))
        };
        self.tokens.values().any(|token| token.is_open(now, is_done))
    }

    pub(crate) fn refused(&self) -> Refused {
        let mut refused = Refused::default();
        for (name, client) in &self.clients {
            if let Some(revoked) = &client.revoked {
                refused.clients.insert(name.clone(), revoked.why.clone());
            }
            for certificate in &client.certificates {
                if certificate.revoked.is_some() {
                    refused.certificates.insert(certificate.fingerprint);
                }
                if certificate.replaced.is_some() {
                    refused.replaced.insert(certificate.fingerprint);
                }
            }
        }
        refused
    }

    /// Stores these entries as they are in memory, and what was not saved before, in one commit.
    pub(super) fn save(&mut self, tokens: &[&str], clients: &[&ClientId]) -> Result<(), StoreError> {
        let mut changes = Vec::with_capacity(tokens.len() + clients.len() + self.unsaved.len());
        for id in tokens {
            changes.push(change(Table::Tokens, id, self.tokens.get(*id)));
        }
        self.unsaved.extend(clients.iter().map(|&client| client.clone()));
        for client in &self.unsaved {
            changes.push(change(Table::Clients, client.as_str(), self.clients.get(client)));
        }
        self.store.change_entries(&changes)?;
        self.unsaved.clear();
        Ok(())
    }

    /// As [`Registry::save`], for a device that waits.
    pub(super) fn save_for_device(&mut self, tokens: &[&str], clients: &[&ClientId]) -> Result<(), Refusal> {
        let saved = self.save(tokens, clients);
        saved.map_err(|error| Refusal::Store(error.to_string()))
    }
}

fn read<K: Ord, V: DeserializeOwned>(
    store: &Store,
    table: Table,
    key: impl Fn(&str) -> Option<K>,
) -> Result<BTreeMap<K, V>, StoreError> {
    let entry = |entry: Result<(String, Vec<u8>), StoreError>| {
        let (name, bytes) = entry?;
        let wrong = |why: String| StoreError::Entry {
            table: table.what(),
            name: name.clone(),
            why,
        };
        let value = serde_json::from_slice(&bytes).map_err(|why| wrong(why.to_string()))?;
        let key = key(&name).ok_or_else(|| wrong("its name is not one".to_owned()))?;
        Ok((key, value))
    };
    store.entries(table).map(entry).collect()
}

fn change<V: Serialize>(table: Table, name: &str, value: Option<&V>) -> EntryChange {
    EntryChange {
        table,
        name: name.to_owned(),
        // Nothing in these values can fail to serialize.
        value: value.and_then(|value| serde_json::to_vec(value).ok()),
    }
}
