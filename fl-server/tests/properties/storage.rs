//! Store and blobs: acknowledged data survives any crash.

use std::path::Path;
use std::sync::Arc;

use fl_compress::{Digest, Stages};
use fl_proto::{ClientId, RunName};
use fl_server::blobs::{BlobError, Blobs, Upload};
use fl_server::disk::{Disk, Fault, FaultKind};
use fl_server::state_machine::{Accepted, Millis, Record, State};
use fl_server::store::{Checkpoint, Store, StoreError};

use crate::client;
use crate::contains::assert_contains;

fn name() -> RunName {
    "run".parse().unwrap()
}

fn frame(i: usize) -> Vec<u8> {
    format!("frame of client {i} ").repeat(20).into_bytes()
}

/// Opens the database without the store; waits for a lock that was just released.
fn database(dir: &Path) -> sled::Db {
    (0..).find_map(|_| sled::open(dir.join("store")).ok()).unwrap()
}

/// A round in four writes: each is a list of records, whose blob (if any) must be durable first.
fn script() -> Vec<(Option<Vec<u8>>, Vec<Record>)> {
    let at: Millis = 5;
    let cohort = [client(0), client(1)].into();
    let accepted = |i: usize| {
        let (digest, stages) = (Digest::of(&frame(i)), Stages::default());
        let update = Accepted {
            digest,
            len: 1,
            examples: 9,
            loss: 0.5,
            train_ms: 1,
            encode_ms: 1,
            stages,
            at,
            metrics: Default::default(),
        };
        Record::UpdateAccepted {
            round: 1,
            client: client(i),
            update,
        }
    };
    let started = Record::Started {
        plan: Digest::of(b"plan"),
        model: Digest::of(b"model"),
        at,
    };
    let opened = Record::RoundOpened {
        round: 1,
        attempt: 1,
        cohort,
        present: 2,
        at,
        deadline: 60,
    };
    vec![
        (None, vec![started]),
        (None, vec![opened]),
        (Some(frame(0)), vec![accepted(0)]),
        (Some(frame(1)), vec![accepted(1), Record::RoundClosing { round: 1, at }]),
    ]
}

/// Begins or resumes an upload, in its file or in memory.
fn begun(blobs: &Blobs, hold: bool, i: usize, round: u64, digest: &Digest, len: usize) -> Result<Upload, BlobError> {
    begun_by(blobs, hold, &client(i), round, digest, len as u64)
}

fn begun_by(
    blobs: &Blobs,
    hold: bool,
    client: &ClientId,
    round: u64,
    digest: &Digest,
    len: u64,
) -> Result<Upload, BlobError> {
    let held = hold.then(|| blobs.held_upload(client, round, digest, len));
    match held.flatten() {
        Some(upload) => Ok(upload),
        None => blobs.upload(client, round, digest, len),
    }
}

/// Continues the script from the state of the store; counts acknowledged writes in `done`. `hold`: whether uploads are in
/// memory; the first of them is parked then.
fn perform(dir: &Path, disk: &Disk, hold: bool, done: &mut usize) -> Result<(), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let blobs = Blobs::open(dir, &name(), disk.clone()).map_err(|e| text(&e))?;
    let store = Store::open(dir, disk.clone()).map_err(|e| text(&e))?;
    let run = store.run(&name()).map_err(|e| text(&e))?;
    for (i, (blob, records)) in script().into_iter().enumerate().skip(*done) {
        if let Some(bytes) = blob {
            let digest = Digest::of(&bytes);
            let begin = || begun(&blobs, hold, i, 1, &digest, bytes.len()).map_err(|e| text(&e));
            let mut upload = begin()?;
            if i == 2 && upload.is_held() {
                upload.append(&bytes[..100]).map_err(|e| text(&e))?;
                upload.park().map_err(|e| text(&e))?;
                upload = begin()?;
            }
            for piece in bytes[upload.offset() as usize..].chunks(100) {
                upload.append(piece).map_err(|e| text(&e))?;
            }
            let received = upload.finish(&digest).map_err(|e| text(&e))?;
            blobs.keep(vec![received]).map_err(|e| text(&e))?;
        }
        run.append(&records, &[vec![i as u8]]).map_err(|e| text(&e))?;
        *done = i + 1;
    }
    Ok(())
}

#[test]
fn a_fault_at_any_point_leaves_a_store_that_goes_on() {
    [false, true].into_iter().for_each(faults_at_all_points);
}

fn faults_at_all_points(hold: bool) {
    let count = Arc::new(Fault::new(FaultKind::Full, u64::MAX));
    let dir = tempfile::tempdir().unwrap();
    perform(dir.path(), &Disk::new(Some(Arc::clone(&count))), hold, &mut 0).unwrap();
    let points = count.seen();
    assert!(points > 40, "{points}");
    for at in 1..=points {
        let dir = tempfile::tempdir().unwrap();
        let mut done = 0;
        let disk = Disk::new(Some(Arc::new(Fault::new(FaultKind::Full, at))));
        let error = perform(dir.path(), &disk, hold, &mut done).unwrap_err();
        assert_contains(&error, dir.path().to_str().unwrap());
        assert_contains(&error, "free some space");

        let store = Store::open(dir.path(), Disk::default()).unwrap();
        let run = store.run(&name()).unwrap();
        let records: Vec<_> = run.records().collect::<Result<_, _>>().unwrap();
        let batches = script();
        let durable = (0..=batches.len())
            .find(|&n| {
                batches[..n]
                    .iter()
                    .flat_map(|(_, records)| records.clone())
                    .eq(records.iter().cloned())
            })
            .expect("whole batches, in order");
        assert!(
            durable == done || durable == done + 1,
            "point {at}: {durable} durable, {done} acknowledged"
        );
        assert_eq!(run.rows().collect::<Result<Vec<_>, _>>().unwrap().len(), durable);
        let mut state = State::new();
        records.iter().for_each(|record| state.apply(record).unwrap());
        let blobs = Blobs::open(dir.path(), &name(), Disk::default()).unwrap();
        for record in &records {
            if let Record::UpdateAccepted { update, .. } = record {
                blobs.get(&update.digest).unwrap();
            }
        }
        drop((store, run));
        let mut done = durable;
        perform(dir.path(), &Disk::default(), hold, &mut done).unwrap();
        assert_eq!(done, batches.len());
    }
}

#[test]
fn what_is_written_is_read_in_order_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for part in 0..3u64 {
        let store = Store::open(dir.path(), Disk::default()).unwrap();
        let (run, other) = (
            store.run(&name()).unwrap(),
            store.run(&"other".parse().unwrap()).unwrap(),
        );
        assert_eq!(run.len(), expected.len() as u64);
        for at in 0..200 {
            let record = Record::RunDone { at: part * 1_000 + at };
            run.append(std::slice::from_ref(&record), &[]).unwrap();
            expected.push(record);
        }
        other
            .append(&[Record::Gathered { since: Some(part) }], &[vec![1], vec![2, 3]])
            .unwrap();
        run.set_meta("plan", format!("text {part}").as_bytes()).unwrap();
        let checkpoint = Checkpoint {
            version: part,
            blob: Digest::of(b"c"),
        };
        let kept: Vec<_> = [checkpoint]
            .into_iter()
            .chain(run.checkpoints().unwrap())
            .take(2)
            .collect();
        run.set_checkpoints(&kept, &[]).unwrap();
    }
    let store = Store::open(dir.path(), Disk::default()).unwrap();
    assert_eq!(store.runs().unwrap(), ["other".parse().unwrap(), name()]);
    let run = store.run(&name()).unwrap();
    assert_eq!(run.records().collect::<Result<Vec<_>, _>>().unwrap(), expected);
    assert_eq!(run.rows().count(), 0);
    assert_eq!(run.meta("plan").unwrap().as_deref(), Some(&b"text 2"[..]));
    assert_eq!(run.meta("layout").unwrap(), None);
    let versions = run.checkpoints().unwrap().into_iter().map(|kept| kept.version);
    assert_eq!(versions.collect::<Vec<_>>(), [2, 1]);
    let other = store.run(&"other".parse().unwrap()).unwrap();
    assert_eq!(other.records().count(), 3);
    assert_eq!(other.rows().nth(1).unwrap().unwrap(), vec![2, 3]);
}

#[test]
fn a_store_is_open_once_and_by_programs_of_its_version_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Disk::default()).unwrap();
    let twice = Store::open(dir.path(), Disk::default()).unwrap_err();
    assert!(matches!(&twice, StoreError::Busy(_)), "{twice}");
    assert!(twice.to_string().contains("in another process"));
    drop(store);
    for version in [[2, 0], [1, 1], [0, 9]] {
        let raw = database(dir.path());
        raw.insert(b"v", &version).unwrap();
        drop(raw);
        let other = Store::open(dir.path(), Disk::default()).unwrap_err().to_string();
        let named = format!(
            "has format {}.{}; this program reads 1.0: use the program that wrote it",
            version[0], version[1]
        );
        assert_contains(&other, &named);
    }
}

#[test]
fn the_number_of_a_run_is_never_given_to_another() {
    let dir = tempfile::tempdir().unwrap();
    let run = |run: &str| {
        let store = Store::open(dir.path(), Disk::default()).unwrap();
        store.run(&run.parse().unwrap()).unwrap()
    };
    run("a").append(&[Record::RunDone { at: 1 }], &[]).unwrap();
    run("b").append(&[Record::RunDone { at: 2 }], &[]).unwrap();
    for name in ["b", "a"] {
        let raw = database(dir.path());
        raw.remove([b"n", name.as_bytes()].concat()).unwrap();
        drop(raw);
        let fresh = format!("after-{name}");
        assert_eq!(run(&fresh).len(), 0, "{fresh} has records of {name}");
        run(&fresh).append(&[Record::RunDone { at: 3 }], &[]).unwrap();
    }
}

#[test]
fn a_pipe_in_place_of_a_file_is_an_error_and_does_not_hang() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = |path: &Path| {
        let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    };
    let blobs = Blobs::open(dir.path(), &name(), Disk::default()).unwrap();
    let digest = Digest::of(b"content");
    pipe(&blobs.path(&digest));
    let error = blobs.get(&digest).unwrap_err().to_string();
    assert_contains(&error, "not a regular file");
    pipe(&dir.path().join("head"));
    let error = Store::open(dir.path(), Disk::default()).unwrap_err().to_string();
    assert_contains(&error, "not a regular file");
}

#[test]
fn a_damaged_or_missing_record_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let fill = || {
        let store = Store::open(dir.path(), Disk::default()).unwrap();
        let run = store.run(&name()).unwrap();
        let records: Vec<_> = (0..3).map(|at| Record::RunDone { at }).collect();
        run.append(&records, &[vec![9; 20]]).unwrap();
    };
    fill();
    let raw = database(dir.path());
    let key = |table: u8, seq: u8| [&[table, 0, 0, 0, 0][..], &[0, 0, 0, 0, 0, 0, 0, seq]].concat();
    let damage = |key: Vec<u8>| {
        let mut value = raw.get(&key).unwrap().unwrap().to_vec();
        value[4] ^= 1;
        raw.insert(key, value).unwrap();
    };
    damage(key(b'r', 1));
    damage(key(b'l', 0));
    drop(raw);
    let store = Store::open(dir.path(), Disk::default()).unwrap();
    let run = store.run(&name()).unwrap();
    let error = run.records().nth(1).unwrap().unwrap_err().to_string();
    assert_contains(&error, "record 1 of run run: corrupt at byte 3: checksum");
    assert!(
        run.rows()
            .next()
            .unwrap()
            .unwrap_err()
            .to_string()
            .contains("ledger row 0")
    );
    drop((store, run));
    let raw = database(dir.path());
    raw.remove(key(b'r', 0)).unwrap();
    drop(raw);
    let run = Store::open(dir.path(), Disk::default()).unwrap().run(&name()).unwrap();
    assert!(matches!(
        run.records().next(),
        Some(Err(StoreError::Gap { number: 0, .. }))
    ));
}

/// A store of several commits, each of one record with its number.
fn numbered(dir: &Path, numbers: std::ops::Range<u64>) {
    let run = Store::open(dir, Disk::default()).unwrap().run(&name()).unwrap();
    for at in numbers {
        run.append(&[Record::RunDone { at }], &[]).unwrap();
    }
}

/// Number of these records in the store.
fn count(dir: &Path) -> Result<u64, StoreError> {
    let run = Store::open(dir, Disk::default())?.run(&name())?;
    let records = run.records().collect::<Result<Vec<_>, _>>()?;
    let expected: Vec<_> = (0..run.len()).map(|at| Record::RunDone { at }).collect();
    assert_eq!(records, expected);
    Ok(run.len())
}

/// Copies the files of the store; its only subfolder is sled's.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

#[test]
fn a_store_that_lost_commits_is_an_error_and_the_way_on_is_said() {
    let (dir, old) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, head) = (dir.path().join("store"), dir.path().join("head"));
    numbered(dir.path(), 0..5);
    copy(&store, old.path());
    numbered(dir.path(), 5..9);
    assert_eq!(count(dir.path()).unwrap(), 9);
    std::fs::remove_dir_all(&store).unwrap();
    for gone in [true, false] {
        if !gone {
            std::fs::remove_dir_all(&store).unwrap();
            copy(old.path(), &store);
        }
        let error = count(dir.path()).unwrap_err();
        assert!(matches!(&error, StoreError::Lost { .. }), "{error}");
        assert!(error.is_corruption(), "{error}");
        let text = error.to_string();
        assert_contains(&text, "of its 11 commits");
        assert_contains(&text, head.to_str().unwrap());
    }
    std::fs::remove_file(&head).unwrap();
    assert_eq!(count(dir.path()).unwrap(), 5);
    numbered(dir.path(), 5..6);
    assert_eq!(count(dir.path()).unwrap(), 6);
}

#[test]
fn a_head_is_damaged_or_harmless_and_a_torn_write_is_harmless() {
    let dir = tempfile::tempdir().unwrap();
    numbered(dir.path(), 0..3);
    let head = dir.path().join("head");
    let good = std::fs::read(&head).unwrap();
    for bit in 0..8 * good.len() {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&head, &bad).unwrap();
        assert_eq!(count(dir.path()).unwrap(), 3, "bit {bit}: the other number is there");
    }
    for bad in [good[..11].to_vec(), vec![7; good.len()]] {
        std::fs::write(&head, &bad).unwrap();
        let error = count(dir.path()).unwrap_err();
        assert!(matches!(&error, StoreError::Head(path) if *path == head), "{error}");
        assert!(error.is_corruption(), "{error}");
        assert_eq!(std::fs::read(&head).unwrap(), bad, "the damaged file must stay");
    }
    // What a power loss leaves of a file that was not synced counts as missing, and is written anew.
    for lost in [Vec::new(), vec![0; good.len()]] {
        std::fs::write(&head, &lost).unwrap();
        assert_eq!(count(dir.path()).unwrap(), 3);
        assert!(std::fs::read(&head).unwrap().iter().any(|byte| *byte != 0));
    }
    std::fs::remove_file(&head).unwrap();
    assert_eq!(count(dir.path()).unwrap(), 3);
}

#[test]
fn a_byte_flipped_in_the_log_is_an_error_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    numbered(dir.path(), 0..12);
    let log = dir.path().join("store").join("db");
    let good = std::fs::read(&log).unwrap();
    let used = good.iter().rposition(|&byte| byte != 0).unwrap();
    let mut caught = 0;
    for at in (0..used).step_by(used / 60) {
        let again = tempfile::tempdir().unwrap();
        copy(dir.path(), again.path());
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(again.path().join("store").join("db"), &bad).unwrap();
        match count(again.path()) {
            Ok(count) => assert_eq!(count, 12, "byte {at} of the log"),
            Err(error) => {
                assert!(error.is_corruption(), "byte {at}: {error}");
                caught += 1;
            }
        }
    }
    assert!(caught > 5, "{caught}");
}

#[test]
fn after_a_failed_write_the_store_stops() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path(), Disk::default()).unwrap().run(&name()).unwrap());
    let fault = Arc::new(Fault::new(FaultKind::Full, 3));
    let run = Store::open(dir.path(), Disk::new(Some(fault)))
        .unwrap()
        .run(&name())
        .unwrap();
    let record = Record::RunDone { at: 1 };
    let error = run.append(std::slice::from_ref(&record), &[]).unwrap_err();
    assert!(matches!(&error, StoreError::Disk(e) if e.is_full()), "{error}");
    let again = run.append(&[record], &[]).unwrap_err();
    assert!(matches!(&again, StoreError::Stopped { .. }), "{again}");
    assert!(again.to_string().contains(&error.to_string()), "{again}");
}

#[test]
fn blobs_are_what_their_name_says_or_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = Blobs::open(dir.path(), &name(), Disk::default()).unwrap();
    let digest = blobs.put(b"content").unwrap();
    assert_eq!(blobs.put(b"content").unwrap(), digest);
    assert_eq!(blobs.get(&digest).unwrap(), b"content".to_vec());
    assert_eq!(blobs.len(&digest).unwrap(), Some(7));
    let other = blobs.put(b"other").unwrap();
    std::fs::write(blobs.path(&digest), b"contemt").unwrap();
    let error = blobs.get(&digest).unwrap_err();
    assert!(matches!(error, BlobError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains(&digest.to_string()), "{error}");
    assert_eq!(blobs.sweep(&[other].into()).unwrap(), 1);
    assert_eq!(blobs.get(&digest).unwrap_err(), BlobError::Missing(digest));
    blobs.remove(&other).unwrap();
    assert_eq!(blobs.len(&other).unwrap(), None);
    std::fs::write(dir.path().join("side/3"), b"half").unwrap();
    Blobs::open(dir.path(), &name(), Disk::default()).unwrap();
    assert!(!dir.path().join("side/3").exists(), "what was being written is cleared");
}

#[test]
fn uploads_go_on_where_they_broke_off() {
    for hold in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, me) = (frame(1), client(1));
        let digest = Digest::of(&bytes);
        let blobs = Blobs::open(dir.path(), &name(), Disk::default()).unwrap();
        let mut upload = begun(&blobs, hold, 1, 3, &digest, bytes.len()).unwrap();
        upload.append(&bytes[..50]).unwrap();
        assert!(matches!(
            upload.read_whole(&mut Vec::new()),
            Err(BlobError::Short { have: 50, .. })
        ));
        upload.park().unwrap();
        assert!(!upload.is_held());
        assert!(matches!(upload.finish(&digest), Err(BlobError::Short { have: 50, .. })));

        let blobs = Blobs::open(dir.path(), &name(), Disk::default()).unwrap();
        assert_eq!(blobs.partial_len(&me, 3, &digest), 50);
        let mut upload = begun(&blobs, hold, 1, 3, &digest, bytes.len()).unwrap();
        assert_eq!(upload.offset(), 50);
        upload.append(&bytes[50..]).unwrap();
        assert!(matches!(upload.append(b"x"), Err(BlobError::TooLarge { .. })));
        assert_eq!(upload.read_whole(&mut Vec::new()).unwrap(), bytes);
        blobs.keep(vec![upload.finish(&digest).unwrap()]).unwrap();
        assert_eq!(blobs.get(&digest).unwrap(), bytes);
        assert_eq!(blobs.partial_len(&me, 3, &digest), 0);
    }
}

#[test]
fn an_upload_held_in_memory_leaves_no_file_but_its_pack() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = Blobs::open(dir.path(), &name(), Disk::default()).unwrap();
    let received = |i: usize| {
        let digest = Digest::of(&frame(i));
        let mut upload = begun(&blobs, true, i, 3, &digest, frame(i).len()).unwrap();
        frame(i).chunks(7).for_each(|piece| upload.append(piece).unwrap());
        assert_eq!(blobs.partial_len(&client(i), 3, &digest), 0);
        upload.finish(&digest).unwrap()
    };
    blobs.keep(vec![received(0), received(1)]).unwrap();
    let files = |folder: &str| std::fs::read_dir(dir.path().join(folder)).unwrap().count();
    let counts = ["blobs/run", "packs/run", "partial/run", "side"].map(files);
    assert_eq!(counts, [0, 1, 0, 0]);
    let again = Blobs::open(dir.path(), &name(), Disk::default()).unwrap();
    for i in [0, 1] {
        let digest = Digest::of(&frame(i));
        assert_eq!(blobs.get(&digest).unwrap(), frame(i));
        assert_eq!(again.len(&digest).unwrap(), Some(frame(i).len() as u64));
        again.remove(&digest).unwrap();
    }
    assert_eq!(files("packs/run"), 0);
}

#[test]
fn what_a_call_held_is_freed_with_it_unless_another_has_taken_it_over() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = Blobs::open(dir.path(), &name(), Disk::default()).unwrap();
    let (me, digest) = (client(0), Digest::of(b"abcdef"));
    let mut old = blobs.held_upload(&me, 3, &digest, 6).unwrap();
    old.append(b"abc").unwrap();
    let new = blobs.held_upload(&me, 3, &digest, 6).unwrap();
    drop(old);
    assert_eq!((new.offset(), blobs.partial_len(&me, 3, &digest)), (3, 3));
    drop(new);
    assert_eq!(blobs.partial_len(&me, 3, &digest), 0);
    let mut other = blobs.held_upload(&me, 4, &digest, 6).unwrap();
    assert_eq!((other.offset(), blobs.partial_len(&me, 3, &digest)), (0, 0));
    other.append(b"ab").unwrap();
    other.park().unwrap();
    assert!(blobs.held_upload(&me, 4, &digest, 6).is_none(), "it is in a file");
    assert_eq!(blobs.upload(&me, 4, &digest, 6).unwrap().offset(), 2);
}

#[test]
fn a_damaged_blob_of_a_pack_is_named_by_its_pack() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = Blobs::open(dir.path(), &name(), Disk::default()).unwrap();
    let digest = Digest::of(b"right");
    let mut upload = begun(&blobs, true, 0, 1, &digest, 5).unwrap();
    upload.append(b"right").unwrap();
    blobs.keep(vec![upload.finish(&digest).unwrap()]).unwrap();
    let path = blobs.path(&digest);
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.last_mut().unwrap();
    *last ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = blobs.get(&digest).unwrap_err();
    assert!(error.is_corruption(), "{error}");
    assert!(error.to_string().contains("packs/run/0.pack is damaged"), "{error}");
}

#[test]
fn only_the_latest_call_writes_and_only_one_upload_a_client_is_kept() {
    for hold in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), &name(), Disk::default()).unwrap();
        // The name of the second client ends like a round number.
        let (me, similar) = ("a".parse().unwrap(), "a-3".parse().unwrap());
        let (digest, other) = (Digest::of(b"abcdef"), Digest::of(b"another"));
        let mut old = begun_by(&blobs, hold, &me, 3, &digest, 6).unwrap();
        old.append(b"abc").unwrap();
        assert_eq!(blobs.partial_len(&me, 3, &digest), 3);
        let mut new = begun_by(&blobs, hold, &me, 3, &digest, 6).unwrap();
        assert_eq!(old.append(b"xyz"), Err(BlobError::Superseded));
        assert_eq!(old.park(), Err(BlobError::Superseded));
        new.append(b"def").unwrap();
        blobs.keep(vec![new.finish(&digest).unwrap()]).unwrap();
        assert_eq!(old.discard(), Err(BlobError::Superseded));
        assert_eq!(blobs.get(&digest).unwrap(), b"abcdef");

        blobs.upload(&similar, 3, &digest, 6).unwrap().append(b"ab").unwrap();
        blobs.upload(&me, 3, &digest, 6).unwrap().append(b"ab").unwrap();
        let blobs = Blobs::open(dir.path(), &name(), Disk::default()).unwrap();
        let upload = begun_by(&blobs, hold, &me, 4, &other, 7).unwrap();
        assert_eq!(blobs.partial_len(&me, 3, &digest), 0);
        assert_eq!(blobs.partial_len(&similar, 3, &digest), 2);
        upload.discard().unwrap();
    }
}

#[test]
fn a_refused_upload_takes_nothing_from_an_accepted_one_of_the_same_bytes() {
    for hold in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), &name(), Disk::default()).unwrap();
        let bytes = frame(0);
        let digest = Digest::of(&bytes);
        let received = |i: usize| {
            let mut upload = begun(&blobs, hold, i, 1, &digest, bytes.len()).unwrap();
            upload.append(&bytes).unwrap();
            upload.finish(&digest).unwrap()
        };
        let (refused, accepted, late, again) = (received(0), received(1), received(2), received(1));
        assert_eq!(
            blobs.len(&digest).unwrap(),
            None,
            "an upload is a blob once it is accepted"
        );
        drop(refused);
        blobs.keep(vec![accepted]).unwrap();
        drop((late, again));
        assert_eq!(blobs.get(&digest).unwrap(), bytes);
        assert_eq!(std::fs::read_dir(dir.path().join("side")).unwrap().count(), 0);
    }
}

#[test]
fn wrong_bytes_are_dropped_at_the_end_of_an_upload() {
    for hold in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), &name(), Disk::default()).unwrap();
        let digest = Digest::of(b"right");
        let mut upload = begun(&blobs, hold, 0, 1, &digest, 5).unwrap();
        upload.append(b"wrong").unwrap();
        assert!(matches!(upload.finish(&digest), Err(BlobError::Damaged { .. })));
        assert_eq!(blobs.len(&digest).unwrap(), None);
        let mut upload = begun(&blobs, hold, 0, 1, &digest, 5).unwrap();
        assert_eq!(upload.offset(), 0);
        upload.append(b"right").unwrap();
        upload.finish(&digest).unwrap();
    }
}
