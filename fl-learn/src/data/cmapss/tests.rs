use std::fmt::Write as _;
use std::fs;

use proptest::prelude::*;

use super::*;

/// Lines of engines with so many cycles each. Sensor s of engine e in cycle c is `100 e + c + s`, but sensor 1 is constant.
fn lines(cycles: &[usize]) -> String {
    let mut text = String::new();
    for (engine, &cycles) in cycles.iter().enumerate() {
        for cycle in 1..=cycles {
            let _ = write!(text, "{} {cycle} 0.1 -0.2 100.0 5.5", engine + 1);
            (2..=21).for_each(|sensor| {
                let _ = write!(text, " {}", 100 * (engine + 1) + cycle + sensor);
            });
            text.push_str("  \n");
        }
    }
    text
}

fn folder(train: &str, test: &str, lives: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (part, text) in [("train", train), ("test", test), ("RUL", lives)] {
        fs::write(dir.path().join(format!("{part}_FD001.txt")), text).unwrap();
    }
    dir
}

fn keys(dir: &Path, keys: &str) -> Cmapss {
    let mut cmapss: Cmapss = toml::from_str(&format!("dir = '.'\n{keys}")).unwrap();
    cmapss.keys().relative_to(dir);
    cmapss
}

#[test]
fn windows_end_with_each_cycle_and_their_target_is_the_rest_of_the_life() {
    let dir = folder(&lines(&[5, 2, 4]), &lines(&[3, 6]), "200\n3\n");
    let set = keys(dir.path(), "window = 3\nsensors = [2, 4]\nlongest = 4\nclients = 2");
    let data = DataSet::load(&set).unwrap();
    let input = data.train.input();
    assert_eq!((input.shape, input.classes), ([2, 1, 3], 1));
    // Engines 1 and 3: 3 and 2 windows.
    let batch = data.train.batch(&[0, 1, 2, 3, 4]);
    assert_eq!(batch.targets.numbers(), [0.5, 0.25, 0.0, 0.25, 0.0]);
    let scales = scales(&engines(&dir.path().join("train_FD001.txt")).unwrap(), &[2, 4]).unwrap();
    let seen = |at: usize| batch.values.numbers()[at] * scales[at / 3 % 2].1 + scales[at / 3 % 2].0;
    for (at, want) in [103.0, 104.0, 105.0, 105.0, 106.0, 107.0, 104.0]
        .into_iter()
        .enumerate()
    {
        assert!((seen(at) - want).abs() < 1e-3, "{at}: {}", seen(at));
    }
    // The test engine that belongs to this client lives for longer than is counted.
    assert_eq!(data.test.batch(&[0]).targets.numbers(), [1.0]);
    // Engine 2 is shorter than a window: its first cycle is repeated.
    let other = DataSet::load(&Cmapss {
        client: 1,
        clients: 2,
        ..set.clone()
    })
    .unwrap();
    let batch = other.train.batch(&[0]);
    let values = batch.values.numbers();
    assert_eq!(
        (other.train.len(), values[0] == values[1], values[1] < values[2]),
        (1, true, true)
    );
    assert_eq!(other.test.batch(&[0]).targets.numbers(), [0.75]);
}

#[test]
fn all_clients_together_have_every_engine_once() {
    let dir = folder(&lines(&[5, 2, 4, 7, 3]), &lines(&[3, 6, 2]), "1\n2\n3\n");
    let whole = DataSet::load(&keys(dir.path(), "window = 2")).unwrap();
    let part = |client| {
        DataSet::load(&keys(
            dir.path(),
            &format!("window = 2\nclients = 3\nclient = {client}"),
        ))
        .unwrap()
    };
    let sum = |of: fn(&ClientData) -> usize| (0..3).map(|client| of(&part(client))).sum::<usize>();
    assert_eq!(sum(|data| data.train.len()), whole.train.len());
    assert_eq!((sum(|data| data.test.len()), whole.test.len()), (3, 3));
    assert_eq!(
        DataSet::load(&keys(dir.path(), "window = 2\nlimit = 4"))
            .unwrap()
            .train
            .len(),
        4
    );
}

#[test]
fn bad_keys_and_bad_lines_are_refused() {
    let (good, lives) = (lines(&[4, 3]), "1\n2\n");
    let with = |from: &str, to: &str| good.replacen(from, to, 1);
    for (train, lives, more, part) in [
        (good.clone(), lives, "set = '../x'", "`set` is \"../x\""),
        (
            good.clone(),
            lives,
            "set = 'FD009'",
            "train_FD009.txt: no such file; give the folder",
        ),
        (
            good.clone(),
            lives,
            "client = 1",
            "`client` is 1, but must be below `clients` = 1",
        ),
        (
            good.clone(),
            lives,
            "clients = 3",
            "`clients` is 3, more than the 2 engines",
        ),
        (good.clone(), lives, "window = 0", "`window` is 0"),
        (
            good.clone(),
            lives,
            "window = 2000",
            "`window` is 2000, but must be 1 to 1024",
        ),
        (good.clone(), lives, "sensors = []", "`sensors` must be"),
        (good.clone(), lives, "sensors = [22]", "`sensors` must be"),
        (good.clone(), lives, "sensors = [2, 2]", "`sensors` has 2 twice"),
        (
            good.clone(),
            lives,
            "sensors = [1]",
            "train_FD001.txt: sensor 1 does not change",
        ),
        (good.clone(), lives, "longest = 0", "`longest`"),
        (good.clone(), lives, "limit = 0", "`limit`"),
        (good.clone(), "1\n", "", "RUL_FD001.txt: has 1 lives for the 2 engines"),
        (
            good.clone(),
            "1\n-2\n",
            "",
            "RUL_FD001.txt: line 2: `-2` is no number of cycles",
        ),
        (String::new(), lives, "", "train_FD001.txt: is empty"),
        (
            with("1 2 0.1", "1 3 0.1"),
            lives,
            "",
            "line 2: engine 1 and cycle 3 do not follow",
        ),
        (
            with("2 1 0.1", "3 1 0.1"),
            lives,
            "",
            "line 5: engine 3 and cycle 1 do not follow",
        ),
        (
            with("1 1 0.1", "1 0 0.1"),
            lives,
            "",
            "line 1: engine 1 and cycle 0 do not follow",
        ),
        (
            with("1 2 0.1", "1 2 NaN"),
            lives,
            "",
            "line 2: column 3: `NaN` is no finite number",
        ),
        (
            with("1 2 0.1", "1 2 1e99"),
            lives,
            "",
            "line 2: column 3: `1e99` is no finite number",
        ),
        (
            with("1 2 0.1", "1 2"),
            lives,
            "",
            "line 2: 25 fields, but there are 26 columns",
        ),
    ] {
        let dir = folder(&train, &good, lives);
        let cmapss = keys(dir.path(), more);
        let error = DataSet::check(&cmapss)
            .and_then(|()| DataSet::load(&cmapss))
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{more}: {error}");
    }
}

proptest! {
    #[test]
    fn any_lines_are_read_or_refused(
        rows in "([12] [1-4]( [0-9]{1,2}){24}\n|[0-9] |NaN|-|\n){0,8}", at in 0usize..400, with in "[0-9 .\n-]{0,3}"
    ) {
        let mut changed = lines(&[3, 2]);
        changed.replace_range(at..at + 1, &with);
        for train in [rows, changed] {
            let dir = folder(&train, &lines(&[2]), "7\n");
            if let Ok(data) = DataSet::load(&keys(dir.path(), "window = 2")) {
                prop_assert!(!data.train.is_empty() && data.test.len() == 1);
            }
        }
    }
}

#[test]
fn fd001_has_its_known_windows() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/cmapss");
    if !dir.is_dir() {
        eprintln!("skipped: {} is not on this machine", dir.display());
        return;
    }
    let parts: Vec<ClientData> = (0..10)
        .map(|client| {
            DataSet::load(&Cmapss {
                client,
                clients: 10,
                ..keys(&dir, "")
            })
            .unwrap()
        })
        .collect();
    // 20,631 cycles of 100 engines, of which the first 29 of each end no window.
    assert_eq!(
        parts.iter().map(|data| data.train.len()).sum::<usize>(),
        20_631 - 100 * 29
    );
    assert_eq!(parts.iter().map(|data| data.test.len()).sum::<usize>(), 100);
    assert_eq!(parts[0].train.input().shape, [14, 1, 30]);
    let targets = parts[0]
        .train
        .batch(&(0..parts[0].train.len() as u32).collect::<Vec<_>>())
        .targets;
    assert!(targets.numbers().iter().all(|target| (0.0..=1.0).contains(target)));
}
