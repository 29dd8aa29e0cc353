//! What a data set is: its keys in a configuration, and how its examples are read.

use std::fmt;
use std::path::{Path, PathBuf};

use super::error::Error;
use super::examples::ClientData;
use super::input::Input;
use super::vocabulary::Vocabulary;

/// A data set: a type whose fields are the keys of its table, and that serde reads from it.
pub trait DataSet: fmt::Debug + Send + Sync {
    /// Reads or draws this client's examples.
    ///
    /// # Errors
    /// Which file or key is wrong, and how. A size in a file is checked against the bytes that are there.
    fn load(&self) -> Result<ClientData, Error>;

    /// Succeeds if every key is in range. Reads no file.
    ///
    /// # Errors
    /// `Config` names the key.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// The keys that others set: paths, and a simulation's client and seed.
    fn keys(&mut self) -> Keys<'_> {
        Keys::default()
    }

    /// Makes this the part of one of `clients` clients, counted from 0: sets [`Keys::client`] and [`Keys::clients`].
    ///
    /// # Errors
    /// `Config` if the set cannot be shared by so many.
    fn of_client(&mut self, client: u32, clients: u32) -> Result<(), Error> {
        let keys = self.keys();
        let (Some(own), count) = (keys.client, keys.clients) else {
            return match clients {
                0 | 1 => Ok(()),
                _ => Err(Error::config("clients", "must be 1: the set has no key for a client")),
            };
        };
        *own = client;
        if let Some(count) = count {
            *count = clients;
        }
        Ok(())
    }

    /// Shape of an example, and what is predicted.
    ///
    /// # Errors
    /// As [`DataSet::load`].
    fn input(&self) -> Result<Input, Error> {
        Ok(self.load()?.train.input())
    }

    /// What the tokens are, of a text; its names are those of the classes.
    fn vocabulary(&self) -> Vocabulary {
        Vocabulary::Characters
    }
}

/// Places of keys that many sets have.
#[derive(Debug, Default)]
pub struct Keys<'a> {
    /// Number of the client, from 0.
    pub client: Option<&'a mut u32>,
    /// Number of clients that share the set.
    pub clients: Option<&'a mut u32>,
    /// Seed of the split, or of the drawing.
    pub seed: Option<&'a mut u64>,
    /// Files and folders.
    pub paths: Vec<&'a mut PathBuf>,
}

impl Keys<'_> {
    /// Makes relative paths relative to `base`, where the configuration file lies.
    pub(super) fn relative_to(self, base: &Path) {
        self.paths.into_iter().for_each(|path| *path = base.join(&*path));
    }
}
