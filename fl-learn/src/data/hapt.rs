//! HAPT: acceleration and rotation of 30 people's phones, cut into labelled windows.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::array::{Element, npy};
use super::dataset::Dataset;
use super::error::Error;
use super::examples::{ClientData, Examples};
use super::features::Features;
use super::files::DataFile;
use super::input::Input;
use super::part::check_limit;
use super::set::{DataSet, Keys};
use super::shared::shared;
use super::text::MAX_TEXT;
use super::vocabulary::utf8;

/// Six channels of 128 samples at 50 Hz; six activities and six transitions between postures.
const INPUT: Input = Input::of_classes([6, 1, 128], 12);
/// From sensor steps to g (acceleration) and rad/s (rotation).
const SCALE: [f32; 6] = [
    1.0 / 720.0,
    1.0 / 720.0,
    1.0 / 720.0,
    3.0543262e-4,
    3.0543262e-4,
    3.0543262e-4,
];
/// Most rows of a signal file: nearly six hours for each of 50 people.
const MAX_ROWS: u64 = 50_000_000;

const PEOPLE: u8 = 30;

const HINT: &str = "give the folder that holds `signals.i16.npy.xz` and `windows.tsv`";

/// One person of HAPT. The last fifth of the person's windows of each activity is held out. Activities come in blocks, so the
/// last fifth of all windows would contain activities that were hardly trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hapt {
    /// Folder of the files.
    pub dir: PathBuf,
    /// The person, 1 to 30.
    pub user: u8,
    /// Take at most this many of the person's training windows.
    #[serde(default)]
    pub limit: Option<u32>,
}

/// Contents of `windows.tsv`: one entry a window.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HaptWindows {
    /// First row of the window in the signals.
    pub starts: Vec<u32>,
    /// The person, 1 to 30.
    pub users: Vec<u8>,
    /// Activity, from 0.
    pub labels: Vec<u8>,
}

/// The windows in `dir/windows.tsv`, in file order.
///
/// # Errors
/// `Missing`, `Io`; `Malformed` if a line does not begin with start, user and a known activity.
pub fn read_hapt_windows(dir: &Path) -> Result<HaptWindows, Error> {
    let path = dir.join("windows.tsv");
    let (bytes, path) = DataFile::open(&path, HINT)?.text(MAX_TEXT)?;
    let text = utf8(&bytes, &path)?;
    let mut windows = HaptWindows::default();
    for (at, line) in text.lines().enumerate().skip(1) {
        let Some((start, user, activity @ 1..=12)) = window(line) else {
            let reason = format!(
                "line {}: expected start row, user and activity 1 to 12, found `{line}`",
                at + 1
            );
            return Err(Error::malformed(&path, reason));
        };
        windows.starts.push(start);
        windows.users.push(user);
        windows.labels.push(activity - 1);
    }
    Ok(windows)
}

/// The `windows` of `dir/signals.i16.npy` (plain, gzip or xz) as one set, in the same order.
///
/// # Errors
/// `Missing`, `Io`, `Size` as any file; `Malformed` if the signals are not little-endian `int16` in rows of six, or
/// end before a window does.
pub fn read_hapt(dir: &Path, windows: HaptWindows) -> Result<Dataset, Error> {
    let mut file = DataFile::open(&dir.join("signals.i16.npy"), HINT)?;
    let rows = rows(&mut file)?;
    let len = rows * 2 * SCALE.len() as u64;
    let bytes = file.take(len, "signals")?;
    let path = file.path.clone();
    file.finish(len, "signals")?;
    let signals = bytes
        .as_chunks::<2>()
        .0
        .iter()
        .map(|&bytes| i16::from_le_bytes(bytes))
        .collect();
    let features = Features::Windows {
        signals,
        starts: windows.starts,
        scale: SCALE.to_vec(),
    };
    Dataset::new(features, windows.labels, INPUT)
        .map_err(|error| Error::malformed(&path, format!("its {rows} rows do not suit `windows.tsv`: {error}")))
}

/// Start row, user and activity of one line; further fields are ignored.
fn window(line: &str) -> Option<(u32, u8, u8)> {
    let mut fields = line.split('\t');
    let mut next = || fields.next().map(str::trim);
    Some((next()?.parse().ok()?, next()?.parse().ok()?, next()?.parse().ok()?))
}

fn rows(file: &mut DataFile) -> Result<u64, Error> {
    let header = npy::header(file)?;
    match (header.element, header.shape.as_slice()) {
        (Element::I16, &[rows, 6]) if rows <= MAX_ROWS => Ok(rows),
        (element, shape) => {
            let why = format!(
                "expected I16 in at most {MAX_ROWS} rows of 6, found {} in {shape:?}",
                element.name()
            );
            Err(Error::malformed(&file.path, why))
        }
    }
}

impl DataSet for Hapt {
    fn load(&self) -> Result<ClientData, Error> {
        let windows = read_hapt_windows(&self.dir)?;
        let mut train = Vec::new();
        let mut test = Vec::new();
        for activity in 0..12 {
            let own: Vec<u32> = (0..windows.users.len() as u32)
                .filter(|&i| (windows.users[i as usize], windows.labels[i as usize]) == (self.user, activity))
                .collect();
            let (first, last) = own.split_at(own.len() - own.len() / 5);
            train.extend_from_slice(first);
            test.extend_from_slice(last);
        }
        if train.is_empty() {
            let why = format!("is {}, of whom there are no windows", self.user);
            return Err(Error::config("user", why));
        }
        let set = shared(format!("hapt {}", self.dir.display()), || read_hapt(&self.dir, windows))?;
        Ok(ClientData {
            train: Examples::new(set.clone(), train)?.at_most(self.limit),
            test: Examples::new(set, test)?,
        })
    }

    fn check(&self) -> Result<(), Error> {
        if !(1..=PEOPLE).contains(&self.user) {
            let reason = format!("is {}, but must be 1 to {PEOPLE}", self.user);
            return Err(Error::config("user", reason));
        }
        check_limit(self.limit)
    }

    fn keys(&mut self) -> Keys<'_> {
        Keys {
            paths: vec![&mut self.dir],
            ..Keys::default()
        }
    }

    fn of_client(&mut self, client: u32, _: u32) -> Result<(), Error> {
        let user = u8::try_from(client + 1).ok().filter(|user| *user <= PEOPLE);
        self.user = user.ok_or_else(|| {
            let reason = format!("must be at most {PEOPLE}: HAPT has so many people, and each is one client");
            Error::config("clients", reason)
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.bytes());
        bytes.extend(data);
        bytes
    }

    const GOOD: &str = "{'descr': '<i2', 'fortran_order': False, 'shape': (130, 6), }\n";

    fn read(signals: &[u8], windows: &str) -> Result<Dataset, Error> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("signals.i16.npy"), signals).unwrap();
        std::fs::write(dir.path().join("windows.tsv"), windows).unwrap();
        read_hapt(dir.path(), read_hapt_windows(dir.path())?)
    }

    #[test]
    fn windows_are_read_channel_by_channel() {
        let data: Vec<u8> = (0..130i16 * 6).flat_map(|i| i.to_le_bytes()).collect();
        let set = read(
            &npy(GOOD, &data),
            "start_row\tuser\tactivity\n2\t1\t12\ttrain\n0\t7\t1\n",
        )
        .unwrap();
        assert_eq!(set.labels(), [11, 0]);
        let batch = Examples::all(set.into()).batch(&[0]);
        let values = batch.values.numbers();
        assert_eq!(values.len(), 768);
        assert!((values[1] - 18.0 / 720.0).abs() < 1e-6 && (values[128] - 13.0 / 720.0).abs() < 1e-6);
    }

    #[test]
    fn short_or_foreign_files_are_refused() {
        let data = vec![0; 130 * 12];
        let windows = "start_row\tuser\tactivity\n2\t1\t5\n";
        let whole = npy(GOOD, &data);
        for len in [0, 5, 10, 40, whole.len() - 1] {
            assert!(matches!(read(&whole[..len], windows), Err(Error::Size { .. })), "{len}");
        }
        let refused = |signals: &[u8], windows: &str| read(signals, windows).unwrap_err().to_string();
        assert!(refused(&npy(&GOOD.replace("130", "99999999999"), &data), windows).contains("rows of 6"));
        assert!(refused(&npy(&GOOD.replace("<i2", "<f4"), &data), windows).contains("rows of 6"));
        assert!(refused(b"PK\x03\x04 something else", windows).contains("no npy"));
        assert!(refused(&whole, "h\n3\t1\t5\n").contains("do not suit"));
        assert!(refused(&whole, "h\n0\t1\t13\n").contains("line 2"));
        assert!(refused(&whole, "h\n0\t1\n").contains("line 2"));
    }
}
