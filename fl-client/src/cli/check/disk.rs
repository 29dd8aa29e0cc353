//! The disk of the state folder: can be written, and has room for the model of each task.

use std::path::Path;

use fl_cli::findings::Line;
use fl_cli::folder::{after, free, nearest, try_write};

use super::subject::Subject;
use crate::limits::disk_of;
use crate::state::bytes_below;

/// Whether the state folder can be written.
pub(super) fn lines(subject: &Subject<'_>) -> Vec<Line> {
    let state = &subject.file.config.state;
    let folder = nearest(state);
    vec![match try_write(&folder) {
        Ok(()) => Line::good("state", format!("{} can be written", state.display())),
        Err(error) => Line::wrong(
            "state",
            format!("nothing can be written in {}: {error}", folder.display()),
            after(
                &folder,
                &error,
                "the user that runs the client must own the folder, or name another one with `state`".to_owned(),
            ),
        ),
    }]
}

/// Whether there is room for the state of a run with a model of so many values.
pub(super) fn room(check: &str, state: &Path, values: u64) -> Line {
    let need = disk_of(values);
    let folder = nearest(state);
    // What is there already is replaced.
    let used = bytes_below(state, Path::new(""));
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    match free(&folder) {
        Err(error) => Line::warning(
            check,
            format!("the free space of {} is not known: {error}", folder.display()),
            "make sure that there is room for the model",
        ),
        Ok(free) if free.saturating_add(used) < need => Line::wrong(
            check,
            format!(
                "{} MiB are free in {}, and a run with {values} parameters needs {} MiB",
                free >> 20,
                folder.display(),
                mib(need)
            ),
            "free some space, or name another folder with `state`",
        ),
        Ok(free) => Line::good(
            check,
            format!(
                "{} MiB are free; a run with {values} parameters needs {} MiB",
                free >> 20,
                mib(need)
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use fl_cli::findings::Level;

    use super::*;

    #[test]
    fn room_is_measured_where_the_folder_will_be() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("not/there/yet");
        let line = room("disk", &state, 1_000);
        assert!(
            line.level == Level::Good && line.text.ends_with("needs 1 MiB"),
            "{line:?}"
        );
        let line = room("disk", &state, 1 << 58);
        assert!(line.level == Level::Wrong && line.todo.unwrap().contains("`state`"));
        assert!(!folder.path().join("not").exists());
        assert_eq!(nearest(&state), folder.path());
    }
}
