//! HAPT: acceleration and rotation of 30 people's phones, cut into labelled windows.

use std::path::Path;

use super::files::DataFile;
use super::{Dataset, Error, Features, Input};

/// Six channels of 128 samples at 50 Hz; six activities and six transitions between postures.
const INPUT: Input = Input { shape: [6, 1, 128], classes: 12 };
/// From sensor steps to g (acceleration) and rad/s (rotation).
const SCALE: [f32; 6] = [1.0 / 720.0, 1.0 / 720.0, 1.0 / 720.0, 3.0543262e-4, 3.0543262e-4, 3.0543262e-4];
/// Rows of the largest signal file taken: nearly six hours for each of 50 people.
const MAX_ROWS: u64 = 50_000_000;

const HINT: &str = "give the folder that holds `signals.i16.npy.xz` and `windows.tsv`";

/// What `windows.tsv` says: one entry a window.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HaptWindows {
    /// First row of the window in the signals.
    pub starts: Vec<u32>,
    /// The person, 1 to 30.
    pub users: Vec<u8>,
    /// Activity, from 0.
    pub labels: Vec<u8>,
}

/// The windows listed in `dir/windows.tsv`, in its order.
///
/// # Errors
/// `Missing`, `Io`; `Malformed` if a line does not begin with start, user and a known activity.
pub fn read_hapt_windows(dir: &Path) -> Result<HaptWindows, Error> {
    let path = dir.join("windows.tsv");
    let text = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::Missing { path: path.clone(), hint: HINT.to_owned() },
        _ => Error::io(&path, &error),
    })?;
    let mut windows = HaptWindows::default();
    for (at, line) in text.lines().enumerate().skip(1) {
        let Some((start, user, activity @ 1..=12)) = window(line) else {
            let reason = format!("line {}: expected start row, user and activity 1 to 12, found `{line}`", at + 1);
            return Err(Error::malformed(&path, reason));
        };
        windows.starts.push(start);
        windows.users.push(user);
        windows.labels.push(activity - 1);
    }
    Ok(windows)
}

/// The `windows` of `dir/signals.i16.npy` (plain, gzip or xz) as one set, in their order.
///
/// # Errors
/// `Missing`, `Io`, `Size` as any file; `Malformed` if the signals are not little-endian `int16` in rows of six, or
/// end before a window does.
pub fn read_hapt(dir: &Path, windows: HaptWindows) -> Result<Dataset, Error> {
    let mut file = DataFile::open(&dir.join("signals.i16.npy"), HINT)?;
    let rows = header(&mut file)?;
    let len = rows * 2 * SCALE.len() as u64;
    let bytes = file.take(len, "signals")?;
    let path = file.path.clone();
    file.finish(len, "signals")?;
    let signals = bytes.as_chunks::<2>().0.iter().map(|&bytes| i16::from_le_bytes(bytes)).collect();
    let features = Features::Windows { signals, starts: windows.starts, scale: SCALE.to_vec() };
    Dataset::new(features, windows.labels, INPUT)
        .map_err(|error| Error::malformed(&path, format!("its {rows} rows do not suit `windows.tsv`: {error}")))
}

/// Start row, user and activity of one line; what follows is not used.
fn window(line: &str) -> Option<(u32, u8, u8)> {
    let mut fields = line.split('\t');
    let mut next = || fields.next().map(str::trim);
    Some((next()?.parse().ok()?, next()?.parse().ok()?, next()?.parse().ok()?))
}

/// Reads the header of a npy file and returns the number of rows.
fn header(file: &mut DataFile) -> Result<u64, Error> {
    let start = file.take(10, "npy header")?;
    let &[0x93, b'N', b'U', b'M', b'P', b'Y', 1, _, low, high] = start.as_slice() else {
        return Err(Error::malformed(&file.path, "no npy file of version 1"));
    };
    let text = file.take(u64::from(u16::from_le_bytes([low, high])), "npy header")?;
    let text = String::from_utf8_lossy(&text).replace(' ', "");
    let rows = text.split_once("'shape':(").and_then(|(_, rest)| rest.split_once(",6)")).map(|(rows, _)| rows.parse());
    match rows {
        Some(Ok(rows)) if rows <= MAX_ROWS && text.contains("'<i2'") && text.contains("'fortran_order':False") => {
            Ok(rows)
        }
        _ => Err(Error::malformed(&file.path, format!("expected '<i2' in rows of 6, found {}", text.trim()))),
    }
}
