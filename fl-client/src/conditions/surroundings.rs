//! Where conditions are read.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::moment::Moment;

const MAX_FILE: u64 = 64 * 1024;

/// Where conditions are read: the kernel's files, NetworkManager, a clock.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The folder with `proc` and `sys`.
    pub root: PathBuf,
    /// NetworkManager's program.
    pub nmcli: PathBuf,
    /// Where `command` runs: the folder of client.toml.
    pub folder: PathBuf,
    /// Local time.
    pub clock: fn() -> Moment,
}

impl PartialEq for Surroundings {
    /// Without the clock.
    fn eq(&self, other: &Self) -> bool {
        (&self.root, &self.nmcli, &self.folder) == (&other.root, &other.nmcli, &other.folder)
    }
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            root: "/".into(),
            nmcli: "nmcli".into(),
            folder: ".".into(),
            clock: Moment::now,
        }
    }
}

impl Surroundings {
    /// The text of a file of the kernel, without spaces around it.
    pub(super) fn text(&self, path: &str) -> Result<String, String> {
        let whole = self.root.join(path);
        read(&whole).map_err(|why| format!("{}: {why}", whole.display()))
    }

    /// The names in a folder of the kernel, sorted.
    pub(super) fn names(&self, path: &str) -> Result<Vec<String>, String> {
        let whole = self.root.join(path);
        let entries = whole.read_dir().map_err(|e| format!("{}: {e}", whole.display()))?;
        let mut names: Vec<_> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort_unstable();
        Ok(names)
    }
}

fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|e| e.to_string())?;
    file.take(MAX_FILE)
        .read_to_string(&mut text)
        .map_err(|e| e.to_string())?;
    Ok(text.trim().to_owned())
}
