//! Opens an array and reads its values.

use std::path::Path;

use super::header::Header;
use super::{npy, safetensors};
use crate::data::dataset::MAX_CLASSES;
use crate::data::error::Error;
use crate::data::files::DataFile;

const WHAT: &str = "values";
/// What separates the file and the tensor.
const ENDING: &str = ".safetensors";

pub(super) struct Array {
    file: DataFile,
    pub(super) header: Header,
    is_last: bool,
}

pub(super) struct Labels {
    pub(super) labels: Vec<u8>,
    pub(super) classes: usize,
}

impl Array {
    /// Opens `name`, the value of `key`, in `dir`.
    pub(super) fn open(dir: &Path, name: &str, key: &'static str) -> Result<Self, Error> {
        let hint = format!("`{key}` names it");
        if let Some((file, tensor)) = name.split_once(&format!("{ENDING}:")) {
            let mut file = DataFile::open(&dir.join(format!("{file}{ENDING}")), &hint)?;
            return Ok(Self {
                header: safetensors::header(&mut file, tensor)?,
                file,
                is_last: false,
            });
        }
        if name.ends_with(ENDING) {
            let why = format!("names a file of several tensors; name one of them, such as `{name}:x`");
            return Err(Error::config(key, why));
        }
        let mut file = DataFile::open(&dir.join(name), &hint)?;
        Ok(Self {
            header: npy::header(&mut file)?,
            file,
            is_last: true,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.file.path
    }

    pub(super) fn bytes(mut self) -> Result<Vec<u8>, Error> {
        let mut values = Vec::with_capacity(self.file.reservable(self.header.len, 1));
        self.file.pieces(self.header.len, WHAT, |bytes| {
            values.extend_from_slice(bytes);
            Ok(())
        })?;
        self.finish()?;
        values.shrink_to_fit();
        Ok(values)
    }

    /// The values as f32. `len`: values of an example.
    pub(super) fn floats(mut self, len: usize) -> Result<Vec<f32>, Error> {
        let element = self.header.element;
        let path = self.path().to_owned();
        let mut values: Vec<f32> = Vec::with_capacity(self.file.reservable(self.header.len, element.bytes()));
        self.file.pieces(self.header.bytes(), WHAT, |bytes| {
            let from = values.len();
            element.append_f32(bytes, &mut values);
            match values[from..].iter().position(|value| !value.is_finite()) {
                None => Ok(()),
                Some(at) => Err(not_finite(&path, values[from + at], from + at, len)),
            }
        })?;
        self.finish()?;
        values.shrink_to_fit();
        Ok(values)
    }

    /// The values as labels of `examples` examples in the file `of`. `given`: number of classes by the configuration; `trained`:
    /// by the training set, if this is a test set.
    pub(super) fn labels(
        mut self,
        examples: u64,
        of: &Path,
        given: Option<usize>,
        trained: Option<usize>,
    ) -> Result<Labels, Error> {
        let Header { element, shape, len } = &self.header;
        let element = *element;
        let path = self.path().to_owned();
        if !element.is_integer() {
            let why = format!(
                "has numbers of the type {}; labels must be integers: save y.astype('int64')",
                element.name()
            );
            return Err(Error::malformed(&path, why));
        }
        if shape.iter().skip(1).any(|&extent| extent != 1) || *len != examples {
            let why = format!(
                "has the shape {shape:?}; it must have one label for each of the {examples} examples in {}",
                of.display()
            );
            return Err(Error::malformed(&path, why));
        }
        let classes = given.or(trained).unwrap_or(MAX_CLASSES);
        let mut labels: Vec<u8> = Vec::with_capacity(self.file.reservable(*len, element.bytes()));
        let mut integers = Vec::new();
        self.file.pieces(self.header.bytes(), WHAT, |bytes| {
            integers.clear();
            element.append_integers(bytes, &mut integers);
            for &label in &integers {
                let label = u8::try_from(label)
                    .ok()
                    .filter(|&label| usize::from(label) < classes)
                    .ok_or_else(|| {
                        let rule = match (given, trained) {
                            (Some(_), _) => format!("`classes` is {classes}, so labels are 0 to {}", classes - 1),
                            (None, Some(_)) => {
                                format!(
                                    "those to train on are 0 to {}; set `classes` if there are more",
                                    classes - 1
                                )
                            }
                            (None, None) => format!("labels must be 0 to {}", classes - 1),
                        };
                        Error::malformed(&path, format!("row {}: label {label}; {rule}", labels.len()))
                    })?;
                labels.push(label);
            }
            Ok(())
        })?;
        self.finish()?;
        labels.shrink_to_fit();
        let largest = labels.iter().max().map_or(0, |&label| usize::from(label));
        Ok(Labels {
            classes: given.or(trained).unwrap_or(largest + 1),
            labels,
        })
    }

    fn finish(self) -> Result<(), Error> {
        if self.is_last {
            let bytes = self.header.bytes();
            self.file.finish(bytes, WHAT)?;
        }
        Ok(())
    }
}

fn not_finite(path: &Path, value: f32, at: usize, len: usize) -> Error {
    let row = at / len.max(1);
    let value_at = at % len.max(1);
    Error::malformed(
        path,
        format!("row {row}, value {value_at} is {value} as f32; remove the example or replace the value"),
    )
}
