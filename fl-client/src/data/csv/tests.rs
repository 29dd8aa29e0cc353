use std::fs;

use super::*;

const FLOWERS: &str = "\
id,length,width,species
1,5.1,3.5,setosa
2,7.0,3.2,versicolor
3,6.3,3.3,virginica
4,4.9,3.0,setosa
";

/// Reads `text` as a file with the keys `more`.
fn read_text(text: &str, more: &str) -> Result<ClientData, Error> {
    read_both(text, None, more)
}

fn read_both(text: &str, test: Option<&str>, more: &str) -> Result<ClientData, Error> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("train.csv"), text).unwrap();
    let mut keys = format!("file = 'train.csv'\n{more}\n");
    if let Some(test) = test {
        fs::write(dir.path().join("held.csv"), test).unwrap();
        keys.push_str("test_file = 'held.csv'\n");
    }
    let mut csv: Csv = toml::from_str(&keys).unwrap();
    check(&csv)?;
    relative_to(&mut csv, dir.path());
    load(&csv)
}

fn seen(examples: &super::super::Examples) -> (Vec<f32>, Vec<u32>) {
    let positions: Vec<u32> = (0..examples.len() as u32).collect();
    let batch = examples.batch(&positions);
    (batch.values.numbers().to_vec(), batch.targets.classes().to_vec())
}

fn refusal(text: &str, more: &str) -> String {
    read_text(text, more)
        .map(|data| data.train.len())
        .unwrap_err()
        .to_string()
}

#[test]
fn texts_become_classes_in_sorted_order() {
    let data = read_text(FLOWERS, "label = 'species'\nignore = ['id']").unwrap();
    assert_eq!(data.train.class_names(), ["setosa", "versicolor", "virginica"]);
    assert_eq!(data.train.input(), Input::of_classes([1, 1, 2], 3));
    let (values, labels) = seen(&data.train);
    assert_eq!(values, [5.1, 3.5, 7.0, 3.2, 6.3, 3.3, 4.9, 3.0]);
    assert_eq!(labels, [0, 1, 2, 0]);
}

#[test]
fn labels_that_are_numbers_are_sorted_by_value() {
    for (labels, names) in [
        (["10.0", "2.0", "0.0", "1.0"], ["0.0", "1.0", "2.0", "10.0"]),
        (["-1.5", "-10.5", "1e1", "2.5"], ["-10.5", "-1.5", "2.5", "1e1"]),
        (["10.0", "2.0", "none", "1.0"], ["1.0", "10.0", "2.0", "none"]),
        (["10", "2", "nan", "1.5"], ["1.5", "10", "2", "nan"]),
    ] {
        let rows: String = labels.iter().map(|label| format!("1,{label}\n")).collect();
        let data = read_text(&format!("a,y\n{rows}"), "label = 'y'").unwrap();
        assert_eq!(data.train.class_names(), names);
    }
}

#[test]
fn a_list_of_classes_gives_their_order_and_columns_can_be_chosen() {
    let keys = "label = 'species'\nfeatures = ['width']\nclasses = ['virginica', 'setosa', 'rose', 'versicolor']";
    let data = read_text(FLOWERS, keys).unwrap();
    assert_eq!(data.train.input().classes, 4);
    assert_eq!(seen(&data.train), (vec![3.5, 3.2, 3.3, 3.0], vec![1, 3, 0, 1]));
    assert_eq!(data.train.class_counts(), [1, 2, 0, 1]);
    assert_eq!(data.compact().train.class_names().len(), 4);
}

#[test]
fn integers_are_classes_themselves() {
    let text = "a;b;y\n1;2; 3\n-4;5e-1;0\n";
    let data = read_text(text, "label = 'y'\ndelimiter = ';'").unwrap();
    assert_eq!(seen(&data.train), (vec![1.0, 2.0, -4.0, 0.5], vec![3, 0]));
    assert_eq!((data.train.input().classes, data.train.class_names().len()), (4, 0));
    let data = read_text(
        text,
        "label = 'y'\ndelimiter = ';'\nclasses = 10\nmean = [1, 2]\nstd = 2",
    )
    .unwrap();
    assert_eq!(seen(&data.train).0, [0.0, 0.0, -2.5, -0.75]);
    assert_eq!(data.train.input().classes, 10);
}

#[test]
fn a_column_of_numbers_can_be_predicted() {
    let keys = "target = 'length'\nignore = ['id', 'species']\ntarget_mean = 5.0\ntarget_std = 2.0\nmean = 3.0";
    let data = read_both(FLOWERS, Some(FLOWERS), keys).unwrap();
    assert_eq!(data.train.input(), Input::of_numbers([1, 1, 1], 1));
    for batch in [data.train.batch(&[0, 1, 2, 3]), data.test.batch(&[0, 1, 2, 3])] {
        let near = |have: &[f32], want: [f32; 4]| have.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(near(batch.targets.numbers(), [0.05, 1.0, 0.65, -0.05]), "{batch:?}");
        assert!(near(batch.values.numbers(), [0.5, 0.2, 0.3, 0.0]), "{batch:?}");
    }
    let part = read_text(FLOWERS, &format!("{keys}\nclients = 2\nclient = 1\ntest = 0.5")).unwrap();
    assert_eq!((part.train.len(), part.test.len()), (1, 1));
    for (more, part) in [
        (
            "target = 'length'\nlabel = 'species'",
            "`target` is of numbers; give it or `label`",
        ),
        ("target = 'length'\nclasses = 3", "`classes` are of a `label`"),
        (
            "target = 'length'\nsplit = { dirichlet = 0.5 }",
            "`split` shares out classes, but these examples have none",
        ),
        (
            "target = 'length'\nfeatures = ['length']",
            "`features` has `length`, which is the target",
        ),
        ("target = 'length'\ntarget_std = 0.0", "`target_std` must be"),
        ("target = 'length'\ntarget_mean = nan", "`target_mean` must be"),
        ("label = 'species'\ntarget_std = 2.0", "`target_std` need `target`"),
        (
            "target = 'species'\nignore = ['id']",
            "line 2: `species` is `setosa`, which is no number",
        ),
        (
            "target = 'length'\nignore = ['species']\ntarget_std = 1e-38\ntarget_mean = -1e3",
            "line 2: the number to predict is too large",
        ),
    ] {
        let error = refusal(FLOWERS, more);
        assert!(error.contains(part), "{more}: {error}");
    }
    assert!(refusal("a,y\n1,nan\n", "target = 'y'").contains("`y` is `nan`, which is not finite"));
}

#[test]
fn quotes_white_space_and_a_byte_order_mark_are_understood() {
    let text = "\u{feff}\"a\" , y\r\n 1.5 ,\"two, or\nmore\"\r\n2,one\r\n";
    let data = read_text(text, "label = 'y'").unwrap();
    assert_eq!(data.train.class_names(), ["one", "two, or\nmore"]);
    assert_eq!(seen(&data.train), (vec![1.5, 2.0], vec![1, 0]));
}

#[test]
fn a_test_file_has_the_classes_of_the_training_file() {
    let both = |test: &str, more: &str| read_both(FLOWERS, Some(test), &format!("label = 'species'\n{more}"));
    let data = both("species,width,length,id\nvirginica,1,2,9\n", "ignore = ['id']").unwrap();
    assert_eq!(
        seen(&data.test),
        (vec![2.0, 1.0], vec![2]),
        "columns are found by their names"
    );
    let error = both("species,width,length,id\nrose,1,2,9\n", "ignore = ['id']")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("held.csv: line 2: label `rose` is none of the classes"),
        "{error}"
    );
    let error = both("species,width,id\nsetosa,1,2\n", "features = ['width', 'length']").unwrap_err();
    assert!(
        error.to_string().contains("held.csv: has no column `length`"),
        "{error}"
    );
    let integers = |test: &str| read_both("a,y\n1,0\n2,1\n", Some(test), "label = 'y'");
    assert!(integers("a,y\n1,1\n").is_ok());
    let error = integers("a,y\n1,2\n").unwrap_err().to_string();
    assert!(error.contains("held.csv: line 2: label `2`"), "{error}");
}

#[test]
fn what_cannot_be_read_is_named_with_line_and_column() {
    for (text, more, parts) in [
        ("", "label = 'y'", ["train.csv: is empty", "first line"]),
        ("a,y\n", "label = 'y'", ["has no row", "first line"]),
        ("a,y\n1,0\n", "label = 'z'", ["has no column `z`", "it has `a`, `y`"]),
        ("y\n1\n", "label = 'y'", ["no column of values", "label"]),
        (
            "a,a,y\n1,2,0\n",
            "label = 'y'",
            ["column `a` occurs twice", "first line"],
        ),
        ("a,y\n1,0\nx,1\n", "label = 'y'", ["line 3: `a` is `x`", "no number"]),
        ("a,y\n1,0\n,1\n", "label = 'y'", ["line 3: `a` is empty", "fill it"]),
        ("a,y\nNaN,0\n", "label = 'y'", ["line 2: `a` is `NaN`", "not finite"]),
        ("a,y\n1e99,0\n", "label = 'y'", ["line 2: `a` is `1e99`", "not finite"]),
        (
            "a,y\n1,\n",
            "label = 'y'",
            ["line 2: the label `y` is empty", "fill it"],
        ),
        ("a,y\n1,0\n1,2,3\n", "label = 'y'", ["line 3: 3 fields", "has 2"]),
        ("a,y\n1,-1\n", "label = 'y'", ["line 2: label `-1`", "0 to 255"]),
        ("a,y\n1,0\n2,300\n", "label = 'y'", ["line 3: label `300`", "0 to 255"]),
        (
            "a,y\n1,0\n2,3\n",
            "label = 'y'\nclasses = 3",
            ["line 3: label `3`", "0 to 2"],
        ),
        (
            "a,y\n1,no\n",
            "label = 'y'\nclasses = 3",
            ["line 2: label `no`", "0 to 2"],
        ),
        (
            "a,y\n1,no\n",
            "label = 'y'\nclasses = ['yes']",
            ["line 2: label `no`", "none of the classes `yes`"],
        ),
        (
            "a,b,y\n1,2,0\n",
            "label = 'y'\nshape = [1, 2, 2]",
            ["2 columns of values", "[1, 2, 2]"],
        ),
    ] {
        let error = refusal(text, more);
        assert!(
            parts.iter().all(|part| error.contains(part)),
            "{text:?} {more}: {error}"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("latin.csv");
    fs::write(&path, b"a,y\n1,caf\xe9\n").unwrap();
    let mut csv: Csv = toml::from_str("file = 'latin.csv'\nlabel = 'y'").unwrap();
    relative_to(&mut csv, dir.path());
    let error = load(&csv).unwrap_err().to_string();
    assert!(error.contains("latin.csv: line 2: not UTF-8"), "{error}");
}

#[test]
fn more_classes_than_are_supported_are_refused_where_they_begin() {
    let text: String = (0..300).map(|i| format!("{i},name-{i}\n")).collect();
    let error = refusal(&format!("a,y\n{text}"), "label = 'y'");
    assert!(error.contains("line 258: label `name-256` is the 257th"), "{error}");
    assert!(read_text(&format!("a,y\n{}", &text[..text.find("256,").unwrap()]), "label = 'y'").is_ok());
}

#[test]
fn keys_that_contradict_each_other_are_refused() {
    for (more, key) in [
        ("label = 'species'\nfeatures = ['id']\nignore = ['width']", "ignore"),
        ("label = 'species'\nfeatures = []", "features"),
        ("label = 'species'\nfeatures = ['species']", "features"),
        ("label = 'species'\nfeatures = ['id', 'id']", "features"),
        ("label = 'species'\nignore = ['species']", "ignore"),
        ("label = 'species'\nclasses = 0", "classes"),
        ("label = 'species'\nclasses = -3", "classes"),
        ("label = 'species'\nclasses = []", "classes"),
        ("label = 'species'\nclasses = ['a', 'a']", "classes"),
        ("label = 'species'\ndelimiter = '0'", "delimiter"),
        ("label = 'species'\ndelimiter = 'é'", "delimiter"),
        ("label = 'species'\ntest = 0", "test"),
        ("label = 'species'\nstd = [1, -1]", "std"),
    ] {
        let error = read_text(FLOWERS, more).map(|data| data.train.len()).unwrap_err();
        assert!(
            matches!(error, Error::Config { key: found, .. } if found == key),
            "{more}: {error}"
        );
    }
}

#[test]
fn a_file_changed_or_cut_short_anywhere_is_read_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut csv: Csv = toml::from_str("file = 'train.csv'\nlabel = 'species'\nignore = ['id']").unwrap();
    relative_to(&mut csv, dir.path());
    let path = dir.path().join("train.csv");
    let try_bytes = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        match load(&csv) {
            Ok(data) => assert!((1..=5).contains(&data.train.len()), "{}", data.train.len()),
            Err(error) => assert!(error.to_string().contains("train.csv"), "{error}"),
        }
    };
    let whole = FLOWERS.as_bytes();
    for at in 0..whole.len() {
        try_bytes(&whole[..at]);
        for value in [0, 0xff, b'"', b',', b'\n', b'\r', whole[at] ^ 1] {
            let mut changed = whole.to_vec();
            changed[at] = value;
            try_bytes(&changed);
        }
    }
}

#[test]
fn a_compressed_file_is_read_and_its_damage_is_named() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(FLOWERS.as_bytes()).unwrap();
    let packed = gzip.finish().unwrap();
    let mut csv: Csv = toml::from_str("file = 'train.csv'\nlabel = 'species'").unwrap();
    relative_to(&mut csv, dir.path());
    let path = dir.path().join("train.csv.gz");
    fs::write(&path, &packed).unwrap();
    assert_eq!(load(&csv).unwrap().train.len(), 4);
    for len in 1..packed.len() {
        fs::write(&path, &packed[..len]).unwrap();
        let error = load(&csv).unwrap_err().to_string();
        assert!(error.contains("train.csv.gz"), "{len}: {error}");
    }
}
