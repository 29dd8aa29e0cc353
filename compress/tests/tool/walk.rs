//! The workflow of a user: models to an update, to an archive, and back.

use fl_compress::{Archive, Frame};

use super::{Place, bits, layout, program, values};

#[test]
fn models_become_an_update_an_archive_and_a_model_again() {
    let place = Place::new();
    assert_eq!(place.ok("diff old.safetensors new.safetensors delta.safetensors"), "");
    let delta: Vec<f32> = values(2).iter().zip(values(1)).map(|(new, old)| new - old).collect();
    assert_eq!(bits(&place.read_values("delta.safetensors")), bits(&delta));

    let said = place.ok("encode --spec spec.toml --seed 5 --round 3 delta.safetensors out.flz");
    assert!(
        said.starts_with("out.flz: round 3; 3 tensors, 3,031 parameters; frame of"),
        "{said}"
    );
    let bytes = place.read("out.flz");
    let archive = Archive::parse(&bytes).unwrap();
    assert_eq!(archive.layout, layout());
    let frame = Frame::parse(archive.frame, &archive.layout).unwrap();
    assert_eq!((frame.header().round, frame.header().seed), (3, 8));
    let mut decoded = vec![0.0; layout().len()];
    frame.decode(&mut decoded).unwrap();

    assert!(place.ok("inspect out.flz").contains("fc.weight"));
    assert_eq!(place.ok("decode out.flz back.safetensors"), "");
    assert_eq!(bits(&place.read_values("back.safetensors")), bits(&decoded));

    let applied: Vec<f32> = values(1).iter().zip(&decoded).map(|(old, delta)| old + delta).collect();
    for delta in ["out.flz", "back.safetensors"] {
        place.ok(&format!("apply old.safetensors {delta} model.safetensors"));
        assert_eq!(bits(&place.read_values("model.safetensors")), bits(&applied));
    }
    let parts = place.names().into_iter().filter(|name| name.contains("part"));
    assert_eq!(parts.count(), 0, "a side file was left behind");
}

#[test]
fn a_lossless_spec_gives_the_update_back_bit_for_bit() {
    let place = Place::new();
    place.write("exact.toml", b"default = { code = 'rans' }");
    place.ok("encode --spec exact.toml new.safetensors out.flz");
    place.ok("decode out.flz back.safetensors");
    assert_eq!(place.read("back.safetensors"), place.read("new.safetensors"));
}

#[test]
fn the_same_call_writes_the_same_bytes() {
    let place = Place::new();
    place.ok("encode --spec spec.toml --seed 1 new.safetensors a.flz");
    place.ok("encode --spec spec.toml --seed 1 new.safetensors b.flz");
    place.ok("encode --spec spec.toml --seed 2 new.safetensors c.flz");
    assert_eq!(place.read("a.flz"), place.read("b.flz"));
    assert_ne!(place.read("a.flz"), place.read("c.flz"), "rounding is stochastic");
}

#[test]
fn an_output_may_be_the_input_and_a_pipe() {
    let place = Place::new();
    place.ok("diff old.safetensors new.safetensors new.safetensors");
    assert_ne!(bits(&place.read_values("new.safetensors")), bits(&values(2)));
    place.ok("encode --spec spec.toml old.safetensors /dev/null");
}

#[test]
fn a_reader_that_stops_is_no_error() {
    let place = Place::new();
    place.ok("encode --spec spec.toml new.safetensors out.flz");
    for arguments in ["inspect out.flz", "compare --spec spec.toml new.safetensors", "--help"] {
        let mut child = program(&place.path(""), arguments)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), super::stderr(&output).as_str()),
            (Some(0), ""),
            "{arguments}"
        );
    }
}

/// `docs/reference/cli.md` lists the options and commands that the program prints.
#[test]
fn the_command_line_reference_is_what_the_program_prints() {
    crate::help_page::check(env!("CARGO_BIN_EXE_fl-compress"), "fl-compress", &[]);
}
