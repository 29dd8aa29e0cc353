//! CIFAR-10's binary files: records of one label and 3,072 values.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::dataset::Dataset;
use super::error::Error;
use super::examples::ClientData;
use super::features::Features;
use super::files::DataFile;
use super::input::Input;
use super::part::{TestSource, shared_set};
use super::set::{DataSet, Keys};

const RECORD: usize = 3073;
const BATCH: u64 = 10_000 * RECORD as u64;
const INPUT: Input = Input::of_classes([3, 32, 32], 10);
const MEAN: [f32; 3] = [0.4914, 0.4822, 0.4465];
const STD: [f32; 3] = [0.2470, 0.2435, 0.2616];

const HINT: &str = "give the folder of `data_batch_1.bin` to `data_batch_5.bin` \
                    (`fl-client data get cifar-10 --to DIR` fetches it)";

/// The records of one or more files, plain, gzip or xz, in order.
///
/// # Errors
/// `Missing`, `Io`; `Size` if a file holds no whole number of records; `Malformed` if it cannot be decompressed, holds
/// more than 10,000 records or a label above 9.
pub fn read_cifar10(files: &[&Path]) -> Result<Dataset, Error> {
    let mut values = Vec::new();
    let mut labels = Vec::new();
    for path in files {
        let (path, bytes) = read(path)?;
        for (at, record) in bytes.chunks_exact(RECORD).enumerate() {
            if record[0] > 9 {
                let why = format!("record {at} has label {}; there are 0 to 9", record[0]);
                return Err(Error::malformed(&path, why));
            }
            labels.push(record[0]);
            values.extend_from_slice(&record[1..]);
        }
    }
    Dataset::new(
        Features::Bytes {
            values,
            mean: MEAN.to_vec(),
            std: STD.to_vec(),
        },
        labels,
        INPUT,
    )
}

/// All bytes of one file: 1 to 10,000 whole records.
fn read(path: &Path) -> Result<(PathBuf, Vec<u8>), Error> {
    const WHAT: &str = "records of 3,073 bytes";
    let mut file = DataFile::open(path, HINT)?;
    let source = file.path.clone();
    let bytes = match file.take(BATCH, WHAT) {
        Err(Error::Size { found, .. }) => {
            // Fewer records than a full batch: read again, now that the size is known.
            let whole = found.div_ceil(RECORD as u64).max(1) * RECORD as u64;
            DataFile::open(path, HINT)?.take(whole, WHAT)?
        }
        whole => {
            let bytes = whole?;
            file.finish(BATCH, WHAT)?;
            bytes
        }
    };
    Ok((source, bytes))
}

shared_set! {
    /// One client's share of CIFAR-10.
    pub struct Cifar10(dir) {
        /// Folder of the files.
        pub dir: PathBuf,
        /// Train on batches 1 to 4 and evaluate on batch 5, in place of the test batch.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub hold_out_batch_5: bool,
    }
}

impl DataSet for Cifar10 {
    fn load(&self) -> Result<ClientData, Error> {
        let last = if self.hold_out_batch_5 { 4 } else { 5 };
        let train = self.shared("train", || batches(&self.dir, 1..=last))?;
        let test = self.shared("test", || {
            if self.hold_out_batch_5 {
                batches(&self.dir, 5..=5)
            } else {
                test_batch(&self.dir)
            }
        })?;
        self.part().of(train, TestSource::Stretch(test))
    }

    fn check(&self) -> Result<(), Error> {
        self.part().check()
    }

    fn keys(&mut self) -> Keys<'_> {
        self.shared_keys()
    }
}

fn batches(dir: &Path, numbers: RangeInclusive<u32>) -> Result<Dataset, Error> {
    let files: Vec<PathBuf> = numbers.map(|n| dir.join(format!("data_batch_{n}.bin"))).collect();
    read_cifar10(&files.iter().map(PathBuf::as_path).collect::<Vec<_>>())
}

/// The official test batch, or its first thousand records where only these are there.
fn test_batch(dir: &Path) -> Result<Dataset, Error> {
    match read_cifar10(&[&dir.join("test_batch.bin")]) {
        Err(Error::Missing { .. }) => read_cifar10(&[&dir.join("test_batch_first1000.bin")]),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_become_labels_and_planes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("batch.bin");
        let mut bytes = vec![0; 2 * RECORD];
        (bytes[0], bytes[RECORD], bytes[RECORD + 1]) = (3, 9, 255);
        std::fs::write(&path, &bytes).unwrap();
        let set = read_cifar10(&[&path, &path]).unwrap();
        assert_eq!(set.labels(), [3, 9, 3, 9]);
        bytes[RECORD] = 10;
        std::fs::write(&path, &bytes).unwrap();
        assert!(
            read_cifar10(&[&path])
                .unwrap_err()
                .to_string()
                .contains("record 1 has label 10")
        );
    }

    #[test]
    fn parts_of_records_are_named_with_their_sizes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("batch.bin");
        for len in [0, 1, RECORD - 1, RECORD + 1, 3 * RECORD - 5] {
            std::fs::write(&path, vec![0; len]).unwrap();
            let error = read_cifar10(&[&path]).unwrap_err();
            assert!(
                matches!(error, Error::Size { found, .. } if found == len as u64),
                "{len}: {error:?}"
            );
        }
        std::fs::write(&path, vec![0; BATCH as usize + 1]).unwrap();
        assert!(matches!(read_cifar10(&[&path]), Err(Error::Size { .. })));
    }
}
