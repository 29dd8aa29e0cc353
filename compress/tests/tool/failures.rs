//! Every exit code and its error line.

use fl_compress::{Archive, Layout, weights};

use super::{Place, layout, stderr, values};

#[test]
fn arguments_that_cannot_be_end_with_2() {
    let place = Place::new();
    for (arguments, part) in [
        ("zip", "unrecognized subcommand 'zip'"),
        ("encode new.safetensors out.flz", "--spec <S.toml>"),
        ("encode --spec spec.toml --sed 1 new.safetensors out.flz", "'--seed'"),
        (
            "encode --spec spec.toml --seed x new.safetensors out.flz",
            "invalid value 'x' for '--seed",
        ),
        ("inspect --format html out.flz", "[possible values: text, json]"),
        ("compare new.safetensors", "--spec"),
        ("bench --values 0", "invalid value '0'"),
    ] {
        let error = place.fails(2, arguments);
        assert!(error.contains(part), "{arguments}: {error}");
    }
    let nothing = place.run("");
    assert_eq!(nothing.status.code(), Some(2));
    assert!(stderr(&nothing).contains("Usage: fl-compress <COMMAND>"));
    assert!(place.ok("--help").contains("4  corrupt payload"));
    assert!(place.ok("--version").starts_with("fl-compress "));
}

#[test]
fn a_spec_that_cannot_be_ends_with_2_and_names_key_and_line() {
    let place = Place::new();
    for (text, parts) in [
        ("\ndefualt = {}", ["line 2, column 1", "unknown field `defualt`"]),
        (
            "default = { quantise = 'half' }",
            ["column 13", "unknown field `quantise`"],
        ),
        (
            "default = { quantize = { uniform = 9 } }",
            ["1 to 8 bits, not 9", "uniform = 9"],
        ),
        ("memory = 'momentum'", ["\"momentum\"", "error-feedback"]),
        ("rules = [{ wenn = {}, use = {} }]", ["`wenn`", "line 1"]),
        ("default = {", ["line 1", "typo.toml"]),
        ("[compression.uplink]", ["`compression`", "without that heading"]),
    ] {
        place.write("typo.toml", text.as_bytes());
        for call in ["encode new.safetensors out.flz", "compare new.safetensors", "bench"] {
            let error = place.fails(2, &format!("{call} --spec typo.toml"));
            assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
        }
    }
    let error = place.fails(2, "encode --spec none.toml new.safetensors out.flz");
    assert!(error.contains("spec none.toml: No such file"), "{error}");
    let error = place.fails(2, "encode --spec spec.toml --budget 3cats new.safetensors out.flz");
    assert!(error.contains("--budget 3cats"), "{error}");
}

#[test]
fn an_input_that_is_something_else_ends_with_3_and_is_named() {
    let place = Place::new();
    place.write("text", b"no tensors here");
    let missing = Layout::new([("fc.bias", vec![30]), ("scale", vec![])]).unwrap();
    place.write("missing", &weights::to_safetensors(&missing, &[0.0; 31]).unwrap());
    let shape = Layout::new([("fc.bias", vec![30]), ("fc.weight", vec![100, 30]), ("scale", vec![])]).unwrap();
    place.write("shape", &weights::to_safetensors(&shape, &values(1)).unwrap());
    let mut infinite = values(1);
    infinite[37] = f32::INFINITY;
    place.write_values("infinite", &infinite);
    place.write_values("huge", &vec![3e38; layout().len()]);
    place.write_values("minus", &vec![-3e38; layout().len()]);
    place.ok("encode --spec spec.toml old.safetensors out.flz");
    for (arguments, part) in [
        ("encode --spec spec.toml none out.flz", "none: No such file"),
        (
            "encode --spec spec.toml text out.flz",
            "text: corrupt at byte 0: not a complete safetensors",
        ),
        ("encode --spec spec.toml out.flz o.flz", "out.flz: corrupt"),
        (
            "encode --spec spec.toml infinite out.flz",
            "infinite: not finite: tensor `fc.weight`, value 7",
        ),
        ("compare --spec spec.toml infinite", "tensor `fc.weight`, value 7"),
        (
            "decode old.safetensors out",
            "old.safetensors: not an fl-compress archive",
        ),
        ("inspect text", "text: not an fl-compress archive"),
        (
            "diff old.safetensors missing out",
            "missing: does not match: tensor `fc.weight` is missing",
        ),
        ("diff missing old.safetensors out", "tensor `fc.weight` is not expected"),
        (
            "diff old.safetensors shape out",
            "has shape [100, 30]; [30, 100] is expected",
        ),
        (
            "diff huge minus out",
            "minus: the result is not finite: tensor `fc.bias`, value 0",
        ),
        ("apply huge huge out", "the result is not finite"),
        (
            "apply shape out.flz out",
            "out.flz: does not match: tensor `fc.weight` has shape",
        ),
        ("apply old.safetensors text out", "text: corrupt"),
    ] {
        let error = place.fails(3, arguments);
        assert!(error.contains(part), "{arguments}: {error}");
    }
    assert!(!place.path("out").exists());
}

#[test]
fn an_output_that_cannot_be_written_ends_with_1() {
    let place = Place::new();
    for arguments in [
        "encode --spec spec.toml new.safetensors nowhere/out.flz",
        "diff old.safetensors new.safetensors nowhere/delta",
        "compare --spec spec.toml new.safetensors -o nowhere/report",
    ] {
        assert!(
            place.fails(1, arguments).contains("cannot write nowhere/"),
            "{arguments}"
        );
    }
}

#[test]
fn a_cut_or_changed_archive_ends_with_3_or_4_everywhere() {
    let place = Place::new();
    place.ok("encode --spec spec.toml new.safetensors out.flz");
    let whole = place.read("out.flz");
    let mut broken: Vec<(String, Vec<u8>)> = Vec::new();
    for len in (0..24).chain((24..whole.len()).step_by(61)).chain([whole.len() - 1]) {
        broken.push((format!("{len} bytes"), whole[..len].to_vec()));
    }
    for at in (0..48).chain((48..whole.len()).step_by(37)).chain([whole.len() - 1]) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        broken.push((format!("byte {at}"), bytes));
    }
    for (what, bytes) in broken {
        place.write("broken.flz", &bytes);
        for arguments in ["decode broken.flz out", "inspect broken.flz"] {
            let output = place.run(arguments);
            let code = output.status.code().unwrap();
            assert!(code == 3 || code == 4, "{what}: {code} {}", stderr(&output));
            assert!(
                bytes.starts_with(Archive::MAGIC) || code == 3 || bytes.len() < 4,
                "{what}: {code}"
            );
        }
    }
    assert!(!place.path("out").exists());
}

#[test]
fn an_archive_made_wrong_on_purpose_is_refused_with_file_tensor_and_offset() {
    let place = Place::new();
    place.ok("encode --spec spec.toml new.safetensors out.flz");
    let bytes = place.read("out.flz");
    let archive = Archive::parse(&bytes).unwrap();
    let mut named = 0;
    for at in (6..archive.frame.len() - 4).step_by(7) {
        for flip in [1, 0x80, 0xff] {
            let mut frame = archive.frame.to_vec();
            frame[at] ^= flip;
            let body = frame.len() - 4;
            let checksum = crc32c::crc32c(&frame[..body]);
            frame[body..].copy_from_slice(&checksum.to_le_bytes());
            place.write("made.flz", &Archive::write(&archive.layout, &frame, &[]));
            let output = place.run("decode made.flz out");
            let (code, error) = (output.status.code().unwrap(), stderr(&output));
            assert!([0, 3, 4].contains(&code), "byte {at}: {code} {error}");
            assert!(code == 0 || error.contains("made.flz: "), "{error}");
            named += usize::from(error.contains("tensor `") && error.contains("at byte"));
        }
    }
    assert!(named > 0, "no error named its tensor");
}

#[test]
fn an_input_is_not_replaced_by_its_output_and_a_device_is_not_read_to_its_end() {
    let place = Place::new();
    place.write("exact.toml", b"default = {}");
    place.ok("encode --spec exact.toml new.safetensors out.flz");
    let (input, archive) = (place.read("new.safetensors"), place.read("out.flz"));
    std::fs::hard_link(place.path("new.safetensors"), place.path("link.safetensors")).unwrap();
    for command in [
        "encode --spec exact.toml new.safetensors new.safetensors",
        "encode --spec exact.toml link.safetensors ./new.safetensors",
        "decode out.flz out.flz",
    ] {
        let said = place.fails(2, command);
        assert!(
            said.contains("is the input") && said.contains("name another output file"),
            "{said}"
        );
    }
    assert_eq!((place.read("new.safetensors"), place.read("out.flz")), (input, archive));
    let said = place.fails(3, "encode --spec exact.toml /dev/zero zero.flz");
    assert!(said.contains("/dev/zero: a device"), "{said}");
}
