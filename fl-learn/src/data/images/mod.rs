//! Examples in image files: one folder for each class.

#[cfg(feature = "images")]
mod decode;
#[cfg(not(feature = "images"))]
#[path = "no_decode.rs"]
mod decode;
mod image;
mod list;
mod resize;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fl_proto::caught;

use super::csv::check_names;
use super::dataset::Dataset;
use super::error::Error;
use super::examples::ClientData;
use super::features::Features;
use super::input::Input;
use super::part::{TestSource, check_share, shared_set};
use super::scaling::{Numbers, Scaling};
use super::set::{DataSet, Keys};
use image::Image;
use list::ImageList;

shared_set! {
    /// PNG and JPEG files in one folder for each class.
    pub struct Images(dir, test_dir) {
        /// Folder of the classes' folders.
        pub dir: PathBuf,
        /// The same of held-out examples.
        #[serde(default)]
        pub test_dir: Option<PathBuf>,
        /// Share of the client's examples that is held out, in place of `test_dir`.
        #[serde(default)]
        pub test: Option<f64>,
        /// Names of the folders in the order of the classes; by default sorted.
        #[serde(default)]
        pub classes: Option<Vec<String>>,
        /// Height and width to which every image is resized; by default all must have those of the first.
        #[serde(default)]
        pub resize: Option<[usize; 2]>,
        /// 1 turns images to gray, 3 to color; by default all must be as the first.
        #[serde(default)]
        pub channels: Option<u8>,
        /// Mean of each channel on the scale 0 to 1.
        #[serde(default)]
        pub mean: Option<Numbers>,
        /// Standard deviation of each channel on the scale 0 to 1.
        #[serde(default)]
        pub std: Option<Numbers>,
    }
}

/// Largest height and width to resize to.
const MAX_SIDE: usize = 4096;

impl Images {
    fn scaling(&self) -> Scaling<'_> {
        Scaling::new(&self.mean, &self.std)
    }
}

impl DataSet for Images {
    fn load(&self) -> Result<ClientData, Error> {
        let train = self.shared("train", || read(self, &self.dir, "dir", None))?;
        let held = match &self.test_dir {
            Some(dir) => TestSource::Dealt(self.shared("test", || read(self, dir, "test_dir", Some(&train)))?),
            None => TestSource::of_share(self.test),
        };
        self.part().of(train, held)
    }

    fn check(&self) -> Result<(), Error> {
        if self
            .resize
            .is_some_and(|size| size.iter().any(|side| !(1..=MAX_SIDE).contains(side)))
        {
            let why = format!("must be height and width, each 1 to {MAX_SIDE}");
            return Err(Error::config("resize", why));
        }
        if !matches!(self.channels, None | Some(1 | 3)) {
            return Err(Error::config("channels", "must be 1 (gray) or 3 (color)"));
        }
        if let Some(names) = &self.classes {
            check_names(names)?;
        }
        check_share(self.test, self.test_dir.as_ref().map(|_| "test_dir"))?;
        self.scaling().check()?;
        self.part().check()
    }

    fn keys(&mut self) -> Keys<'_> {
        self.shared_keys()
    }
}

/// What every image must have: height and width, and channels.
#[derive(Clone, Copy)]
struct ImageShape {
    size: Option<[usize; 2]>,
    channels: Option<usize>,
}

/// Reads all images below `dir`, which is the value of `key`, class by class in the order of the file names. A test set has the
/// classes and the shape of its training set.
fn read(images: &Images, dir: &Path, key: &str, train: Option<&Arc<Dataset>>) -> Result<Dataset, Error> {
    let given = images.classes.as_deref().or(train.map(|train| train.class_names()));
    let ImageList { names, files } = list::classes(dir, key, given)?;
    let mut wanted = ImageShape {
        size: train.map(|train| [train.input().shape[1], train.input().shape[2]]),
        channels: train.map(|train| train.input().shape[0]),
    };
    let mut values = Vec::new();
    let mut labels = Vec::with_capacity(files.len());
    for (class, path) in &files {
        let image = read_one(images, path, wanted)?;
        wanted = ImageShape {
            size: Some([image.height, image.width]),
            channels: Some(image.channels),
        };
        image.append_planes(&mut values);
        labels.push(*class);
    }
    let (Some([height, width]), Some(channels)) = (wanted.size, wanted.channels) else {
        let why = "holds no image; it must have a folder of .png, .jpg or .jpeg files for each class";
        return Err(Error::malformed(dir, why));
    };
    let (mean, std) = images.scaling().spread(channels, channels)?;
    values.shrink_to_fit();
    let input = Input::of_classes([channels, height, width], names.len());
    let set = Dataset::new(Features::Bytes { values, mean, std }, labels, input);
    set.and_then(|set| set.with_class_names(names))
        .map_err(|error| Error::malformed(dir, error.to_string()))
}

/// Reads one image as the configuration says, which must then be as `wanted`.
fn read_one(images: &Images, path: &Path, wanted: ImageShape) -> Result<Image, Error> {
    let wrong = |why: String| Error::malformed(path, why);
    // Without `resize`, an image of another size is refused before it is decoded.
    let size = wanted.size.filter(|_| images.resize.is_none());
    let bytes = image::read(path)?;
    let decoded = caught(|| decode::decode(&bytes, size));
    let mut image = decoded
        .unwrap_or_else(|why| Err(format!("is cut short or damaged ({why})")))
        .map_err(wrong)?;
    if let Some(channels) = images.channels {
        image = image.with_channels(usize::from(channels));
    } else if let Some(channels) = wanted.channels.filter(|&channels| channels != image.channels) {
        let [own, before] = [image.channels, channels].map(|channels| if channels == 1 { "gray" } else { "in color" });
        return Err(wrong(format!(
            "is {own}, but the images before it are {before}; set `channels` to 1 or 3"
        )));
    }
    Ok(match images.resize {
        Some(size) => resize::resize(&image, size),
        None => image,
    })
}

#[cfg(test)]
#[cfg(feature = "images")]
mod tests;
