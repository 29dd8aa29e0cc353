//! A folder that takes the place of `/`, with files of the kernel.

use std::path::Path;

use tempfile::TempDir;

use super::super::moment::Moment;
use super::super::reading::Reading;
use super::super::surroundings::Surroundings;
use super::super::when::When;
use super::own_load::OwnLoad;
use super::source::{Context, Source};

pub(crate) fn write(root: &Path, path: &str, text: &str) {
    let whole = root.join(path);
    std::fs::create_dir_all(whole.parent().unwrap()).unwrap();
    std::fs::write(whole, text).unwrap();
}

pub(crate) fn root(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    files.iter().for_each(|(path, text)| write(root.path(), path, text));
    root
}

pub(crate) fn noon() -> Moment {
    Moment {
        unix: 86_400 * 20_000 + 12 * 3600,
        offset: 0,
    }
}

pub(crate) fn when(root: &Path) -> When {
    When {
        surroundings: Surroundings {
            root: root.to_owned(),
            nmcli: root.join("nmcli"),
            folder: root.to_owned(),
            clock: noon,
        },
        ..When::default()
    }
}

pub(crate) fn read(source: &Source, when: &When) -> Reading {
    assert!((source.is_set)(when));
    let mut own_load = OwnLoad::default();
    let mut context = Context {
        now: noon(),
        when,
        own_load: &mut own_load,
    };
    (source.read)(&mut context).unwrap_or_else(Reading::Missing)
}
