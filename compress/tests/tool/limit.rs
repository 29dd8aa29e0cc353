//! The limit on declared values, and the memory of decoding.

use std::process::Command;
use std::sync::Arc;

use fl_compress::{Archive, Encoder, FrameHeader, FrameKind, Layout, Spec};

use super::{Place, stderr};

const HEADER: FrameHeader = FrameHeader {
    kind: FrameKind::Update,
    round: 0,
    seed: 0,
};

/// An archive of zeros, at two bytes per tensor of any shape: the frame is made for a small layout, then `declared`
/// replaces it.
fn zeros(declared: &[(&str, Vec<usize>)]) -> Vec<u8> {
    let small = declared.iter().map(|(name, shape)| (*name, vec![1; shape.len()]));
    let small = Arc::new(Layout::new(small).unwrap());
    let spec: Spec = toml::from_str("default = { reduce = { top_k = 0.5 } }").unwrap();
    let mut encoder = Encoder::new(Arc::clone(&small), &spec).unwrap();
    let mut frame = encoder.encode(&mut vec![0.0; small.len()], HEADER).unwrap().frame;
    let layout = Layout::new(declared.iter().cloned()).unwrap();
    frame[8..16].copy_from_slice(&layout.fingerprint().to_le_bytes());
    let body = frame.len() - 4;
    let checksum = crc32c::crc32c(&frame[..body]);
    frame[body..].copy_from_slice(&checksum.to_le_bytes());
    Archive::write(&layout, &frame, &[])
}

#[test]
fn a_few_bytes_that_declare_billions_of_values_end_with_4_and_name_the_limit() {
    let place = Place::new();
    // 2^32 - 1 values, the maximum of the format: 16 GiB of zeros.
    let bomb = zeros(&[("w", vec![65_535, 65_537])]);
    assert!(bomb.len() <= 62, "{}", bomb.len());
    place.write("bomb.flz", &bomb);
    for (command, rest) in [("decode", "out"), ("inspect", ""), ("apply old.safetensors", "out")] {
        let error = place.fails(4, &format!("{command} --max-values 1000000000 bomb.flz {rest}"));
        for part in [
            "bomb.flz: the archive declares 4,294,967,295 values",
            "tensor `w`, shape [65535, 65537]",
            "more than the 1,000,000,000 of --max-values",
        ] {
            assert!(error.contains(part), "{command}: {error}");
        }
    }
    let help = place.ok("decode --help");
    assert!(
        help.contains("an eighth of this machine's memory") && help.contains("[default: "),
        "{help}"
    );
    // The limit is inclusive.
    place.write("ten.flz", &zeros(&[("a", vec![4]), ("b", vec![2, 3])]));
    assert!(
        place
            .fails(4, "decode --max-values 9 ten.flz out")
            .contains("declares 10 values")
    );
    assert!(!place.path("out").exists());
    place.ok("decode --max-values 10 ten.flz out");
}

/// Decodes sixteen tensors of 4 MiB in a child with less address space than all of them need.
#[test]
fn decoding_needs_the_memory_of_one_tensor() {
    let place = Place::new();
    let names: Vec<String> = (0..16).map(|at| format!("layer.{at:02}")).collect();
    let tensors: Vec<(&str, Vec<usize>)> = names.iter().map(|name| (name.as_str(), vec![1024, 1024])).collect();
    place.write("wide.flz", &zeros(&tensors));
    let run = |kib: u32| {
        let script = format!(
            "ulimit -v {kib}; exec {} decode wide.flz out",
            env!("CARGO_BIN_EXE_fl-compress")
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(place.path(""));
        shell.output().unwrap()
    };
    let output = run(48 << 10);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(place.read("out").len() > 64 << 20);
    // A failed allocation is an error, not an abort.
    place.write("wide.flz", &zeros(&[("w", vec![32 << 10, 1 << 10])]));
    let output = run(48 << 10);
    let error = stderr(&output);
    assert_eq!(output.status.code(), Some(4), "{error}");
    assert!(
        error.contains("cannot allocate memory for the 33554432 values of a tensor"),
        "{error}"
    );
}
