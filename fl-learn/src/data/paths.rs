//! Keys that may hold a path.

use std::path::PathBuf;

pub(super) trait MayBePath {
    fn path(&mut self) -> Option<&mut PathBuf>;
}

impl MayBePath for PathBuf {
    fn path(&mut self) -> Option<&mut PathBuf> {
        Some(self)
    }
}

impl MayBePath for Option<PathBuf> {
    fn path(&mut self) -> Option<&mut PathBuf> {
        self.as_mut()
    }
}
