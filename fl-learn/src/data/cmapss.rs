//! C-MAPSS: sensors of simulated turbofan engines until they fail (Saxena and Goebel 2008).
//!
//! The remaining useful life is predicted from a window of cycles. It is capped, as in Heimes 2008: an engine that is far from
//! failing shows no sign of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::csv_file::repeated;
use super::dataset::Dataset;
use super::error::Error;
use super::examples::{ClientData, Examples};
use super::features::Features;
use super::files::DataFile;
use super::input::Input;
use super::part::check_limit;
use super::set::{DataSet, Keys};
use super::split::check_client;
use super::vocabulary::utf8;

/// Engine, cycle, 3 settings, 21 sensors.
const COLUMNS: usize = 26;
const SENSORS: u8 = 21;
/// Columns before the first sensor.
const BEFORE_SENSORS: usize = 5;
/// Most bytes of a file: some 400,000 cycles.
const MAX_FILE: u64 = 64 << 20;
/// Most values of a client's training windows: 512 MiB.
const MAX_VALUES: usize = 1 << 27;
const MAX_WINDOW: u32 = 1024;

const HINT: &str = "give the folder that holds `train_FD001.txt`, `test_FD001.txt` and `RUL_FD001.txt`, or their .gz";

/// Windows of the engines of one client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cmapss {
    /// Folder of the files.
    pub dir: PathBuf,
    /// Name of one of the four sets, which is part of the names of its files.
    #[serde(default = "first")]
    pub set: String,
    /// Number of this client, from 0: it has every engine whose number, from 0, is `client` modulo `clients`.
    #[serde(default)]
    pub client: u32,
    /// Number of clients that share the engines.
    #[serde(default = "crate::data::part::one")]
    pub clients: u32,
    /// Cycles of a window.
    #[serde(default = "window")]
    pub window: u32,
    /// Sensors that the model sees, from 1.
    #[serde(default = "informative")]
    pub sensors: Vec<u8>,
    /// Longer lives than this many cycles count as this many; the target is a share of it.
    #[serde(default = "longest")]
    pub longest: u32,
    /// Take at most this many of the client's training windows.
    #[serde(default)]
    pub limit: Option<u32>,
}

impl Cmapss {
    /// Cycles of the first window of an engine: fewer than usual if it does not live so long.
    fn window_of(&self, rows: &Engine) -> usize {
        rows.len().min(self.window as usize)
    }
}

fn first() -> String {
    "FD001".to_owned()
}

fn window() -> u32 {
    30
}

/// The sensors that change in FD001 and FD003.
fn informative() -> Vec<u8> {
    vec![2, 3, 4, 7, 8, 9, 11, 12, 13, 14, 15, 17, 20, 21]
}

fn longest() -> u32 {
    125
}

impl DataSet for Cmapss {
    fn load(&self) -> Result<ClientData, Error> {
        let file = |part: &str| self.dir.join(format!("{part}_{}.txt", self.set));
        let train = engines(&file("train"))?;
        if (train.len() as u64) < u64::from(self.clients) {
            let why = format!("is {}, more than the {} engines", self.clients, train.len());
            return Err(Error::config("clients", why));
        }
        let scales = scales(&train, &self.sensors);
        let scales = scales.map_err(|why| Error::malformed(&file("train"), why))?;
        let every = self.clients as usize;
        let own = |count: usize| (self.client as usize..count).step_by(every);

        let windows: usize = own(train.len())
            .map(|at| train[at].len() - self.window_of(&train[at]) + 1)
            .sum();
        if windows.saturating_mul(self.window as usize * self.sensors.len()) > MAX_VALUES {
            let why = format!(
                "is {}, which makes more than {MAX_VALUES} values; lower it, or raise `clients`",
                self.window
            );
            return Err(Error::config("window", why));
        }
        let mut made = Windows::of(self, &scales);
        for engine in own(train.len()) {
            let rows = &train[engine];
            // An engine of the training file runs until it fails.
            (self.window_of(rows)..=rows.len()).for_each(|cycle| made.add(&rows[..cycle], (rows.len() - cycle) as u32));
        }
        let train = Examples::all(Arc::new(made.finish()?));

        let test = engines(&file("test"))?;
        let lives = lives(&file("RUL"))?;
        if test.len() != lives.len() {
            let why = format!(
                "has {} lives for the {} engines of the test file",
                lives.len(),
                test.len()
            );
            return Err(Error::malformed(&file("RUL"), why));
        }
        let mut made = Windows::of(self, &scales);
        own(test.len()).for_each(|engine| made.add(&test[engine], lives[engine]));
        Ok(ClientData {
            train: train.at_most(self.limit),
            test: Examples::all(Arc::new(made.finish()?)),
        })
    }

    fn check(&self) -> Result<(), Error> {
        if self.set.is_empty() || !self.set.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(Error::config(
                "set",
                format!("is {:?}, but must be such as \"FD001\"", self.set),
            ));
        }
        check_client(self.client, self.clients)?;
        if !(1..=MAX_WINDOW).contains(&self.window) {
            return Err(Error::config(
                "window",
                format!("is {}, but must be 1 to {MAX_WINDOW}", self.window),
            ));
        }
        let sensors = &self.sensors;
        if sensors.is_empty() || !sensors.iter().all(|sensor| (1..=SENSORS).contains(sensor)) {
            return Err(Error::config("sensors", format!("must be numbers from 1 to {SENSORS}")));
        }
        if let Some(twice) = repeated(sensors) {
            return Err(Error::config("sensors", format!("has {twice} twice")));
        }
        if self.longest == 0 {
            return Err(Error::config("longest", "is 0, but must be at least 1".to_owned()));
        }
        check_limit(self.limit)
    }

    fn keys(&mut self) -> Keys<'_> {
        Keys {
            client: Some(&mut self.client),
            clients: Some(&mut self.clients),
            paths: vec![&mut self.dir],
            ..Keys::default()
        }
    }
}

type Engine = Vec<[f32; SENSORS as usize]>;

/// The engines of the file at `path`. Engines and cycles are counted from 1.
fn engines(path: &Path) -> Result<Vec<Engine>, Error> {
    let (bytes, path) = DataFile::open(path, HINT)?.text(MAX_FILE)?;
    let mut engines: Vec<Engine> = Vec::new();
    for (at, line) in utf8(&bytes, &path)?.lines().enumerate() {
        let wrong = |why: String| Error::malformed(&path, format!("line {}: {why}", at + 1));
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        if fields.len() != COLUMNS {
            return Err(wrong(format!(
                "{} fields, but there are {COLUMNS} columns",
                fields.len()
            )));
        }
        if let Some((column, field)) = fields.iter().enumerate().find(|(_, field)| !is_number(field)) {
            return Err(wrong(format!("column {}: `{field}` is no finite number", column + 1)));
        }
        let [engine, cycle] = [0, 1].map(|at| fields[at].parse::<usize>().ok());
        if engine == Some(engines.len() + 1) && cycle == Some(1) {
            engines.push(Vec::new());
        }
        let count = engines.len();
        let rows = engines
            .last_mut()
            .filter(|rows| engine == Some(count) && cycle == Some(rows.len() + 1));
        let Some(rows) = rows else {
            let why = format!(
                "engine {} and cycle {} do not follow the line above it",
                fields[0], fields[1]
            );
            return Err(wrong(why));
        };
        let mut row = [0.0; SENSORS as usize];
        // Parsed above.
        row.iter_mut()
            .zip(&fields[BEFORE_SENSORS..])
            .for_each(|(value, field)| *value = field.parse().unwrap_or(0.0));
        rows.push(row);
    }
    if engines.is_empty() {
        Err(Error::malformed(&path, "is empty"))
    } else {
        Ok(engines)
    }
}

fn is_number(field: &str) -> bool {
    field.parse::<f32>().is_ok_and(f32::is_finite)
}

/// The remaining life of each test engine, in cycles.
fn lives(path: &Path) -> Result<Vec<u32>, Error> {
    let (bytes, path) = DataFile::open(path, HINT)?.text(MAX_FILE)?;
    let lines = utf8(&bytes, &path)?.lines().enumerate();
    lines
        .map(|(at, line)| {
            line.trim()
                .parse::<u32>()
                .map_err(|_| Error::malformed(&path, format!("line {}: `{line}` is no number of cycles", at + 1)))
        })
        .collect()
}

fn scales(engines: &[Engine], sensors: &[u8]) -> Result<Vec<(f32, f32)>, String> {
    sensors
        .iter()
        .map(|&sensor| {
            let values = || {
                engines
                    .iter()
                    .flatten()
                    .map(|row| f64::from(row[usize::from(sensor) - 1]))
            };
            let count = values().count().max(1) as f64;
            let mean = values().sum::<f64>() / count;
            let variance = values()
                .map(|value| fl_compress::math::square(value - mean))
                .sum::<f64>()
                / count;
            match variance.sqrt() as f32 {
                deviation if deviation > 1e-6 * (mean.abs() as f32).max(1e-6) => Ok((mean as f32, deviation)),
                _ => Err(format!("sensor {sensor} does not change; leave it out of `sensors`")),
            }
        })
        .collect()
}

struct Windows<'a> {
    cmapss: &'a Cmapss,
    scales: &'a [(f32, f32)],
    values: Vec<f32>,
    targets: Vec<f32>,
}

impl<'a> Windows<'a> {
    fn of(cmapss: &'a Cmapss, scales: &'a [(f32, f32)]) -> Self {
        Self {
            cmapss,
            scales,
            values: Vec::new(),
            targets: Vec::new(),
        }
    }

    /// Adds the window that ends with the last of `cycles`, after which the engine lives for `life` more. A window that begins
    /// before the first cycle repeats the first.
    fn add(&mut self, cycles: &[[f32; SENSORS as usize]], life: u32) {
        let window = self.cmapss.window as usize;
        for (sensor, (mean, deviation)) in self.cmapss.sensors.iter().zip(self.scales) {
            self.values.extend(
                (1..=window).rev().map(|back| {
                    (cycles[cycles.len().saturating_sub(back)][usize::from(*sensor) - 1] - mean) / deviation
                }),
            );
        }
        self.targets
            .push(life.min(self.cmapss.longest) as f32 / self.cmapss.longest as f32);
    }

    /// Examples of the shape `[sensors, 1, window]`, with one number to predict.
    fn finish(self) -> Result<Dataset, Error> {
        let input = Input::of_numbers([self.cmapss.sensors.len(), 1, self.cmapss.window as usize], 1);
        Dataset::of_numbers(Features::Floats(self.values), self.targets, input)
    }
}

#[cfg(test)]
mod tests;
