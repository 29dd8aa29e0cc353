use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;
use crate::data::Split;

/// Files that numpy has written: `tests/fixtures/data/make.py`.
fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/data")
}

fn keys(dir: &Path, x: &str, y: &str) -> Arrays {
    let text = format!("dir = '{}'\nx = '{x}'\ny = '{y}'", dir.display());
    toml::from_str(&text).unwrap()
}

/// All values and labels that a model sees, in order.
fn seen(data: &ClientData) -> (Vec<f32>, Vec<u32>) {
    let positions: Vec<u32> = (0..data.train.len() as u32).collect();
    let batch = data.train.batch(&positions);
    (batch.values.numbers().to_vec(), batch.targets.classes().to_vec())
}

fn refused(arrays: &Arrays) -> String {
    let checked = DataSet::check(arrays).and_then(|()| DataSet::load(arrays));
    checked.map(|data| data.train.len()).unwrap_err().to_string()
}

const LABELS: [u32; 6] = [0, 2, 1, 1, 0, 2];

#[test]
fn every_type_and_version_that_numpy_writes_is_read() {
    let numbers = |f: &dyn Fn(f32) -> f32| (0..24).map(|i| f(i as f32)).collect::<Vec<f32>>();
    let (part, whole) = (numbers(&|i| (i - 5.0) / 4.0), numbers(&|i| i));
    let third = numbers(&|i| f32::from(u8::from(i % 3.0 == 0.0)));
    let bytes = numbers(&|i| i / 255.0);
    for (names, values) in [
        (&["f2", "f4", "f8", "version2", "version3"][..], &part),
        (&["i1", "u2", "i2", "u4", "i4", "u8", "i8"], &whole),
        (&["b1"], &third),
        (&["u1"], &bytes),
    ] {
        for name in names {
            for y in ["u1", "i2", "i4", "i8", "u8"] {
                let arrays = keys(
                    &golden().join("npy"),
                    &format!("{name}.npy"),
                    &format!("labels_{y}.npy"),
                );
                let data = DataSet::load(&arrays).unwrap();
                assert_eq!(data.train.input().shape, [1, 1, 4], "{name}");
                assert_eq!((data.train.input().classes, data.test.len()), (3, 0));
                let (have, labels) = seen(&data);
                assert!(
                    have.iter().zip(values).all(|(a, b)| (a - b).abs() < 1e-6),
                    "{name}: {have:?}"
                );
                assert_eq!((have.len(), labels.as_slice()), (24, &LABELS[..]), "{name} {y}");
            }
        }
    }
    let column = DataSet::load(&keys(&golden().join("npy"), "f4.npy", "labels_column.npy")).unwrap();
    assert_eq!(seen(&column), (part, LABELS.to_vec()));
}

#[test]
fn tensors_of_one_safetensors_file_are_read() {
    let part: Vec<f32> = (0..24).map(|i| (i as f32 - 5.0) / 4.0).collect();
    for x in ["x", "half"] {
        let (x, y) = (format!("set.safetensors:{x}"), "set.safetensors:y");
        assert_eq!(
            seen(&DataSet::load(&keys(&golden(), &x, y)).unwrap()),
            (part.clone(), LABELS.to_vec())
        );
    }
    let mixed = keys(&golden(), "npy/f4.npy", "set.safetensors:y");
    assert_eq!(seen(&DataSet::load(&mixed).unwrap()), (part, LABELS.to_vec()));
    for (x, part) in [
        (
            "set.safetensors:images",
            "has no tensor `images`; it has `half`, `x`, `y`",
        ),
        ("set.safetensors", "`x` names a file of several tensors"),
        ("none.safetensors:x", "none.safetensors: no such file; `x` names it"),
    ] {
        let error = refused(&keys(&golden(), x, "set.safetensors:y"));
        assert!(error.contains(part), "{x}: {error}");
    }
}

#[test]
fn arrays_that_cannot_be_examples_are_refused_with_what_to_do() {
    let npy = golden().join("npy");
    for (x, part) in [
        ("fortran", "ascontiguousarray"),
        ("big_endian", "little-endian"),
        ("object", "`|O` is not supported"),
        ("fields", "named fields"),
        ("complex", "`<c8` is not supported"),
        ("scalar", "single number"),
        ("empty", "no example"),
        ("none", "none.npy: no such file; `x` names it"),
    ] {
        let error = refused(&keys(&npy, &format!("{x}.npy"), "labels_i8.npy"));
        assert!(
            error.contains(part) && error.contains(&format!("{x}.npy")),
            "{x}: {error}"
        );
    }
    let error = refused(&keys(&npy, "f4.npy", "f4.npy"));
    assert!(error.contains("labels must be integers"), "{error}");
    let error = refused(&keys(&npy, "f4.npy", "i8.npy"));
    assert!(
        error.contains("i8.npy: has the shape [6, 4]") && error.contains("each of the 6"),
        "{error}"
    );
}

/// A npy file of `version`, as numpy writes it, except for the padding.
fn npy_file(version: u8, descr: &str, shape: &[u64], data: &[u8]) -> Vec<u8> {
    let extents: String = shape.iter().map(|extent| format!("{extent}, ")).collect();
    let text = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}\n",
        extents.trim_end()
    );
    let mut bytes = b"\x93NUMPY".to_vec();
    bytes.extend([version, 0]);
    match version {
        1 => bytes.extend((text.len() as u16).to_le_bytes()),
        _ => bytes.extend((text.len() as u32).to_le_bytes()),
    }
    bytes.extend(text.bytes());
    bytes.extend(data);
    bytes
}

fn f32_file(shape: &[u64], values: &[f32]) -> Vec<u8> {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    npy_file(1, "<f4", shape, &data)
}

fn label_file(labels: &[i64]) -> Vec<u8> {
    let data: Vec<u8> = labels.iter().flat_map(|label| label.to_le_bytes()).collect();
    npy_file(1, "<i8", &[labels.len() as u64], &data)
}

/// A folder with `x.npy` and `y.npy`.
fn folder(x: &[u8], y: &[u8]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("x.npy"), x).unwrap();
    fs::write(dir.path().join("y.npy"), y).unwrap();
    dir
}

proptest! {
    #[test]
    fn any_array_comes_back_as_it_was_written(
        version in 1u8..=3, examples in 1usize..20, channels in 1usize..4, width in 1usize..6, bits in any::<u64>(), kind in 0u8..4
    ) {
        let len = examples * channels * width;
        let mut rng = crate::data::Rng::new(bits);
        let values: Vec<f32> = (0..len).map(|_| (rng.between(-1e4, 1e4) as f32).round() / 8.0).collect();
        let (descr, data): (&str, Vec<u8>) = match kind {
            0 => ("<f4", values.iter().flat_map(|v| v.to_le_bytes()).collect()),
            1 => ("<f8", values.iter().flat_map(|v| f64::from(*v).to_le_bytes()).collect()),
            2 => ("<i4", values.iter().flat_map(|v| (*v as i32).to_le_bytes()).collect()),
            _ => ("<i8", values.iter().flat_map(|v| (*v as i64).to_le_bytes()).collect()),
        };
        let want: Vec<f32> = values.iter().map(|v| if kind < 2 { *v } else { v.trunc() }).collect();
        let labels: Vec<i64> = (0..examples).map(|_| rng.below(7) as i64).collect();
        let shape = [examples as u64, channels as u64, width as u64];
        let dir = folder(&npy_file(version, descr, &shape, &data), &label_file(&labels));
        let data = DataSet::load(&Arrays { shape: Some([channels, 1, width]), ..keys(dir.path(), "x.npy", "y.npy") }).unwrap();
        prop_assert_eq!(data.train.input().shape, [channels, 1, width]);
        let (have, classes) = seen(&data);
        prop_assert_eq!(have, want);
        prop_assert!(classes.iter().zip(&labels).all(|(a, b)| i64::from(*a) == *b));
    }
}

#[test]
fn a_file_cut_short_or_changed_anywhere_is_read_or_refused() {
    let values: Vec<f32> = (0..24).map(|i| i as f32 / 8.0).collect();
    let (x, y) = (f32_file(&[6, 4], &values), label_file(&[0, 2, 1, 1, 0, 2]));
    let tensors = fs::read(golden().join("set.safetensors")).unwrap();
    let dir = folder(&x, &y);
    fs::write(dir.path().join("t.safetensors"), &tensors).unwrap();
    let npy = keys(dir.path(), "x.npy", "y.npy");
    let safetensors = keys(dir.path(), "t.safetensors:x", "t.safetensors:y");
    let mut read = 0;
    for (name, whole, arrays) in [
        ("x.npy", &x, &npy),
        ("y.npy", &y, &npy),
        ("t.safetensors", &tensors, &safetensors),
    ] {
        let path = dir.path().join(name);
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            let error = refused(arrays);
            assert!(error.contains(name), "{len}: {error}");
        }
        for at in 0..whole.len() {
            for value in [0, 0xff, b'9', b'(', whole[at] ^ 1, whole[at] ^ 0x80] {
                let mut changed = whole.clone();
                changed[at] = value;
                fs::write(&path, &changed).unwrap();
                match DataSet::load(arrays) {
                    Ok(data) => {
                        assert_eq!(data.train.len(), 6, "{name} {at} {value}");
                        read += 1;
                    }
                    Err(error) => assert!(error.to_string().contains(name), "{at} {value}: {error}"),
                }
            }
        }
        fs::write(&path, whole).unwrap();
        assert!(DataSet::load(arrays).is_ok());
    }
    assert!(read > 500, "most changes of values are not noticed: {read}");
}

#[test]
fn a_shape_of_long_integers_of_python_2_is_read() {
    let values: Vec<f32> = (0..24).map(|i| i as f32 / 8.0).collect();
    let (x, y) = (f32_file(&[6, 4], &values), label_file(&[0, 2, 1, 1, 0, 2]));
    // numpy of Python 2 wrote shapes so where an extent was a `long`.
    let longs = |shape: &str, long: &str, file: &[u8]| {
        let at = file
            .windows(shape.len())
            .position(|part| part == shape.as_bytes())
            .unwrap();
        let mut bytes = [&file[..at], long.as_bytes(), &file[at + shape.len()..]].concat();
        bytes[8] += (long.len() - shape.len()) as u8;
        bytes
    };
    let dir = folder(&longs("(6, 4,)", "(6L, 4L)", &x), &longs("(6,)", "(6L,)", &y));
    let read = DataSet::load(&keys(dir.path(), "x.npy", "y.npy")).unwrap();
    let plain = folder(&x, &y);
    assert_eq!(
        seen(&read),
        seen(&DataSet::load(&keys(plain.path(), "x.npy", "y.npy")).unwrap())
    );
    for wrong in ["(6l, 4)", "(6LL, 4)", "(L6, 4)", "(6 L, 4)"] {
        let dir = folder(&longs("(6, 4,)", wrong, &x), &y);
        let error = refused(&keys(dir.path(), "x.npy", "y.npy"));
        assert!(error.contains("npy header"), "{wrong}: {error}");
    }
}

#[test]
fn absurd_sizes_are_refused_before_anything_is_allocated() {
    let labels = label_file(&[0]);
    for shape in [&[1u64 << 31, 1 << 27][..], &[u64::MAX, 2], &[1 << 62, 4], &[1 << 30]] {
        let dir = folder(&npy_file(1, "<f8", shape, &[0; 64]), &labels);
        refused(&keys(dir.path(), "x.npy", "y.npy"));
        // As many labels as are declared, so that the values are read.
        let many = folder(
            &npy_file(1, "<f4", &[1 << 30], &[0; 64]),
            &npy_file(2, "|u1", &[1 << 30], &[0; 64]),
        );
        let error = refused(&keys(many.path(), "x.npy", "y.npy"));
        assert!(error.contains("expected 1073741824 bytes"), "{error}");
    }
    let mut long = npy_file(2, "<f4", &[1], &[0; 4]);
    long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let dir = folder(&long, &labels);
    assert!(refused(&keys(dir.path(), "x.npy", "y.npy")).contains("at most"));
}

#[test]
fn lengths_labels_and_values_that_do_not_suit_are_named_with_their_row() {
    let good = [0.5f32; 24];
    let refusal = |values: &[f32], labels: &[i64], more: &str| {
        let dir = folder(&f32_file(&[6, 4], values), &label_file(labels));
        let text = format!("dir = '{}'\nx = 'x.npy'\ny = 'y.npy'\n{more}", dir.path().display());
        refused(&toml::from_str(&text).unwrap())
    };
    let labels = [0, 2, 1, 1, 0, 2];
    for (values, labels, more, parts) in [
        (
            good,
            &labels[..5],
            "",
            ["y.npy: has the shape [5]", "each of the 6 examples"],
        ),
        (good, &[0, 2, 1, 1, 0, -1], "", ["y.npy: row 5: label -1", "0 to 255"]),
        (good, &[0, 256, 1, 1, 0, 0], "", ["y.npy: row 1: label 256", "0 to 255"]),
        (
            good,
            &labels,
            "classes = 2",
            ["y.npy: row 1: label 2", "`classes` is 2"],
        ),
        (
            good,
            &labels,
            "shape = [1, 2, 3]",
            ["x.npy: has examples of the shape [4]", "is 6"],
        ),
        (
            good,
            &labels,
            "mean = [1, 2, 3]",
            ["`mean` has 3 numbers", "or 4, one for each value"],
        ),
    ] {
        let error = refusal(&values, labels, more);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    for (bad, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let mut values = good;
        values[4 * 3 + 2] = bad;
        let error = refusal(&values, &labels, "");
        assert!(error.contains(&format!("x.npy: row 3, value 2 is {shown}")), "{error}");
    }
}

#[test]
fn keys_that_contradict_each_other_are_refused() {
    let parse = |more: &str| {
        toml::from_str::<Arrays>(&format!("x = 'x.npy'\ny = 'y.npy'\n{more}"))
            .unwrap()
            .check()
    };
    for (more, key) in [
        ("test_x = 'a.npy'", "test_x"),
        ("test_y = 'a.npy'", "test_y"),
        ("test_x = 'a.npy'\ntest_y = 'b.npy'\ntest = 0.1", "test"),
        ("test = 1.5", "test"),
        ("classes = 0", "classes"),
        ("classes = 257", "classes"),
        ("shape = [0, 1, 1]", "shape"),
        ("std = 0", "std"),
        ("client = 2\nclients = 2", "client"),
        ("limit = 0", "limit"),
        ("split = { plain-dirichlet = -1.0 }", "split.plain-dirichlet"),
    ] {
        let error = parse(more).unwrap_err();
        assert!(
            matches!(error, Error::Config { key: found, .. } if found == key),
            "{more}: {error}"
        );
    }
    assert!(parse("").is_ok());
    assert!(toml::from_str::<Arrays>("x = 'x.npy'\ny = 'y.npy'\nz = 1").is_err());
}

#[test]
fn a_test_set_has_the_shape_and_the_classes_of_the_training_set() {
    let dir = folder(&f32_file(&[3, 2], &[0.0; 6]), &label_file(&[0, 1, 2]));
    let write = |name: &str, bytes: Vec<u8>| fs::write(dir.path().join(name), bytes).unwrap();
    write("wide.npy", f32_file(&[1, 3], &[0.0; 3]));
    write("one.npy", f32_file(&[1, 2], &[0.0; 2]));
    write("zero.npy", label_file(&[0]));
    write("three.npy", label_file(&[3]));
    let with = |x: &str, y: &str| Arrays {
        test_x: Some(x.to_owned()),
        test_y: Some(y.to_owned()),
        ..keys(dir.path(), "x.npy", "y.npy")
    };
    let data = DataSet::load(&with("one.npy", "zero.npy")).unwrap();
    assert_eq!((data.test.len(), data.test.input()), (1, data.train.input()));
    let error = refused(&with("wide.npy", "zero.npy"));
    assert!(
        error.contains("wide.npy: has examples of the shape [1, 1, 3]"),
        "{error}"
    );
    let error = refused(&with("one.npy", "three.npy"));
    assert!(
        error.contains("three.npy: row 0: label 3; those to train on are 0 to 2"),
        "{error}"
    );
}

#[test]
fn channels_last_become_channels_first() {
    let values: Vec<u8> = (0..2 * 5 * 6 * 3).map(|i| i as u8).collect();
    let file = npy_file(1, "|u1", &[2, 5, 6, 3], &values);
    let dir = folder(&file, &label_file(&[0, 1]));
    let arrays = keys(dir.path(), "x.npy", "y.npy");
    assert!(refused(&arrays).contains("`order`"));
    let data = DataSet::load(&Arrays {
        order: Some(Order::Hwc),
        mean: Some(vec![0.0, 0.5, 0.0].into()),
        std: Some(vec![1.0].into()),
        ..arrays
    })
    .unwrap();
    assert_eq!(data.train.input().shape, [3, 5, 6]);
    let (have, _) = seen(&data);
    for example in 0..2 {
        for channel in 0..3 {
            for pixel in 0..30 {
                let byte = values[example * 90 + pixel * 3 + channel];
                let want = f32::from(byte) / 255.0 - if channel == 1 { 0.5 } else { 0.0 };
                let found = have[example * 90 + channel * 30 + pixel];
                assert!((found - want).abs() < 1e-6, "{example} {channel} {pixel}");
            }
        }
    }
}

#[test]
fn clients_share_arrays_and_hold_out_a_share_each() {
    let values: Vec<f32> = (0..200).map(|i| i as f32).collect();
    let labels: Vec<i64> = (0..100).map(|i| i % 4).collect();
    let dir = folder(&f32_file(&[100, 2], &values), &label_file(&labels));
    let arrays = Arrays {
        split: Split::PlainDirichlet(0.5),
        test: Some(0.2),
        ..keys(dir.path(), "x.npy", "y.npy")
    };
    let mut all = Vec::new();
    for client in 0..4 {
        let data = DataSet::load(&Arrays {
            client,
            clients: 4,
            ..arrays.clone()
        })
        .unwrap();
        let (train, test) = (data.train.indices(), data.test.indices());
        assert_eq!(test.len(), ((train.len() + test.len()) as f64 * 0.2).round() as usize);
        all.extend_from_slice(train);
        all.extend_from_slice(test);
    }
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
}
