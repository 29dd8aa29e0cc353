use std::collections::BTreeSet;
use std::fs;

use proptest::prelude::*;

use super::super::batch::IGNORED;
use super::*;

const PLAY: &str = "A:\nto be, or not to be.\n\nB:\nthat is the question indeed.\n\nA:\nwhether it is nobler?\n";

/// A folder with `text` and the `speeches`.
fn folder(text: &str, speeches: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("input.txt"), text).unwrap();
    fs::write(dir.path().join(SPEECHES), format!("start\tend\trole\n{speeches}")).unwrap();
    dir
}

fn keys(dir: &Path, keys: &str) -> Roles {
    let mut roles: Roles = toml::from_str(&format!("dir = '.'\n{keys}")).unwrap();
    roles.keys().relative_to(dir);
    roles
}

/// The characters that are given and those that are to be predicted.
fn seen(examples: &Examples) -> (String, String) {
    let names = examples.class_names();
    let positions: Vec<u32> = (0..examples.len() as u32).collect();
    let batch = examples.batch(&positions);
    let pairs = batch.values.tokens().iter().zip(batch.targets.classes());
    let pairs = pairs.filter(|(_, wanted)| **wanted != IGNORED);
    pairs
        .map(|(given, wanted)| (&*names[*given as usize], &*names[*wanted as usize]))
        .unzip()
}

#[test]
fn a_role_has_its_speeches_in_their_order_and_the_end_is_held_out() {
    let dir = folder(PLAY, "3\t23\tA\n28\t56\tB\n61\t82\tA\n");
    let first = keys(dir.path(), "clients = 2\nleast = 10\nlength = 7\ntest = 0.25");
    let data = DataSet::load(&first).unwrap();
    // 42 characters, of which 31 are trained on.
    let (given, wanted) = seen(&data.train);
    assert_eq!(given, "to be, or not to be.\nwhether i");
    assert_eq!(wanted, "o be, or not to be.\nwhether it");
    assert_eq!(seen(&data.test), (" is nobler".to_owned(), "is nobler?".to_owned()));
    let second = DataSet::load(&Roles {
        client: 1,
        clients: 2,
        ..first.clone()
    })
    .unwrap();
    assert_eq!(seen(&second.train).0, "that is the question");
    assert_eq!(second.train.class_names(), data.train.class_names());
    let both = DataSet::load(&keys(dir.path(), "roles = 2\nleast = 10\nlength = 7\ntest = 0.25")).unwrap();
    assert_eq!(both.train.targets(), data.train.targets() + second.train.targets());
    let compact = data.clone().compact();
    assert_eq!(
        (seen(&compact.train), seen(&compact.test)),
        (seen(&data.train), seen(&data.test))
    );
}

#[test]
fn bad_keys_and_bad_speeches_are_refused() {
    let good = "3\t23\tA\n28\t56\tB\n61\t82\tA\n";
    for (speeches, more, part) in [
        (good, "clients = 0", "`client` is 0"),
        (good, "client = 3\nclients = 3", "`client` is 3"),
        (good, "roles = 0", "`roles` is 0"),
        (good, "least = 9", "`least` is 9, but must be at least 10"),
        (good, "length = 0", "`length` is 0"),
        (good, "test = 1.0", "`test` is 1"),
        (good, "limit = 0", "`limit`"),
        (
            good,
            "clients = 3\nleast = 10",
            "`clients` is 3 with 1 role(s) each, but 2 roles have at least `least` = 10",
        ),
        (good, "roles = 3\nleast = 10", "`clients` is 1 with 3 role(s)"),
        (good, "least = 10\ntest = 0.99", "`test` leaves client 0 no text"),
        ("", "least = 10", "but 0 roles have"),
        ("3\t23\tA\n20\t56\tB\n", "", "line 3: begins at 20, before 23"),
        (
            "3\t23\tA\n28\t560\tB\n",
            "",
            "line 3: `start` 28 and `end` 560 are not in the text of 83 bytes",
        ),
        ("23\t3\tA\n", "", "line 2: `start` 23 and `end` 3"),
        ("3\t-23\tA\n", "", "line 2: `end` is `-23`"),
        ("3\t23\t\n", "", "line 2: the role is empty"),
        ("3\t23\n", "", "line 2: 2 fields"),
    ] {
        let dir = folder(PLAY, speeches);
        let roles = keys(dir.path(), more);
        let error = DataSet::check(&roles)
            .and_then(|()| DataSet::load(&roles))
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{speeches} {more}: {error}");
    }
    let dir = folder("\u{e4}bc\u{e4}bc\u{e4}bc", "1\t10\tA\n");
    assert!(
        DataSet::load(&keys(dir.path(), ""))
            .unwrap_err()
            .to_string()
            .contains("are not in the text")
    );
    fs::write(dir.path().join("input.txt"), b"ab\n\xff").unwrap();
    assert!(
        DataSet::load(&keys(dir.path(), ""))
            .unwrap_err()
            .to_string()
            .contains("line 2: not UTF-8")
    );
    fs::remove_file(dir.path().join(SPEECHES)).unwrap();
    fs::write(dir.path().join("input.txt"), PLAY).unwrap();
    assert!(
        DataSet::load(&keys(dir.path(), ""))
            .unwrap_err()
            .to_string()
            .contains("speeches.tsv: no such file")
    );
    fs::remove_file(dir.path().join("input.txt")).unwrap();
    assert!(
        DataSet::load(&keys(dir.path(), ""))
            .unwrap_err()
            .to_string()
            .contains("give the folder that holds")
    );
}

proptest! {
    #[test]
    fn trained_and_held_out_text_are_the_roles_text_without_overlap(
        speeches in prop::collection::vec(("[a-z \u{e4}]{5,30}", 0usize..3), 4..20), test in 0.05f64..0.6, length in 1u32..20
    ) {
        let (mut text, mut rows) = (String::new(), String::new());
        let mut own = ["", "", ""].map(str::to_owned);
        for (speech, role) in &speeches {
            text.push_str("X:\n");
            rows.push_str(&format!("{}\t{}\tr{role}\n", text.len(), text.len() + speech.len()));
            text.push_str(speech);
            let separator = if own[*role].is_empty() { "" } else { "\n" };
            own[*role].push_str(&format!("{separator}{speech}"));
        }
        let dir = folder(&text, &rows);
        let more = format!("least = 10\nlength = {length}\ntest = {test}\nclients = 1");
        let Ok(data) = DataSet::load(&keys(dir.path(), &more)) else { return Ok(()) };
        let (trained, held) = (seen(&data.train), seen(&data.test));
        let mut whole: String = trained.0.chars().take(1).chain(trained.1.chars()).collect();
        if !held.0.is_empty() {
            whole.extend(held.0.chars().take(1).chain(held.1.chars()));
        }
        // One character at the end is held out alone, and never seen.
        let is_own = |text: &String| *text == whole || text.chars().count() == whole.chars().count() + 1 && text.starts_with(&whole);
        prop_assert!(own.iter().any(is_own), "{:?} is none of {:?}", whole, own);
        prop_assert_eq!(trained.1.chars().count() as u64, data.train.targets());
    }
}

proptest! {
    #[test]
    fn any_speeches_are_read_or_refused(text in "[a-c\u{e4}\n]{0,60}", rows in "(([0-9]{1,2}\t){2}[AB]\n|[0-9]|\t|\n|-){0,8}") {
        let dir = folder(&text, &rows);
        if let Ok(data) = DataSet::load(&keys(dir.path(), "least = 10\nlength = 3")) {
            prop_assert!(data.train.targets() + data.test.targets() < 200 && !data.train.is_empty());
        }
    }
}

/// A folder of `../shared/data/text`, if this machine has it.
fn real(name: &str) -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/data/text")
        .join(name);
    if !dir.is_dir() {
        eprintln!("skipped: {} is not on this machine", dir.display());
        return None;
    }
    Some(dir)
}

#[test]
fn tiny_shakespeare_has_141_roles_of_at_least_1000_bytes() {
    let Some(dir) = real("tinyshakespeare") else { return };
    let roles = |least: u32, clients: u32| keys(&dir, &format!("least = {least}\nclients = {clients}"));
    let text = fs::read_to_string(dir.join("input.txt")).unwrap();
    assert_eq!(speeches(&dir, &text).unwrap().len(), 309);
    assert!(
        DataSet::load(&roles(1000, 142))
            .unwrap_err()
            .to_string()
            .contains("but 141 roles")
    );
    let mut sets = BTreeSet::new();
    let mut sizes = Vec::new();
    for client in 0..3 {
        let data = DataSet::load(&Roles {
            client,
            clients: 141,
            ..roles(1000, 141)
        })
        .unwrap();
        sets.insert(data.train.class_names().to_vec());
        sizes.push(data.train.targets() + data.test.targets());
        assert!(
            data.test.targets() * 100 / sizes[client as usize] == 19
                || data.test.targets() * 5 / sizes[client as usize] == 1
        );
    }
    assert_eq!((sets.len(), sets.first().unwrap().len()), (1, 65));
    assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
}

#[test]
fn plays_are_read_with_their_role_numbers() {
    let Some(dir) = real("shakespeare-plays") else { return };
    let data = DataSet::load(&keys(&dir, "client = 133\nclients = 134\nleast = 10000")).unwrap();
    assert!(data.train.targets() > 7_900 && data.test.targets() > 1_900);
    let error = DataSet::load(&keys(&dir, "clients = 641")).unwrap_err().to_string();
    assert!(error.contains("but 640 roles"), "{error}");
}
