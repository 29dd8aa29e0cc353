//! The files of a folder of models.

use std::path::{Path, PathBuf};

const MAX_DEPTH: usize = 8;
const MAX_ENTRIES: usize = 100_000;

/// The safetensors files in a folder and the folders below it, sorted by path. Links are followed.
pub(super) fn model_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![(folder.to_owned(), 0)];
    let mut entries = 0;
    while let Some((folder, depth)) = folders.pop() {
        let listed = match std::fs::read_dir(&folder) {
            Ok(listed) => listed,
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "cannot be searched for models");
                continue;
            }
        };
        for path in listed.flatten().map(|entry| entry.path()) {
            entries += 1;
            if entries > MAX_ENTRIES {
                tracing::warn!("`models` has more than {MAX_ENTRIES} entries; the others are not looked at");
                found.sort();
                return found;
            }
            if path.is_dir() {
                if depth < MAX_DEPTH {
                    folders.push((path, depth + 1));
                }
            } else if path.extension().is_some_and(|extension| extension == "safetensors") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safetensors_files_are_found_in_folders_below_and_a_circle_of_links_ends() {
        let dir = tempfile::tempdir().unwrap();
        let nested = dir.path().join("hub/model");
        std::fs::create_dir_all(&nested).unwrap();
        std::os::unix::fs::symlink(dir.path(), nested.join("circle")).unwrap();
        for name in ["b.safetensors", "a.bin", "hub/model/a.safetensors"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let found = model_files(dir.path());
        assert!(found.contains(&dir.path().join("b.safetensors")));
        assert!(found.contains(&nested.join("a.safetensors")));
        assert!(found.iter().all(|path| path.extension().unwrap() == "safetensors"));
        assert!(found.len() <= 2 * MAX_DEPTH && found.is_sorted(), "{found:?}");
        assert!(model_files(&dir.path().join("none")).is_empty());
    }
}
