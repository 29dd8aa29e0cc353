//! How much of the disk a state folder takes.

use std::path::Path;

/// Bytes of the files below `folder` without those below `without`; what cannot be read counts as 0.
pub(crate) fn bytes_below(folder: &Path, without: &Path) -> u64 {
    let mut open = vec![folder.to_owned()];
    let mut bytes = 0u64;
    while let Some(folder) = open.pop() {
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(about) if about.is_dir() && entry.path() != without => open.push(entry.path()),
                Ok(about) if about.is_file() => bytes = bytes.saturating_add(about.len()),
                _ => {}
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_other_runs_count_and_links_are_not_followed() {
        let state = tempfile::tempdir().unwrap();
        let write = |path: &str, len| {
            let path = state.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, vec![0; len]).unwrap();
        };
        [
            ("current", 4),
            ("runs/own/memory", 1000),
            ("runs/other/memory", 30),
            ("aside/x/model", 200),
        ]
        .into_iter()
        .for_each(|(path, len)| write(path, len));
        std::os::unix::fs::symlink("/", state.path().join("link")).unwrap();
        assert_eq!(bytes_below(state.path(), &state.path().join("runs/own")), 234);
    }
}
