use std::fs;

use proptest::prelude::*;

use super::super::batch::IGNORED;
use super::super::input::Target;
use super::super::source::DataSource;
use super::*;

/// The set of a folder with the file `train.txt` and the further keys `keys`.
fn keys(dir: &Path, keys: &str) -> Text {
    let mut text: Text = toml::from_str(&format!("file = 'train.txt'\n{keys}")).unwrap();
    text.keys().relative_to(dir);
    text
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

/// The tokens that a client is given and those that it is to predict, without those that fill up.
fn seen(data: &super::super::Examples) -> (Vec<u32>, Vec<u32>) {
    let positions: Vec<u32> = (0..data.len() as u32).collect();
    let batch = data.batch(&positions);
    let pairs = batch.values.tokens().iter().zip(batch.targets.classes());
    pairs.filter(|(_, wanted)| **wanted != IGNORED).unzip()
}

proptest! {
    #[test]
    fn every_token_but_the_first_is_predicted_once_by_one_client(
        text in "[a-f \n]{40,200}", clients in 1u32..4, length in 1u32..12, words: bool
    ) {
        let dir = folder(&[("train.txt", &text)]);
        let vocabulary = if words { "words" } else { "characters" };
        let set = keys(dir.path(), &format!("length = {length}\nvocabulary = '{vocabulary}'"));
        let whole = seen(&DataSet::load(&set).unwrap().train);
        // Shifted by one.
        prop_assert_eq!(&whole.0[1..], &whole.1[..whole.1.len() - 1]);
        let (mut given, mut wanted) = (Vec::new(), Vec::new());
        for client in 0..clients {
            let Ok(data) = DataSet::load(&Text { client, clients, ..set.clone() }) else {
                // Fewer examples than clients.
                return Ok(());
            };
            prop_assert_eq!(data.train.input(), DataSet::load(&set).unwrap().train.input());
            let own = seen(&data.compact().train);
            given.extend(own.0);
            wanted.extend(own.1);
        }
        prop_assert_eq!((given, wanted), whole);
    }
}

#[test]
fn a_held_out_text_has_the_vocabulary_of_the_text_to_train_on() {
    let dir = folder(&[("train.txt", "a b c a\n"), ("test.txt", "c d\nb\n")]);
    for client in 0..2 {
        let set = keys(dir.path(), "vocabulary = 'words'\ntest_file = 'test.txt'\nlength = 2");
        let data = DataSet::load(&Text {
            client,
            clients: 2,
            ..set.clone()
        })
        .unwrap();
        assert_eq!(data.train.class_names(), ["a", "<eos>", "b", "c", "<unk>"]);
        assert_eq!(data.test.class_names(), data.train.class_names());
        assert_eq!(
            (data.train.input().classes, data.train.input().target),
            (5, Target::NextToken)
        );
        let (given, wanted) = seen(&data.test);
        let want = [(vec![3, 4], vec![4, 1]), (vec![1, 2], vec![2, 1])];
        assert_eq!((given, wanted), want[client as usize]);
        assert_eq!(data.test.targets(), 2);
    }
}

#[test]
fn a_byte_order_mark_is_no_token() {
    let words = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "the": 1, "cat": 2}, "unk_token": "<unk>"}}"#;
    for vocabulary in [
        "'bytes'",
        "'characters'",
        "'words'",
        "{ file = 'words.txt' }",
        "{ tokenizer = 'words.json' }",
    ] {
        let seen = |mark: &str| {
            let marked = |text: &str| format!("{mark}{text}");
            let dir = tempfile::tempdir().unwrap();
            for (name, text) in [
                ("train.txt", "the cat sat\n the cat\n"),
                ("test.txt", "cat sat the\n"),
                ("words.txt", "the\r\ncat\r\n"),
                ("words.json", words),
            ] {
                fs::write(dir.path().join(name), marked(text)).unwrap();
            }
            let set = keys(
                dir.path(),
                &format!("vocabulary = {vocabulary}\ntest_file = 'test.txt'\nlength = 4"),
            );
            let data = DataSet::load(&set).unwrap();
            (seen(&data.train), seen(&data.test), data.train.class_names().to_vec())
        };
        assert_eq!(seen("\u{feff}"), seen(""), "{vocabulary}");
    }
}

#[test]
fn a_text_in_utf_16_is_named_and_to_be_converted() {
    for (mark, vocabulary) in [
        (b"\xff\xfe", "bytes"),
        (b"\xfe\xff", "words"),
        (b"\xff\xfe", "characters"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("train.txt"), [&mark[..], b"a\0b\0"].concat()).unwrap();
        let why = DataSet::load(&keys(dir.path(), &format!("vocabulary = '{vocabulary}'")));
        let why = why.unwrap_err().to_string();
        assert!(
            why.contains("train.txt: is UTF-16") && why.contains("convert the file to UTF-8"),
            "{why}"
        );
    }
}

#[test]
fn the_end_of_a_clients_stretch_is_held_out() {
    let text: String = (0..=200).map(|at| char::from(b'a' + (at * 7 % 26) as u8)).collect();
    let dir = folder(&[("train.txt", &text)]);
    let set = keys(dir.path(), "test = 0.2\nlength = 10");
    for client in 0..2 {
        let data = DataSet::load(&Text {
            client,
            clients: 2,
            ..set.clone()
        })
        .unwrap();
        assert_eq!((data.train.len(), data.test.len()), (8, 2));
        let (train, test) = (data.train.indices(), data.test.indices());
        assert_eq!(train.last().unwrap() + 1, test[0]);
    }
}

#[test]
fn counts_are_those_of_the_tokens_to_predict() {
    let dir = folder(&[("train.txt", "abcabb")]);
    let data = DataSet::load(&keys(dir.path(), "vocabulary = 'characters'\nlength = 4")).unwrap();
    assert_eq!(data.train.class_counts(), [1, 3, 1]);
    assert_eq!((data.train.len(), data.train.targets()), (2, 5));
}

#[test]
fn keys_out_of_range_and_bad_files_are_refused() {
    let dir = folder(&[
        ("train.txt", "a b c\nd e f\n"),
        ("one.txt", "a"),
        ("empty.txt", ""),
        ("odd.txt", "a q\nz"),
    ]);
    for (more, part) in [
        ("length = 0", "`length` is 0, but must be 1 to 65535"),
        ("length = 65536", "`length` is 65536"),
        ("vocabulary_size = 10", "`vocabulary_size` needs"),
        (
            "vocabulary = 'words'\nvocabulary_size = 1",
            "`vocabulary_size` is 1, but must be 2",
        ),
        (
            "vocabulary = 'words'\nvocabulary_size = 2000000",
            "must be 2 to 1048576",
        ),
        ("test = 0.1\ntest_file = 'odd.txt'", "`test`"),
        (
            "split = { dirichlet = 0.5 }",
            "`split` shares out classes, but a text has none",
        ),
        ("split = { by-label = 2 }", "`split` shares out classes"),
        ("client = 2\nclients = 2", "`client` is 2"),
        ("clients = 900", "`clients` is 900, more than the 1 examples"),
        ("file = 'none.txt'", "none.txt: no such file; `file` names it"),
        ("file = 'one.txt'", "one.txt: has 1 tokens"),
        (
            "file = 'empty.txt'\nvocabulary = 'characters'",
            "empty.txt: has 0 tokens",
        ),
        ("test_file = 'none.txt'", "`test_file` names it"),
        (
            "vocabulary = 'characters'\ntest_file = 'odd.txt'",
            "odd.txt: line 1: the character 'q'",
        ),
        ("vocabulary = { file = 'none.txt' }", "`vocabulary.file` names it"),
    ] {
        let more = if more.contains("file = '") && more.starts_with("file") {
            more.to_owned()
        } else {
            format!("file = 'train.txt'\n{more}")
        };
        let mut text: Text = toml::from_str(&more).unwrap();
        text.keys().relative_to(dir.path());
        let error = DataSet::check(&text)
            .and_then(|()| DataSet::load(&text))
            .map(|data| data.train.len())
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{more}: {error}");
    }
    assert!(toml::from_str::<Text>("file = 'a'\nvocabulary = 'syllables'").is_err());
    assert!(toml::from_str::<Text>("file = 'a'\nlenght = 3").is_err());
}

/// The client's part of a text of `../shared/data/text`, if this machine has it.
fn real(name: &str, keys: &str) -> Option<ClientData> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/data/text")
        .join(name);
    if !dir.is_dir() {
        eprintln!("skipped: {} is not on this machine", dir.display());
        return None;
    }
    #[derive(serde::Deserialize)]
    struct Client {
        data: DataSource,
    }
    let mut source = toml::from_str::<Client>(&format!("[data.text]\n{keys}")).unwrap().data;
    source.relative_to(&dir);
    Some(source.load().unwrap())
}

#[test]
fn penn_treebank_has_its_known_size() {
    let Some(data) = real(
        "ptb",
        "file = 'ptb.train.txt'\ntest_file = 'ptb.valid.txt'\nvocabulary = 'words'",
    ) else {
        return;
    };
    assert_eq!(
        (data.train.input().classes, data.train.targets() + 1),
        (10_000, 929_589)
    );
    assert_eq!(data.test.targets() + 1, 73_760);
    assert_eq!(data.train.class_names()[..3], ["the", "<unk>", "<eos>"]);
}

#[test]
fn wikitext_2_has_its_known_size() {
    let Some(data) = real(
        "wikitext-2",
        "file = 'train.txt'\ntest_file = 'test.txt'\nvocabulary = 'words'",
    ) else {
        return;
    };
    assert_eq!(
        (data.train.input().classes, data.train.targets() + 1),
        (33_278, 2_088_628)
    );
    assert_eq!(data.test.targets() + 1, 245_569);
}

#[test]
fn tiny_shakespeare_has_65_characters() {
    let Some(data) = real(
        "tinyshakespeare",
        "file = 'input.txt'\nvocabulary = 'characters'\nclients = 10\nclient = 9",
    ) else {
        return;
    };
    assert_eq!(data.train.input().classes, 65);
    assert!(
        (111_400..111_600).contains(&data.train.targets()),
        "{}",
        data.train.targets()
    );
}
