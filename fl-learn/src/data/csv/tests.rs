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
    DataSet::check(&csv)?;
    csv.keys().relative_to(dir.path());
    DataSet::load(&csv)
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
        (["10", "2", "inf", "1.5"], ["1.5", "10", "2", "inf"]),
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
    assert!(refusal("a,y\n1,nan\n", "target = 'y'").contains("line 2: the target `y` is `nan`; fill it"));
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
        (
            "a,y\n1,0\n,1\n",
            "label = 'y'",
            ["line 3: `a` is empty", "set `missing`"],
        ),
        ("a,y\nNaN,0\n", "label = 'y'", ["line 2: `a` is `NaN`", "set `missing`"]),
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
            ["line 2: label `no` is none of", "the classes are `yes`"],
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
    csv.keys().relative_to(dir.path());
    let error = DataSet::load(&csv).unwrap_err().to_string();
    assert!(error.contains("latin.csv: line 2: not UTF-8"), "{error}");
}

#[test]
fn all_faults_of_a_file_are_listed_up_to_ten_with_each_remedy_once() {
    let text = "a,b,y\nx,1,0\n1,,0\n1,2\n1,1e99,0\nNA,x,\n1,1,0\n";
    let error = refusal(text, "label = 'y'");
    let (_, lines) = error.split_once(": ").unwrap();
    assert_eq!(
        lines,
        "7 faults
  line 2: `a` is `x`, which is no number
  line 3: `b` is empty
  line 4: 2 fields, but the first line has 3
  line 5: `b` is `1e99`, which is not finite as f32
  line 6: `a` is `NA`
  line 6: `b` is `x`, which is no number
  line 6: the label `y` is empty
  -> encode texts as numbers, or leave the column out with `features` or `ignore`
  -> fill the cell, or set `missing` to \"mean\", \"drop\" or a number
  -> complete the row, and quote fields that contain the delimiter
  -> remove or replace it
  -> fill it, or set `missing = \"drop\"`"
    );
    let long = "long text ".repeat(50);
    let many: String = (0..5_000).map(|_| format!("1,{long},0\n")).collect();
    let good = "a,b,y\n1,2,0\n";
    let error = read_both(good, Some(&format!("a,b,y\n{many}")), "label = 'y'").unwrap_err();
    let error = error.to_string();
    assert!(error.contains("held.csv: 5000 faults\n  line 2: `b` is `long text long text long..`"));
    assert!(
        error.contains("\n  line 11: ")
            && !error.contains("line 12")
            && error.contains("\n  and 4990 more\n  -> encode"),
        "{error}"
    );
    let labels: String = (0..12).map(|label| format!("1,2,{}\n", label % 4)).collect();
    let error = refusal(&format!("a,b,y\n{labels}"), "label = 'y'\nclasses = 2");
    assert!(
        error.contains("2 faults\n  line 4: label `2` is none of the classes\n  line 5: label `3`"),
        "{error}"
    );
}

#[test]
fn the_delimiter_that_would_split_the_only_column_is_proposed() {
    for (text, todo) in [
        ("a;b;y\n1;2;0\n", "\";\" would split into 3; set `delimiter = \";\"`"),
        ("a\tb\ty\n1\t2\t0\n", "set `delimiter = \"\\t\"`"),
        ("a|y\n1|0\n", "set `delimiter = \"|\"`"),
    ] {
        let error = refusal(text, "label = 'y'");
        assert!(
            error.contains("train.csv: has one column") && error.contains(todo),
            "{error}"
        );
    }
    assert!(refusal("a,y\n1,0\n", "label = 'y'\ndelimiter = ';'").contains("set `delimiter = \",\"`"));
    let error = read_both("a,y\n1,0\n", Some("a;y\n1;0\n"), "label = 'y'").unwrap_err();
    let todo = "held.csv: has one column, which \";\" would split into 2; write it with \",\", as `file`";
    assert!(error.to_string().contains(todo), "{error}");
}

#[test]
fn missing_cells_become_a_mean_or_a_number_or_drop_their_row() {
    let (train, held) = ("a,b,y\n1,10,0\nNA,20,1\n5, ? ,1\n,null,0\n", "a,b,y\n,40,1\n7,NaN,0\n");
    let read = |missing: &str| read_both(train, Some(held), &format!("label = 'y'\nmissing = {missing}"));
    let data = read("'mean'").unwrap();
    assert_eq!(seen(&data.train).0, [1.0, 10.0, 3.0, 20.0, 5.0, 15.0, 3.0, 15.0]);
    assert_eq!(seen(&data.test).0, [3.0, 40.0, 7.0, 15.0], "means of the training rows");
    let data = read("-1\nstd = 2").unwrap();
    assert_eq!(seen(&data.train).0, [0.5, 5.0, -0.5, 10.0, 2.5, -0.5, -0.5, -0.5]);
    assert_eq!(read("0.5").unwrap().test.len(), 2);
    let first = |text: &str| read_text(text, "label = 'y'\nmissing = 'drop'").map(|data| data.train);
    let data = first("a,y\n1,0\n,1\n3,NA\n4,1\n").unwrap();
    assert_eq!(seen(&data), (vec![1.0, 4.0], vec![0, 1]));
    assert!(
        data.notes()[0].contains("train.csv: 4 rows, 2 dropped"),
        "{:?}",
        data.notes()
    );
    let error = read("'drop'").unwrap_err().to_string();
    assert!(
        error.contains("held.csv: a cell is missing in each of the 2 rows"),
        "{error}"
    );
    // A client's mean is that of its own training rows, on the scale of the model.
    let rows = "a,y\n2,0\n,0\n4,0\n6,0\n";
    let own = |client: u32| {
        let keys = format!("label = 'y'\nmissing = 'mean'\nstd = 2\nclients = 2\nclient = {client}");
        seen(&read_text(rows, &keys).unwrap().train).0
    };
    let all = [own(0), own(1)];
    assert!(all.iter().any(|values| values[0] == values[1]), "{all:?}");
    for (text, more, part) in [
        (
            "a,y\n,0\n",
            "label = 'y'\nmissing = 'mean'",
            "feature 1 is missing in all training rows",
        ),
        (
            "a,y\n1,\n",
            "label = 'y'\nmissing = 'mean'",
            "line 2: the label `y` is empty; fill it",
        ),
        (
            "a,y\n1,NA\n",
            "label = 'y'",
            "line 2: the label `y` is `NA`; set `missing = \"drop\"`, or list the label",
        ),
        (
            "a,y\n1,?\n",
            "target = 'y'\nmissing = 0",
            "line 2: the target `y` is `?`; fill it",
        ),
        (
            "a,y\n1,1\n",
            "target = 'y'\nmissing = nan",
            "`missing` must be a finite number",
        ),
    ] {
        let error = refusal(text, more);
        assert!(error.contains(part), "{error}");
    }
    let listed = read_text("a,y\n1,NA\n", "label = 'y'\nclasses = ['NA', 'EU']").unwrap();
    assert_eq!(listed.train.class_counts(), [1, 0]);
    let error = toml::from_str::<Csv>("file = 'a'\nmissing = 'median'")
        .unwrap_err()
        .to_string();
    assert!(error.contains("expected \"mean\", \"drop\" or a number"), "{error}");
}

#[test]
fn a_column_without_a_name_is_not_a_feature_in_silence() {
    for name in ["", "Unnamed: 0"] {
        let text = format!("{name},a,y\n0,5,1\n1,6,0\n");
        let error = refusal(&text, "label = 'y'");
        let todo = format!("leave it out with `ignore = [{name:?}]`");
        assert!(
            error.contains("row numbers that `to_csv` of pandas writes") && error.contains(&todo),
            "{error}"
        );
        let data = read_text(&text, &format!("label = 'y'\nignore = ['{name}']")).unwrap();
        assert_eq!(seen(&data.train).0, [5.0, 6.0]);
    }
}

#[test]
fn columns_are_noted_with_their_roles_ranges_and_missing_cells() {
    let text = "id,a,b,y\n1,-2,,no\n2,0.5,7,yes\n";
    let data = read_text(text, "label = 'y'\nignore = ['id']\nmissing = 0").unwrap();
    let notes = data.compact().train.notes().to_vec();
    assert!(
        notes[0].ends_with("train.csv: 2 rows, 0 dropped because a cell is missing; label: `y`; ignored: `id`"),
        "{notes:?}"
    );
    let table = [
        "feature  min  max  missing",
        "`a`       -2  0.5        0",
        "`b`        7    7        1",
    ];
    assert_eq!(notes[1..], table);
    let names: Vec<String> = (0..40).map(|at| format!("p{at}")).collect();
    let text = format!("{},y\n{}0\n", names.join(","), "1,".repeat(40));
    let notes = read_text(&text, "label = 'y'").unwrap().train.notes().to_vec();
    assert_eq!(
        (notes.len(), notes[34].as_str()),
        (35, "and 8 more features, 0 cells missing")
    );
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
    csv.keys().relative_to(dir.path());
    let path = dir.path().join("train.csv");
    let try_bytes = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        match DataSet::load(&csv) {
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
    csv.keys().relative_to(dir.path());
    let path = dir.path().join("train.csv.gz");
    fs::write(&path, &packed).unwrap();
    assert_eq!(DataSet::load(&csv).unwrap().train.len(), 4);
    for len in 1..packed.len() {
        fs::write(&path, &packed[..len]).unwrap();
        let error = DataSet::load(&csv).unwrap_err().to_string();
        assert!(error.contains("train.csv.gz"), "{len}: {error}");
    }
}
