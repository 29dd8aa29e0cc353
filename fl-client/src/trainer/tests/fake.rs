//! A trainer for tests: the test program itself, started again with an environment variable. Also part of the tests of other
//! crates, so it uses the standard library and serde only.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The variable that holds the [`Script`].
const VARIABLE: &str = "FL_FAKE_TRAINER";

/// What the trainer does.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Script {
    /// Name, type and shape of each tensor.
    pub tensors: Vec<(String, &'static str, Vec<usize>)>,
    /// Added to the change of every round, so that clients differ.
    pub client: u64,
    /// Fault in the n-th start of the program, counted from 0 in `counter`.
    pub at_start: BTreeMap<u64, Fault>,
    pub in_round: BTreeMap<u64, Fault>,
    /// A file in which starts are counted.
    pub counter: Option<PathBuf>,
    /// Whether the trainer writes squared gradients when it is asked.
    pub squares: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Fault {
    /// Exits with code 3 after two lines on standard error.
    Exits,
    /// Is killed by SIGKILL.
    Killed,
    /// Answers `failed`.
    Raises,
    /// Reports progress once and nothing more.
    Hangs,
    /// As `Hangs`, and ignores SIGTERM.
    HangsOn,
    /// Prints 32 MiB, then trains as usual.
    Prints,
    /// Prints 1 GiB in lines of 80 bytes, then trains as usual.
    PrintsLines,
    /// Prints 1 GiB without a line feed, then trains as usual.
    PrintsEndlessly,
    NotANumber,
    WrongShapes,
    WrongNames,
    WrongTypes,
    /// Writes the first half of its result.
    HalfAFile,
    /// Answers without writing a result.
    NoFile,
    /// Writes a negative squared gradient.
    NegativeSquare,
    /// Says that it has written squared gradients, and has not.
    NoSquares,
    /// Writes squared gradients of another shape.
    OtherSquares,
    UnknownMessage,
    Garbage,
    /// Answers `evaluated` to `fit`.
    Misplaced,
    /// Sends a line of 17 MiB.
    LongLine,
    ClosesPipe,
    /// Reports progress until it is told to stop.
    WaitsForStop,
    NoExamples,
    /// Trains a copy: returns the weights that it was given.
    Unchanged,
    SaysBye,
    /// At the start only.
    OtherVersion,
    OtherNames,
    OtherShapes,
    SaysNothing,
}

impl Fault {
    /// Faults in a round that the client must survive without an update.
    pub const IN_ROUND: [Self; 18] = [
        Self::Exits,
        Self::Killed,
        Self::Raises,
        Self::Hangs,
        Self::HangsOn,
        Self::NotANumber,
        Self::WrongShapes,
        Self::WrongNames,
        Self::WrongTypes,
        Self::HalfAFile,
        Self::NoFile,
        Self::UnknownMessage,
        Self::Garbage,
        Self::Misplaced,
        Self::LongLine,
        Self::ClosesPipe,
        Self::NoExamples,
        Self::Unchanged,
    ];
    /// Faults before the first round of a process.
    pub const AT_START: [Self; 6] = [
        Self::Exits,
        Self::OtherVersion,
        Self::OtherNames,
        Self::OtherShapes,
        Self::Garbage,
        Self::SaysNothing,
    ];
}

/// The change of value `i` in `round`: multiples of 1/8, so that sums are exact.
pub fn change(client: u64, round: u64, i: u64) -> f32 {
    ((i * 7 + round * 5 + client * 3 + i * i * round) % 23) as f32 / 8.0 - 1.0
}

/// The squared gradient of value `i` in `round`.
pub fn square(round: u64, i: u64) -> f32 {
    ((i * 5 + round * 3) % 11) as f32
}

impl Script {
    /// The words that start this test program as a trainer. `test`: the path of a test that calls [`act`].
    pub fn command(&self, test: &str) -> Vec<String> {
        let program = std::env::current_exe().unwrap();
        let words = [
            "env",
            &format!("{VARIABLE}={}", json!(self)),
            program.to_str().unwrap(),
            "--exact",
            test,
            "--nocapture",
            "--test-threads=1",
        ];
        words.map(str::to_owned).to_vec()
    }
}

/// Acts as a trainer and ends the process, if this process was started as one.
pub fn act() {
    let Ok(script) = std::env::var(VARIABLE) else { return };
    let script: Value = serde_json::from_str(&script).unwrap();
    // Opened anew, because the inherited descriptors cannot be taken over without unsafe code.
    let from_client = BufReader::new(File::open("/proc/self/fd/3").unwrap());
    let to_client = OpenOptions::new().write(true).open("/proc/self/fd/4").unwrap();
    let mut trainer = Trainer {
        script,
        to_client,
        folder: PathBuf::new(),
        layout: Vec::new(),
        trained: Vec::new(),
        local: Vec::new(),
        own: Vec::new(),
        base: None,
    };
    for line in from_client.lines() {
        let Ok(line) = line else { break };
        trainer.handle(&serde_json::from_str(&line).unwrap());
    }
    exit(0)
}

struct Trainer {
    script: Value,
    to_client: File,
    folder: PathBuf,
    /// Name, type and shape of the tensors that travel, in the order of the run.
    layout: Vec<(String, String, Vec<u64>)>,
    /// The trained ones, as `F32`.
    trained: Vec<(String, String, Vec<u64>)>,
    /// Those that stay, and their values: each round adds 1.
    local: Vec<(String, String, Vec<u64>)>,
    own: Vec<f32>,
    /// The sum of the frozen values, if the client gave any.
    base: Option<f64>,
}

impl Trainer {
    fn handle(&mut self, message: &Value) {
        match message["type"].as_str().unwrap() {
            "start" => self.start(message),
            "join" => {
                self.layout = layout(&message["tensors"], &["trained", "buffer", "counter"]);
                self.trained = layout(&message["tensors"], &["trained"]);
                self.trained.iter_mut().for_each(|tensor| tensor.1 = "F32".to_owned());
                self.local = layout(&message["tensors"], &["local"]);
                let frozen = layout(&message["tensors"], &["frozen"]);
                let base = message["base"].as_str().map(|path| values_of(Path::new(path), &frozen));
                self.base = base.map(|values| values.iter().map(|value| f64::from(*value)).sum());
                let stored = message["local"]
                    .as_str()
                    .map(|path| values_of(Path::new(path), &self.local));
                self.own = stored.unwrap_or_else(|| vec![0.25; len(&self.local)]);
                if let Some(kept) = message["kept"].as_str() {
                    fs::create_dir_all(kept).unwrap();
                    let joins = Path::new(kept).join("joins");
                    fs::write(&joins, [&fs::read(&joins).unwrap_or_default()[..], b"1"].concat()).unwrap();
                }
            }
            "fit" => {
                let round = message["round"].as_u64().unwrap();
                let fault = self.fault("in_round", round);
                self.fit(message, round, fault);
            }
            "evaluate" => {
                let values = self.read(message);
                let loss = values.iter().map(|value| f64::from(*value)).sum::<f64>();
                self.say(&json!({"type": "evaluated", "examples": 10, "loss": loss, "correct": 7}));
            }
            "stop" => self.say(&json!({"type": "failed", "message": "stopped"})),
            "bye" => exit(0),
            other => panic!("{other}"),
        }
    }

    fn fault(&self, when: &str, at: u64) -> Option<Fault> {
        let fault = &self.script[when][at.to_string()];
        serde_json::from_value(fault.clone()).unwrap()
    }

    fn start(&mut self, message: &Value) {
        self.folder = message["folder"].as_str().unwrap().into();
        let fault = self.count().and_then(|start| self.fault("at_start", start));
        let mut tensors: Vec<Value> = self.script["tensors"].as_array().unwrap().clone();
        match fault {
            Some(Fault::Exits) => die(),
            Some(Fault::SaysNothing) => return,
            Some(Fault::Garbage) => self.write(b"Loading the data...\n"),
            Some(Fault::OtherNames) => tensors[0][0] = json!("another"),
            Some(Fault::OtherShapes) => tensors[0][2] = json!([1, 1, 1]),
            _ => {}
        }
        let version = if fault == Some(Fault::OtherVersion) { 2 } else { 1 };
        let layout: Vec<_> = tensors.iter().map(|t| of(&t[0], &t[1], &t[2])).collect();
        let values = vec![0.25; len(&layout)];
        fs::write(self.folder.join("hello.safetensors"), file(&layout, &values)).unwrap();
        let tensors: Vec<Value> = tensors
            .iter()
            .map(|t| json!({"name": t[0], "dtype": t[1], "shape": t[2]}))
            .collect();
        self.say(&json!({
            "type": "hello", "version": version, "tensors": tensors, "evaluates": true, "weights": "hello.safetensors",
        }));
    }

    /// Counts this start; `None` if starts are not counted.
    fn count(&self) -> Option<u64> {
        let path = Path::new(self.script["counter"].as_str()?);
        let before: u64 = fs::read_to_string(path)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        fs::write(path, (before + 1).to_string()).unwrap();
        Some(before)
    }

    fn fit(&mut self, message: &Value, round: u64, fault: Option<Fault>) {
        let client = self.script["client"].as_u64().unwrap();
        let mut values = self.read(message);
        (0..)
            .zip(&mut values)
            .filter(|_| fault != Some(Fault::Unchanged))
            .for_each(|(i, value)| *value += change(client, round, i));
        self.say(&json!({"type": "progress", "done": 1, "total": 2}));
        let mut layout = self.layout.clone();
        match fault {
            Some(Fault::Exits) => die(),
            Some(Fault::Killed) => {
                Command::new("kill")
                    .args(["-9", &std::process::id().to_string()])
                    .status()
                    .unwrap();
            }
            Some(Fault::Raises) => {
                return self.say(&json!({"type": "failed", "message": format!("{TRACEBACK}the sensor is unplugged")}));
            }
            Some(Fault::Hangs) => hang(),
            Some(Fault::HangsOn) => {
                // The shell ignores SIGTERM and so does its child.
                panic!("{}", Command::new("sh").args(["-c", "trap '' TERM; sleep 1000"]).exec());
            }
            Some(fault @ (Fault::Prints | Fault::PrintsLines)) => {
                let line = "x".repeat(79) + "\n";
                let chunk = line.repeat(1 << 13);
                self.print(&chunk, if fault == Fault::Prints { 32 << 20 } else { 1 << 30 });
            }
            Some(Fault::PrintsEndlessly) => {
                self.print(&"x".repeat(1 << 20), 1 << 30);
            }
            Some(Fault::NotANumber) => values[0] = f32::NAN,
            Some(Fault::WrongShapes) => layout[0].2.push(1),
            Some(Fault::WrongNames) => layout[0].0.push('x'),
            Some(Fault::WrongTypes) => {
                layout[0].1 = "I32".to_owned();
            }
            Some(Fault::UnknownMessage) => self.say(&json!({"type": "greetings"})),
            Some(Fault::Garbage) => self.write(b"epoch 1\n"),
            Some(Fault::Misplaced) => {
                return self.say(&json!({"type": "evaluated", "examples": 1, "loss": 1.0}));
            }
            Some(Fault::LongLine) => self.write(&b"x".repeat(17 << 20)),
            Some(Fault::ClosesPipe) => {
                // This program's own descriptors of the pipes are closed on exec.
                panic!(
                    "{}",
                    Command::new("sh").args(["-c", "exec 3<&- 4>&-; sleep 1000"]).exec()
                );
            }
            Some(Fault::WaitsForStop) => return,
            Some(Fault::SaysBye) => return self.say(&json!({"type": "bye"})),
            _ => {}
        }
        self.own.iter_mut().for_each(|value| *value += 1.0);
        layout.extend(self.local.iter().cloned());
        values.extend(&self.own);
        let bytes = file(&layout, &values);
        let written = match fault {
            Some(Fault::HalfAFile) => &bytes[..bytes.len() / 2],
            _ => &bytes,
        };
        if fault != Some(Fault::NoFile) {
            fs::write(self.folder.join(message["result"].as_str().unwrap()), written).unwrap();
        }
        let squared = message["squared_gradients"]
            .as_str()
            .filter(|_| self.script["squares"] == json!(true));
        if let Some(name) = squared.filter(|_| fault != Some(Fault::NoSquares)) {
            let mut trained = self.trained.clone();
            let mut squares: Vec<f32> = (0..len(&trained) as u64).map(|i| square(round, i)).collect();
            match fault {
                Some(Fault::NegativeSquare) => squares[1] = -0.5,
                Some(Fault::OtherSquares) => trained[0].2.push(1),
                _ => {}
            }
            fs::write(self.folder.join(name), file(&trained, &squares)).unwrap();
        }
        let examples = if fault == Some(Fault::NoExamples) { 0 } else { 60 };
        let metrics = match self.base {
            Some(base) => json!({"half": 0.5, "base": base}),
            None => json!({"half": 0.5}),
        };
        self.say(&json!({
            "type": "fitted", "examples": examples, "loss": 0.5, "metrics": metrics,
            "squared_gradients": squared.is_some(),
        }));
    }

    /// Prints at least `bytes` bytes, and reports progress: what is printed is none.
    fn print(&mut self, chunk: &str, bytes: usize) {
        for at in 0..bytes.div_ceil(chunk.len()) {
            std::io::stdout().write_all(chunk.as_bytes()).unwrap();
            if at % 16 == 0 {
                self.say(&json!({"type": "progress", "done": 1, "total": 2}));
            }
        }
    }

    fn read(&self, message: &Value) -> Vec<f32> {
        values_of(&self.folder.join(message["weights"].as_str().unwrap()), &self.layout)
    }

    fn say(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    fn write(&mut self, bytes: &[u8]) {
        // The client may have ended the trainer.
        if self.to_client.write_all(bytes).is_err() {
            exit(1);
        }
    }
}

fn hang() -> ! {
    loop {
        std::thread::park();
    }
}

/// What Python says of an error, up to its message.
const TRACEBACK: &str = "Traceback (most recent call last):\n  File \"/srv/train.py\", line 16, in train\n    read()\n    ~~~~^^\nValueError: ";

fn die() -> ! {
    eprintln!("{TRACEBACK}the camera is unplugged");
    exit(3)
}

fn of(name: &Value, dtype: &Value, shape: &Value) -> (String, String, Vec<u64>) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (
        text(name),
        text(dtype),
        shape.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect(),
    )
}

fn values_of(path: &Path, layout: &[(String, String, Vec<u64>)]) -> Vec<f32> {
    let bytes = fs::read(path).unwrap();
    let head = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..head]).unwrap();
    let mut values = Vec::new();
    for (name, dtype, _) in layout {
        assert_eq!(header[name]["dtype"], json!(dtype));
        let at = |i: usize| head + header[name]["data_offsets"][i].as_u64().unwrap() as usize;
        values.extend(bytes[at(0)..at(1)].as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)));
    }
    values
}

/// The tensors of a run with one of these roles.
fn layout(tensors: &Value, roles: &[&str]) -> Vec<(String, String, Vec<u64>)> {
    let tensors = tensors.as_array().unwrap().iter();
    let wanted = tensors.filter(|tensor| roles.contains(&tensor["role"].as_str().unwrap()));
    wanted
        .map(|tensor| of(&tensor["name"], &tensor["dtype"], &tensor["shape"]))
        .collect()
}

fn len(layout: &[(String, String, Vec<u64>)]) -> usize {
    layout
        .iter()
        .map(|(_, _, shape)| shape.iter().product::<u64>() as usize)
        .sum()
}

fn file(layout: &[(String, String, Vec<u64>)], values: &[f32]) -> Vec<u8> {
    let (mut header, mut end) = (serde_json::Map::new(), 0);
    for (name, dtype, shape) in layout {
        let begin = end;
        end += 4 * shape.iter().product::<u64>();
        header.insert(
            name.clone(),
            json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}),
        );
    }
    let header = Value::Object(header).to_string().into_bytes();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    bytes
}
