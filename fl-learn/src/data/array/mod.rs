//! Examples in array files: npy files, or tensors of safetensors files.

mod element;
mod header;
pub(super) mod npy;
mod read;
mod safetensors;
mod shape;

pub(super) use element::Element;

use std::path::PathBuf;
use std::sync::Arc;

use super::dataset::{Dataset, MAX_CLASSES};
use super::error::Error;
use super::examples::ClientData;
use super::features::Features;
use super::input::Input;
use super::part::{TestSource, check_share, shared_set};
use super::scaling::{Numbers, Scaling};
use super::set::{DataSet, Keys};
use read::{Array, Labels};
pub use shape::Order;
pub(super) use shape::check as check_shape;

shared_set! {
    /// Examples in npy files, or in tensors of safetensors files: an array of values and an array of labels.
    pub struct Arrays(dir) {
        /// Folder of the files.
        #[serde(default)]
        pub dir: PathBuf,
        /// The values: a npy file such as `x.npy`, or a tensor such as `train.safetensors:images`. The first extent counts the
        /// examples.
        pub x: String,
        /// The labels: integers from 0, as many as examples.
        pub y: String,
        /// Values of held-out examples.
        #[serde(default)]
        pub test_x: Option<String>,
        /// Labels of held-out examples.
        #[serde(default)]
        pub test_y: Option<String>,
        /// Share of the client's examples that is held out, in place of `test_x` and `test_y`.
        #[serde(default)]
        pub test: Option<f64>,
        /// Number of classes; by default one more than the largest label of `y`.
        #[serde(default)]
        pub classes: Option<u16>,
        /// Channels, height and width of an example; by default by the extents of `x`.
        #[serde(default)]
        pub shape: Option<[usize; 3]>,
        /// Order of the extents of images with several channels.
        #[serde(default)]
        pub order: Option<Order>,
        /// What is subtracted from the values.
        #[serde(default)]
        pub mean: Option<Numbers>,
        /// By what they are then divided.
        #[serde(default)]
        pub std: Option<Numbers>,
    }
}

impl Arrays {
    fn scaling(&self) -> Scaling<'_> {
        Scaling::new(&self.mean, &self.std)
    }
}

impl DataSet for Arrays {
    fn load(&self) -> Result<ClientData, Error> {
        let train = self.shared("train", || read(self, "x", &self.x, &self.y, None))?;
        let held = match (&self.test_x, &self.test_y) {
            (Some(x), Some(y)) => TestSource::Dealt(self.shared("test", || read(self, "test_x", x, y, Some(&train)))?),
            _ => TestSource::of_share(self.test),
        };
        self.part().of(train, held)
    }

    fn check(&self) -> Result<(), Error> {
        match (&self.test_x, &self.test_y) {
            (Some(_), None) => return Err(Error::config("test_x", "needs `test_y`")),
            (None, Some(_)) => return Err(Error::config("test_y", "needs `test_x`")),
            _ => {}
        }
        check_share(self.test, self.test_x.as_ref().map(|_| "test_x"))?;
        if self
            .classes
            .is_some_and(|classes| !(1..=MAX_CLASSES).contains(&usize::from(classes)))
        {
            return Err(Error::config("classes", format!("must be 1 to {MAX_CLASSES}")));
        }
        shape::check(self.shape)?;
        self.scaling().check()?;
        self.part().check()
    }

    fn keys(&mut self) -> Keys<'_> {
        self.shared_keys()
    }
}

/// Reads the values in `x`, which is the value of `key`, and the labels in `y`. A test set must have the shape and the classes of
/// its training set.
fn read(arrays: &Arrays, key: &'static str, x: &str, y: &str, train: Option<&Arc<Dataset>>) -> Result<Dataset, Error> {
    let values = Array::open(&arrays.dir, x, key)?;
    let labels = Array::open(&arrays.dir, y, if key == "x" { "y" } else { "test_y" })?;
    let shape = shape::of(&values.header.shape, arrays.shape, arrays.order);
    let (shape, is_last) = shape.map_err(|why| Error::malformed(values.path(), why))?;
    if let Some(train) = train.filter(|train| train.input().shape != shape) {
        let why = format!(
            "has examples of the shape {shape:?}, but those to train on have {:?}",
            train.input().shape
        );
        return Err(Error::malformed(values.path(), why));
    }
    let examples = values.header.shape[0];
    let path = values.path().to_owned();
    let Labels { labels, classes } = labels.labels(
        examples,
        &path,
        arrays.classes.map(usize::from),
        train.map(|train| train.input().classes),
    )?;
    let input = Input::of_classes(shape, classes);
    let features = if values.header.element == Element::U8 {
        let mut bytes = values.bytes()?;
        if is_last {
            shape::channels_first(&mut bytes, shape);
        }
        let (mean, std) = arrays.scaling().spread(shape[0], shape[0])?;
        Features::Bytes {
            values: bytes,
            mean,
            std,
        }
    } else {
        let mut floats = values.floats(input.len())?;
        if is_last {
            shape::channels_first(&mut floats, shape);
        }
        arrays.scaling().apply(&mut floats, input)?;
        Features::Floats(floats)
    };
    Dataset::new(features, labels, input).map_err(|error| Error::malformed(&path, error.to_string()))
}

#[cfg(test)]
mod tests;
