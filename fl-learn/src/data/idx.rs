//! The idx format of MNIST and Fashion-MNIST: a big-endian header, then bytes.

use std::path::{Path, PathBuf};

use super::dataset::Dataset;
use super::error::Error;
use super::examples::ClientData;
use super::features::Features;
use super::files::DataFile;
use super::input::Input;
use super::part::{TestSource, shared_set};
use super::set::{DataSet, Keys};

/// Most bytes that an idx file may declare; the largest public one has 47 MB.
pub(super) const MAX_BYTES: u64 = 1 << 31;

/// Mean and standard deviation of Fashion-MNIST's training images. All gray images are scaled by them.
const GREY: (f32, f32) = (0.2860, 0.3530);

const HINT: &str = "give the folder that holds it (`fl-client data get fashion-mnist --to DIR` fetches one)";

/// Extents and values of an idx file of bytes, plain or gzip.
///
/// # Errors
/// `Missing`, `Io`; `Malformed` if it is no idx file of bytes in 1 to 4 dimensions or declares more than
/// `MAX_BYTES`; `Size` if it is shorter or longer than its header says.
pub fn read_idx(path: &Path) -> Result<(Vec<usize>, Vec<u8>), Error> {
    let mut file = DataFile::open(path, HINT)?;
    let magic = file.take(4, "idx header")?;
    let &[0, 0, 8, dims @ 1..=4] = magic.as_slice() else {
        let why = format!("no idx file of bytes: it begins with {magic:02x?}");
        return Err(Error::malformed(&file.path, why));
    };
    let header = file.take(4 * u64::from(dims), "idx header")?;
    let extents: Vec<usize> = header
        .as_chunks::<4>()
        .0
        .iter()
        .map(|&bytes| u32::from_be_bytes(bytes) as usize)
        .collect();
    let len = extents
        .iter()
        .try_fold(1u64, |len, &extent| len.checked_mul(extent as u64));
    let Some(len) = len.filter(|&len| len <= MAX_BYTES) else {
        let why = format!("declares {extents:?} bytes, more than {MAX_BYTES}");
        return Err(Error::malformed(&file.path, why));
    };
    let values = file.take(len, "values")?;
    file.finish(len, "values")?;
    Ok((extents, values))
}

/// Images and labels as one set of `classes` classes.
///
/// # Errors
/// As [`read_idx`]; `Malformed` if the files do not hold images and as many labels, or a label is not below `classes`.
pub fn read_idx_pair(images: &Path, labels: &Path, classes: usize) -> Result<Dataset, Error> {
    let (extents, values) = read_idx(images)?;
    let &[count, height, width] = extents.as_slice() else {
        let why = format!("expected images in 3 dimensions, found {extents:?}");
        return Err(Error::malformed(images, why));
    };
    let (label_extents, label_values) = read_idx(labels)?;
    if label_extents != [count] {
        let why = format!("expected {count} labels, found {label_extents:?}");
        return Err(Error::malformed(labels, why));
    }
    let features = Features::Bytes {
        values,
        mean: vec![GREY.0],
        std: vec![GREY.1],
    };
    Dataset::new(features, label_values, Input::of_classes([1, height, width], classes))
        .map_err(|error| Error::malformed(labels, error.to_string()))
}

shared_set! {
    /// One client's share of images and labels in idx files.
    pub struct Idx(dir) {
        /// Folder of the files, under the names that MNIST and Fashion-MNIST have.
        pub dir: PathBuf,
    }
}

impl DataSet for Idx {
    fn load(&self) -> Result<ClientData, Error> {
        let [train, test] = ["train", "t10k"].map(|part| {
            let [images, labels] =
                ["images-idx3", "labels-idx1"].map(|name| self.dir.join(format!("{part}-{name}-ubyte")));
            self.shared(part, || read_idx_pair(&images, &labels, 10))
        });
        self.part().of(train?, TestSource::Stretch(test?))
    }

    fn check(&self) -> Result<(), Error> {
        self.part().check()
    }

    fn keys(&mut self) -> Keys<'_> {
        self.shared_keys()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn idx(extents: &[u32], values: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 8, extents.len() as u8];
        extents.iter().for_each(|extent| bytes.extend(extent.to_be_bytes()));
        bytes.extend(values);
        bytes
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn plain_and_gzip_read_alike() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = idx(&[2, 2, 3], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        std::fs::write(dir.path().join("plain"), &bytes).unwrap();
        std::fs::write(dir.path().join("packed.gz"), gzip(&bytes)).unwrap();
        let plain = read_idx(&dir.path().join("plain")).unwrap();
        assert_eq!(plain.0, [2, 2, 3]);
        assert_eq!(plain, read_idx(&dir.path().join("packed")).unwrap());
    }

    #[test]
    fn a_file_cut_short_anywhere_is_named_with_its_sizes() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = idx(&[3, 5], &[7; 15]);
        let path = dir.path().join("short");
        for len in 0..bytes.len() {
            std::fs::write(&path, &bytes[..len]).unwrap();
            let error = read_idx(&path).unwrap_err();
            assert!(matches!(error, Error::Size { .. }), "{len}: {error:?}");
            assert!(error.to_string().contains("short: expected"), "{error}");
        }
        let packed = gzip(&bytes);
        for len in 0..packed.len() {
            std::fs::write(dir.path().join("packed.gz"), &packed[..len]).unwrap();
            assert!(
                read_idx(&dir.path().join("packed")).is_err(),
                "{len} of {}",
                packed.len()
            );
        }
    }

    #[test]
    fn absurd_counts_trailing_bytes_and_other_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("odd");
        let check = |bytes: &[u8], part: &str| {
            std::fs::write(&path, bytes).unwrap();
            let error = read_idx(&path).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        check(&idx(&[u32::MAX; 4], &[]), "more than");
        check(&idx(&[1 << 30], &[0; 9]), "found 9");
        check(&idx(&[2], &[0; 3]), "expected 2");
        check(b"PNG and more", "no idx file");
        check(&[0, 0, 13, 1, 0, 0, 0, 0], "no idx file");
    }

    #[test]
    fn images_need_as_many_labels_in_range() {
        let dir = tempfile::tempdir().unwrap();
        let (images, labels) = (dir.path().join("images"), dir.path().join("labels"));
        std::fs::write(&images, idx(&[2, 1, 1], &[0, 255])).unwrap();
        std::fs::write(&labels, idx(&[2], &[0, 9])).unwrap();
        assert_eq!(read_idx_pair(&images, &labels, 10).unwrap().len(), 2);
        assert!(
            read_idx_pair(&images, &labels, 9)
                .unwrap_err()
                .to_string()
                .contains("labels")
        );
        std::fs::write(&labels, idx(&[3], &[0, 9, 1])).unwrap();
        assert!(
            read_idx_pair(&images, &labels, 10)
                .unwrap_err()
                .to_string()
                .contains("expected 2 labels")
        );
        assert!(matches!(
            read_idx_pair(&dir.path().join("none"), &labels, 10),
            Err(Error::Missing { .. })
        ));
    }
}
