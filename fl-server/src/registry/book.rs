//! The registry: tokens and clients, held in memory and written to the store with every change.

use std::collections::{BTreeMap, BTreeSet};

use fl_proto::{ClientId, Lifetime, Role};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock::{Millis, moment};
use crate::registry::client::ClientRecord;
use crate::registry::refusal::Refusal;
use crate::registry::standing::Standings;
use crate::registry::token::{Stage, Token, Use};
use crate::storage::store::{EntryChange, Store, StoreError, Table};

#[derive(Debug)]
pub(crate) struct Registry {
    store: Store,
    /// By [`Token::id`].
    pub(super) tokens: BTreeMap<String, Token>,
    /// In boxes: names that come in order leave each node of the map half empty.
    pub(super) clients: BTreeMap<ClientId, Box<ClientRecord>>,
    /// Clients whose record changed in memory only: when and from where they were last seen.
    pub(super) unsaved: BTreeSet<ClientId>,
    /// What is refused, as it is stored.
    standings: Standings,
}

/// An entry that changed; in memory it may be gone.
#[derive(Debug, Clone, Copy)]
pub(super) enum Entry<'a> {
    Token(&'a str),
    /// Of the token with this number, the use with this one.
    Use(&'a str, usize),
    Client(&'a ClientId),
}

impl Registry {
    /// Reads the registry of a store.
    pub(crate) fn open(store: Store) -> Result<Self, StoreError> {
        let mut tokens: BTreeMap<String, Token> = read(&store, Table::Tokens, |name| Some(name.to_owned()))?;
        let uses: BTreeMap<(String, usize), Use> = read(&store, Table::Uses, |name| {
            let (id, at) = name.split_once('-')?;
            Some((id.to_owned(), at.parse().ok()?))
        })?;
        for ((id, at), one) in uses {
            let Some(token) = tokens.get_mut(&id).filter(|token| token.taken.len() == at) else {
                let why = "its token or the use before is missing";
                return Err(wrong(Table::Uses, &use_name(&id, at), why));
            };
            token.taken.push(one);
        }
        let clients: BTreeMap<ClientId, Box<ClientRecord>> = read(&store, Table::Clients, |name| name.parse().ok())?;
        let standings = Standings::default();
        clients
            .iter()
            .for_each(|(name, client)| standings.update(name, Some(client)));
        standings.lines(tokens.values(), []);
        Ok(Self {
            store,
            tokens,
            clients,
            unsaved: BTreeSet::new(),
            standings,
        })
    }

    /// Whether a device may enroll now, or repeat its call.
    pub(crate) fn is_open(&self, now: Millis) -> bool {
        let mut tokens = self.tokens.values();
        tokens.any(|token| token.is_open(now, |one| self.is_done(one)))
    }

    /// Whether a device needs no further answer: it has used its certificate, or was denied one.
    pub(super) fn is_done(&self, one: &Use) -> bool {
        let client = self.clients.get(&one.name);
        one.stage == Stage::Denied || client.is_some_and(|client| client.has_used(&one.key))
    }

    /// The certificates that clients use, those that end first in front, at most `most`.
    pub(crate) fn ending(&self, most: usize) -> Vec<(ClientId, Lifetime)> {
        let mut all = Vec::new();
        for (name, client) in &self.clients {
            if client.revoked.is_none()
                && client.role != Role::Operator
                && let Some(current) = client.current()
            {
                all.push((current, name));
            }
        }
        all.sort_by_key(|(one, name)| (one.expires, *name));
        all.truncate(most);
        let ending = all.into_iter().map(|(one, name)| {
            let lifetime = Lifetime {
                issued: moment(one.issued),
                expires: moment(one.expires),
            };
            (name.clone(), lifetime)
        });
        ending.collect()
    }

    /// The devices that wait for an operator, or have not fetched what was approved.
    pub(super) fn waiting(&self, now: Millis) -> impl Iterator<Item = &Use> {
        let open = self.tokens.values().filter(move |token| !token.has_ended(now));
        open.flat_map(|token| &token.taken)
            .filter(|one| matches!(one.stage, Stage::Held | Stage::Approved))
    }

    /// What the registry refuses, at each moment: what is stored.
    pub(crate) fn standings(&self) -> Standings {
        self.standings.clone()
    }

    /// Stores these entries as they are in memory, and what was not saved before, in one commit. If that fails, the entries are again
    /// what is stored.
    pub(super) fn save(&mut self, entries: &[Entry]) -> Result<(), StoreError> {
        let mut changes = Vec::with_capacity(entries.len() + self.unsaved.len());
        for entry in entries {
            match *entry {
                Entry::Token(id) => changes.push(change(Table::Tokens, id, self.tokens.get(id))),
                Entry::Use(id, at) => {
                    let one = self.tokens.get(id).and_then(|token| token.taken.get(at));
                    changes.push(change(Table::Uses, &use_name(id, at), one));
                }
                Entry::Client(client) => drop(self.unsaved.insert(client.clone())),
            }
        }
        for client in &self.unsaved {
            changes.push(change(Table::Clients, client.as_str(), self.clients.get(client)));
        }
        if let Err(error) = self.store.change_entries(&changes) {
            entries.iter().try_for_each(|entry| self.take_back(*entry))?;
            return Err(error);
        }
        for client in std::mem::take(&mut self.unsaved) {
            self.standings
                .update(&client, self.clients.get(&client).map(Box::as_ref));
        }
        Ok(())
    }

    /// Makes an entry what is stored. One that cannot be read stays as it is.
    fn take_back(&mut self, entry: Entry) -> Result<(), StoreError> {
        match entry {
            Entry::Token(id) => {
                let stored: Option<Token> = self.stored(Table::Tokens, id)?;
                let before = self.tokens.remove(id);
                let taken = before.map(|token| token.taken).unwrap_or_default();
                if let Some(token) = stored {
                    self.tokens.insert(id.to_owned(), Token { taken, ..token });
                }
            }
            Entry::Use(id, at) => {
                let stored = self.stored(Table::Uses, &use_name(id, at))?;
                let taken = self.tokens.get_mut(id).map(|token| &mut token.taken);
                match (taken, stored) {
                    (Some(taken), Some(stored)) if at < taken.len() => taken[at] = stored,
                    (Some(taken), Some(stored)) => taken.push(stored),
                    (Some(taken), None) => taken.truncate(at),
                    (None, _) => {}
                }
            }
            Entry::Client(name) => {
                let stored = self.stored(Table::Clients, name.as_str())?;
                self.unsaved.remove(name);
                match stored {
                    Some(record) => drop(self.clients.insert(name.clone(), record)),
                    None => drop(self.clients.remove(name)),
                }
            }
        }
        Ok(())
    }

    fn stored<V: DeserializeOwned>(&self, table: Table, name: &str) -> Result<Option<V>, StoreError> {
        let bytes = self.store.entry(table, name)?;
        bytes.map(|bytes| value_of(table, name, &bytes)).transpose()
    }

    /// As [`Registry::save`], for a device that waits.
    pub(super) fn save_for_device(&mut self, entries: &[Entry]) -> Result<(), Refusal> {
        let saved = self.save(entries);
        saved.map_err(|error| Refusal::Store(error.to_string()))
    }
}

/// The name of a use in its table: in the order of numbers.
fn use_name(token: &str, at: usize) -> String {
    format!("{token}-{at:04}")
}

fn read<K: Ord, V: DeserializeOwned>(
    store: &Store,
    table: Table,
    key: impl Fn(&str) -> Option<K>,
) -> Result<BTreeMap<K, V>, StoreError> {
    let mut all = BTreeMap::new();
    for entry in store.entries(table) {
        let (name, bytes) = entry?;
        let value = value_of(table, &name, &bytes)?;
        let key = key(&name).ok_or_else(|| wrong(table, &name, "its name is not one"))?;
        all.insert(key, value);
    }
    Ok(all)
}

fn value_of<V: DeserializeOwned>(table: Table, name: &str, bytes: &[u8]) -> Result<V, StoreError> {
    serde_json::from_slice(bytes).map_err(|why| wrong(table, name, &why.to_string()))
}

fn wrong(table: Table, name: &str, why: &str) -> StoreError {
    StoreError::Entry {
        table: table.what(),
        name: name.to_owned(),
        why: why.to_owned(),
    }
}

fn change<V: Serialize>(table: Table, name: &str, value: Option<&V>) -> EntryChange {
    EntryChange {
        table,
        name: name.to_owned(),
        // Nothing in these values can fail to serialize.
        value: value.and_then(|value| serde_json::to_vec(value).ok()),
    }
}
