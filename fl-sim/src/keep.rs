//! The option `--keep`: a folder for what a command otherwise deletes.

use std::path::{Path, PathBuf};

use clap::Args;
use fl_client::Error;

use crate::wrong::wrong;

/// Where federations stay.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Keep {
    /// Keep the federations' folders (store, blobs, clients' states) here instead of deleting them; a new or empty folder.
    /// `fl-server report` works on them: of an experiment on DIR/VARIANT-SEED
    #[arg(long = "keep", value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl Keep {
    /// Whether there is a folder.
    pub(crate) fn is_asked(&self) -> bool {
        self.folder.is_some()
    }

    /// The folder, if there is one.
    ///
    /// # Errors
    /// `Config` if the folder is not empty: the ledger of an earlier run would be added to that of this one.
    pub(crate) fn folder(&self) -> Result<Option<&Path>, Error> {
        let Some(dir) = self.folder.as_deref() else {
            return Ok(None);
        };
        let option = format!("`--keep {}`", dir.display());
        match std::fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
            Ok(true) => Ok(Some(dir)),
            Ok(false) => Err(wrong(option, "the folder is not empty; choose a new one")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Some(dir)),
            Err(error) => Err(wrong(option, error)),
        }
    }
}
