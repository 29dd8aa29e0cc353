//! The image files of each class.

use std::fs;
use std::path::{Path, PathBuf};

use crate::data::csv::sorted;
use crate::data::dataset::MAX_CLASSES;
use crate::data::error::Error;

/// Endings of image files, in lower case.
const ENDINGS: [&str; 3] = ["png", "jpg", "jpeg"];

pub(super) struct ImageList {
    pub(super) names: Vec<String>,
    /// Class and path of each image, by class and file name.
    pub(super) files: Vec<(u8, PathBuf)>,
}

/// Lists the folders in `dir`, the value of `key`, and the images in each. Names that begin with a dot are ignored, and so are files
/// beside the folders that are no images. `given`: the classes; by default all folders, sorted by name.
pub(super) fn classes(dir: &Path, key: &str, given: Option<&[String]>) -> Result<ImageList, Error> {
    let mut folders = Vec::new();
    for (name, path) in entries(dir, key)? {
        if path.is_dir() {
            folders.push((name, path));
        } else if is_image(&path) {
            let why = "is beside the folders of the classes; move it into one of them";
            return Err(Error::malformed(&path, why));
        }
    }
    if given.is_none() && folders.len() > MAX_CLASSES {
        let why = format!(
            "has {} folders; at most {MAX_CLASSES} classes are supported",
            folders.len()
        );
        return Err(Error::malformed(dir, why));
    }
    let names: Vec<String> = match given {
        Some(names) => names.to_vec(),
        None => sorted(folders.iter().map(|(name, _)| name)),
    };
    let mut files = Vec::new();
    for (folder, path) in folders {
        let Some(class) = names.iter().position(|name| *name == folder) else {
            let why = format!(
                "is none of the classes `{}`; remove it, or add it to `classes`",
                names.join("`, `")
            );
            return Err(Error::malformed(&path, why));
        };
        for (_, file) in entries(&path, key)? {
            if !file.is_file() || !is_image(&file) {
                let why = "is no .png, .jpg or .jpeg file; move it away, or begin its name with a dot to ignore it";
                return Err(Error::malformed(&file, why));
            }
            files.push((class as u8, file));
        }
    }
    // By class, as the folders may be in another order than `given`.
    files.sort();
    Ok(ImageList { names, files })
}

fn is_image(path: &Path) -> bool {
    let ending = path
        .extension()
        .and_then(|ending| ending.to_str())
        .map(str::to_ascii_lowercase);
    ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
}

/// Name and path of everything in `dir` that does not begin with a dot, sorted by name.
fn entries(dir: &Path, key: &str) -> Result<Vec<(String, PathBuf)>, Error> {
    let io = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::Missing {
            path: dir.to_owned(),
            hint: format!("`{key}` must be the folder of the classes' folders"),
        },
        std::io::ErrorKind::NotADirectory => Error::malformed(dir, format!("is no folder; `{key}` must be one")),
        _ => Error::io(dir, &error),
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry
            .file_name()
            .into_string()
            .map_err(|_| Error::malformed(&entry.path(), "has a name that is not UTF-8; rename it"))?;
        if !name.starts_with('.') {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}
