//! `fl-server report` of a run of 1,000 rounds and 100 clients, the fastest of several times: the whole program in every
//! form, with and without a server that holds the store, and reading the store alone. Each form is to take less than 1 s.
//!
//! `cargo bench -p fl-server --bench report -- [ROUNDS [CLIENTS]]`

#![allow(clippy::unwrap_used)]

#[path = "../tests/fixtures/long_run.rs"]
mod long_run;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fl_server::disk::Disk;
use fl_server::ledger::Row;
use fl_server::store::Store;
use safetensors::tensor::{Dtype, TensorView};

const PROGRAM: &str = env!("CARGO_BIN_EXE_fl-server");
/// How often each is done.
const TIMES: usize = 5;
const RUN: &str = "made";
const FORMS: [&[&str]; 7] = [
    &["--format", "text"],
    &["--format", "json"],
    &["--format", "csv", "--by", "participation"],
    &["--format", "parquet", "--by", "participation"],
    &["--format", "html"],
    &["--format", "text", "--by", "client"],
    &["--sign"],
];

fn main() {
    let mut numbers = std::env::args().filter_map(|arg| arg.parse().ok());
    let (rounds, clients) = (numbers.next().unwrap_or(1_000), numbers.next().unwrap_or(100));
    let dir = tempfile::tempdir().unwrap();
    let fed = dir.path().join("fed");
    good(
        Command::new(PROGRAM)
            .arg("init")
            .arg(&fed)
            .args(["--listen", "127.0.0.1:0", "--admin", "off"]),
    );
    let data = fed.join("data");
    let begun = Instant::now();
    long_run::write(&data, RUN, rounds, &long_run::names(clients as usize));
    println!("{rounds} rounds x {clients} clients, made in {:.1?}", begun.elapsed());
    read(&data);
    forms("no server", &fed, dir.path());
    let server = serve(&fed, dir.path());
    forms("of a server", &fed, dir.path());
    drop(server);
}

/// The store alone.
fn read(data: &Path) {
    let open = || Store::open(data, Disk::default()).unwrap();
    say("open the store", || drop(open()));
    let run = open().run(&RUN.parse().unwrap()).unwrap();
    say("read the records", || {
        assert!(run.records().all(|record| record.is_ok()))
    });
    let row = |bytes: Result<Vec<u8>, _>| Row::from_bytes(&bytes.unwrap()).is_some();
    say("read the rows", || assert!(run.rows().all(row)));
}

/// The program, for each form.
fn forms(server: &str, fed: &Path, dir: &Path) {
    for form in FORMS {
        let out = dir.join("out");
        say(&format!("report {}, {server}", form.join(" ")), || {
            let mut report = Command::new(PROGRAM);
            good(report.arg("report").arg(fed).arg(RUN).args(form).arg("-o").arg(&out));
        });
    }
}

/// A server of another run, which waits for clients.
fn serve(fed: &Path, dir: &Path) -> Server {
    let zeros = [0; 40];
    let weights = [("w", TensorView::new(Dtype::F32, vec![10], &zeros).unwrap())];
    let weights = safetensors::serialize(weights, None).unwrap();
    std::fs::write(dir.join("init.safetensors"), weights).unwrap();
    let run = dir.join("run.toml");
    let text =
        "name = \"other\"\ntask = \"t\"\nrounds = 1\nmodel = \"init.safetensors\"\n[cohort]\nmin = 1\ntarget = 1\n";
    std::fs::write(&run, text).unwrap();
    let mut serve = Command::new(PROGRAM);
    serve.arg("serve").arg(fed).arg("--run").arg(run).stdout(Stdio::piped());
    let mut child = serve.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.contains("127.0.0.1"), "{line}");
    Server(child)
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn good(command: &mut Command) {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
}

fn say(what: &str, mut does: impl FnMut()) {
    let mut fastest = Duration::MAX;
    for _ in 0..TIMES {
        let begun = Instant::now();
        does();
        fastest = fastest.min(begun.elapsed());
    }
    println!("{:>8.1} ms  {what}", fastest.as_secs_f64() * 1e3);
}
