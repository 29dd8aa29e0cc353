//! Entries of the federation, which belong to no run: its enrollment tokens and its clients.

use crate::storage::store::database::Batch;
use crate::storage::store::error::StoreError;
use crate::storage::store::format::{CLIENT, TOKEN, USE, seal, unseal};
use crate::storage::store::runs::Store;

/// A table of the federation. Keys are names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    Tokens,
    /// Uses of a token, by its number and theirs.
    Uses,
    Clients,
}

impl Table {
    fn letter(self) -> u8 {
        match self {
            Self::Tokens => TOKEN,
            Self::Uses => USE,
            Self::Clients => CLIENT,
        }
    }

    pub fn what(self) -> &'static str {
        match self {
            Self::Tokens => "token",
            Self::Uses => "use of a token",
            Self::Clients => "client",
        }
    }

    fn key(self, name: &str) -> Vec<u8> {
        [&[self.letter()], name.as_bytes()].concat()
    }
}

/// One change of a table: the new bytes of an entry, or `None` to remove it.
#[derive(Debug)]
pub struct EntryChange {
    pub table: Table,
    pub name: String,
    pub value: Option<Vec<u8>>,
}

impl Store {
    /// All entries of a table, by name.
    ///
    /// # Errors
    /// Each item: `Broken`, `Entry`.
    pub fn entries(&self, table: Table) -> impl Iterator<Item = Result<(String, Vec<u8>), StoreError>> {
        let store = self.clone();
        self.database.scan(&[table.letter()]).map(move |entry| {
            // By its key: sled gives up pages after a number of reads, and one scan is too few to let go of any.
            let (key, value) = entry?;
            let value = store.database.read(&key)?.unwrap_or(value);
            let name = key.get(1..).and_then(|name| std::str::from_utf8(name).ok());
            let name = name.ok_or_else(|| store.database.broken("a name of the federation is not UTF-8"))?;
            Ok((name.to_owned(), opened(table, name, &value)?))
        })
    }

    /// One entry of a table.
    ///
    /// # Errors
    /// `Broken`, `Entry`.
    pub fn entry(&self, table: Table, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let sealed = self.database.read(&table.key(name))?;
        sealed.map(|sealed| opened(table, name, &sealed)).transpose()
    }

    /// Makes all changes in one commit, durable on return. Blocks.
    ///
    /// # Errors
    /// `Stopped`, `Broken`; the disk's.
    pub fn change_entries(&self, changes: &[EntryChange]) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::default();
        for EntryChange { table, name, value } in changes {
            match value {
                Some(value) => batch.insert(table.key(name), seal(value)),
                None => batch.remove(table.key(name)),
            }
        }
        self.database.write(batch)
    }
}

fn opened(table: Table, name: &str, sealed: &[u8]) -> Result<Vec<u8>, StoreError> {
    let value = unseal(sealed).map_err(|why| StoreError::Entry {
        table: table.what(),
        name: name.to_owned(),
        why: why.to_string(),
    })?;
    Ok(value.to_vec())
}
