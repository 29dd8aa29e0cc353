//! The program `fl-compress` from outside: what it writes, prints and refuses.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod failures;
mod fidelity;
mod help_page;
mod integers;
mod limit;
mod reports;
mod state;
mod vectors;
mod walk;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fl_compress::{Layout, weights};
use tempfile::TempDir;

const SPEC: &str = r#"
    memory = "error-feedback"
    default = { reduce = { top_k = 0.05 }, quantize = { uniform = { bits = 4, rounding = "stochastic" } }, code = "rans" }
    [[rules]]
    when = { max_dims = 1 }
    use = { quantize = "half" }
"#;

/// A temporary folder in which a test runs the program.
struct Place(TempDir);

impl Place {
    /// Contains `spec.toml`, `old.safetensors` and `new.safetensors`.
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.write("spec.toml", SPEC.as_bytes());
        place.write_values("old.safetensors", &values(1));
        place.write_values("new.safetensors", &values(2));
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    fn write_values(&self, name: &str, values: &[f32]) {
        self.write(name, &weights::to_safetensors(&layout(), values).unwrap());
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    fn read_values(&self, name: &str) -> Vec<f32> {
        let bytes = self.read(name);
        let weights = weights::Weights::parse(&bytes).unwrap();
        weights.expect(&layout()).unwrap();
        weights.values().unwrap()
    }

    /// Runs the program with the space-separated `arguments`.
    fn run(&self, arguments: &str) -> Output {
        program(self.0.path(), arguments).output().unwrap()
    }

    /// Runs successfully; returns stdout.
    fn ok(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments}: {}", stderr(&output));
        let warned = stderr(&output);
        // `SPEC` keeps few values, so `encode` warns.
        assert!(
            warned.lines().all(|line| line.starts_with("fl-compress: warning: ")),
            "{arguments}: {warned}"
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs and expects the exit code `code`, one line on stderr and nothing on stdout; returns the line.
    fn fails(&self, code: i32, arguments: &str) -> String {
        let output = self.run(arguments);
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments}: {error}");
        assert_eq!(output.stdout, b"", "{arguments}");
        assert!(error.starts_with("fl-compress: ") && error.ends_with('\n'), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn program(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fl-compress"));
    command.args(arguments.split_whitespace()).current_dir(folder);
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn layout() -> Layout {
    Layout::new([("fc.bias", vec![30]), ("fc.weight", vec![30, 100]), ("scale", vec![])]).unwrap()
}

/// Heavy-tailed values of [`layout`].
fn values(seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut unit = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 16_777_216.0
    };
    (0..layout().len()).map(|_| (unit() - 0.5) / (unit() + 0.05)).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
