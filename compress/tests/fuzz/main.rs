//! Replays the corpus of the fuzz targets, and random mutations of it, without a fuzzer.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod drivers;

use std::fs;
use std::path::PathBuf;

use drivers::{TARGETS, seeds};

/// Mutated inputs per target.
const TRIES: usize = 4000;

fn corpus(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target)
}

/// The inputs of a target, sorted by name.
fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let mut inputs: Vec<_> = fs::read_dir(corpus(target))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            (
                path.file_name().unwrap().to_string_lossy().into_owned(),
                fs::read(path).unwrap(),
            )
        })
        .collect();
    inputs.sort();
    inputs
}

/// Runs a target; on a panic, prints the input.
fn run(target: fn(&[u8]), name: &str, input: &[u8]) {
    if let Err(panic) = std::panic::catch_unwind(|| target(input)) {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        println!("{name}: {hex}");
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn the_corpus_holds() {
    for (name, target) in TARGETS {
        let inputs = inputs(name);
        assert!(!inputs.is_empty(), "{name}");
        inputs
            .iter()
            .for_each(|(file, input)| run(target, &format!("{name}/{file}"), input));
    }
}

#[test]
fn changes_of_the_corpus_hold() {
    let mut random = Random(1);
    for (name, target) in TARGETS {
        let inputs = inputs(name);
        for _ in 0..TRIES {
            let mut input = inputs[random.below(inputs.len())].1.clone();
            for _ in 0..1 + random.below(4) {
                random.change(&mut input, &inputs);
            }
            run(target, name, &input);
        }
    }
}

#[test]
fn the_seeds_are_those_of_the_present_methods() {
    for (target, name, bytes) in seeds() {
        let found = fs::read(corpus(target).join(&name)).unwrap_or_default();
        assert!(
            found == bytes,
            "fuzz/corpus/{target}/{name} is of other methods; run: cargo test -p fl-compress --test fuzz -- --ignored"
        );
    }
}

/// Writes the seed corpus.
#[test]
#[ignore = "writes into the source tree; run it after a change to the format"]
fn write_seeds() {
    for (target, name, bytes) in seeds() {
        fs::create_dir_all(corpus(target)).unwrap();
        fs::write(corpus(target).join(name), bytes).unwrap();
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn change(&mut self, input: &mut Vec<u8>, others: &[(String, Vec<u8>)]) {
        let at = self.below(input.len());
        match self.below(8) {
            0 => input.truncate(at),
            1 => input.insert(at, self.next() as u8),
            2 if !input.is_empty() => drop(input.remove(at)),
            3 => {
                let other = &others[self.below(others.len())].1;
                input.truncate(at);
                input.extend(&other[self.below(other.len())..]);
            }
            4 => input.iter_mut().skip(at).take(4).for_each(|byte| *byte = 0xff),
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= match self.next() {
                        bits if bits % 2 == 0 => 1 << (bits >> 8 & 7),
                        bits => (bits >> 8) as u8,
                    };
                }
            }
        }
    }
}
