//! Runs made by hand, and what they would have moved.

#![allow(clippy::unwrap_used)]

use crate::model::run_metadata::Compression;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fl_compress::{Ack, Digest, Encoder, Encodes, Frame, FrameHeader, FrameKind, Layout, Memory, Spec, Stages};

use super::outcome::Of;
use super::{StoredFrame, StoredFrames, WhatIf, WhatIfError, what_if};
use crate::reporting::inspect::InspectError;

const TOP_K: &str = "default = { reduce = { top_k = 0.05 }, quantize = { uniform = 4 }, code = 'rans' }";
const CLIENTS: [&str; 3] = ["anna", "berta", "cleo"];
const ROUNDS: u64 = 4;

/// A run with its blobs in a temporary folder, and the updates of its clients.
struct Made {
    dir: tempfile::TempDir,
    layout: Arc<Layout>,
    stored: StoredFrames,
}

fn spec(text: &str) -> Spec {
    toml::from_str(text).unwrap()
}

fn tensors() -> Vec<(String, Vec<usize>)> {
    vec![
        ("a.weight".to_owned(), vec![60, 50]),
        ("b.weight".to_owned(), vec![40, 25]),
        ("c.bias".to_owned(), vec![10]),
    ]
}

/// A delta with a few large values and many small ones, by client; from round to round it changes little.
fn delta(client: usize, round: u64, len: usize) -> Vec<f32> {
    let salt = client as f32 * 13.7 + round as f32 * 0.05;
    (0..len)
        .map(|i| ((i as f32 + salt) * 0.73).sin().powi(9) * 0.1)
        .collect()
}

/// Encodes `values` round by round as a client would have, each frame accepted.
fn frames_of(
    layout: &Arc<Layout>,
    spec: &Spec,
    kind: FrameKind,
    values: &[Vec<f32>],
    steps: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(Arc::clone(layout), spec).unwrap();
    let mut out = Vec::new();
    for (at, values) in values.iter().enumerate() {
        let header = FrameHeader {
            kind,
            round: at as u64 + 1,
            seed: at as u64 * 7 + 3,
        };
        let step = at.checked_sub(1).and_then(|before| steps.get(before));
        let step = step.map(|step| Frame::parse(step, layout).unwrap());
        let predictor = step
            .as_ref()
            .filter(|_| spec.memory == Memory::Cafe && kind == FrameKind::Update);
        let pending = encoder.encode_against(predictor, &mut values.clone(), header).unwrap();
        encoder.settle(&pending, Ack::Accepted).unwrap();
        out.push(pending.frame);
    }
    out
}

fn deltas(client: usize, len: usize) -> Vec<Vec<f32>> {
    (1..=ROUNDS).map(|round| delta(client, round, len)).collect()
}

impl Made {
    /// A run that was served with `uplink`, its steps exact.
    fn by(uplink: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("blobs/test")).unwrap();
        let layout = Arc::new(Layout::new(tensors()).unwrap());
        let mut made = Self {
            dir,
            stored: StoredFrames {
                run: "test".to_owned(),
                layout: crate::model::stored_layout::stored(&layout),
                updates: Vec::new(),
                steps: Vec::new(),
                compression: Compression {
                    uplink: spec(uplink),
                    downlink: Spec::exact(),
                },
            },
            layout,
        };
        let averages: Vec<Vec<f32>> = deltas(1, made.layout.len())
            .into_iter()
            .map(|values| values.iter().map(|value| value * 0.8).collect())
            .collect();
        let steps = frames_of(&made.layout, &Spec::exact(), FrameKind::ModelUpdate, &averages, &[]);
        for (at, name) in CLIENTS.iter().enumerate() {
            let values = deltas(at, made.layout.len());
            let frames = frames_of(&made.layout, &spec(uplink), FrameKind::Update, &values, &steps);
            for (frame, round) in frames.iter().zip(1..) {
                let kept = made.keep(name, round, frame);
                made.stored.updates.push(kept);
            }
        }
        for (frame, round) in steps.iter().zip(1..) {
            let kept = made.keep("", round, frame);
            made.stored.steps.push(kept);
        }
        made
    }

    fn keep(&self, client: &str, round: u64, frame: &[u8]) -> StoredFrame {
        let digest = Digest::of(frame).to_string();
        std::fs::write(self.blob(&digest), frame).unwrap();
        StoredFrame {
            round,
            client: client.to_owned(),
            examples: 10,
            frame: digest,
            sizes: Stages {
                framed: frame.len() as u64,
                ..Stages::default()
            },
        }
    }

    fn blob(&self, digest: &str) -> PathBuf {
        self.dir.path().join("blobs/test").join(digest)
    }

    fn data(&self) -> &Path {
        self.dir.path()
    }

    fn ask(&self, text: &str) -> Result<WhatIf, WhatIfError> {
        what_if(self.data(), &self.stored, &spec(text), 1, |_, _| {})
    }
}

#[test]
fn the_exact_spec_has_no_error_and_costs_what_fp32_does() {
    for uplink in ["default = {}", TOP_K] {
        let made = Made::by(uplink);
        let answer = made.ask("default = {}").unwrap();
        let len = made.layout.len() as u64;
        for line in [&answer.updates, &answer.steps].into_iter().chain(&answer.clients) {
            assert_eq!((line.error, line.sum_error), (Some(0.0), Some(0.0)), "{line:?}");
            assert_eq!(line.cosine, Some(1.0));
            assert_eq!(line.fp32, line.frames * 4 * len);
            assert!(
                (line.fp32..line.fp32 + 100 * line.frames).contains(&line.framed),
                "{line:?}"
            );
        }
        assert_eq!((answer.updates.frames, answer.steps.frames), (12, 4));
        assert_eq!(answer.missing.len(), 0);
    }
}

#[test]
fn an_fp32_run_gives_the_bytes_that_its_clients_would_have_sent() {
    let made = Made::by("default = {}");
    for text in [
        TOP_K,
        "memory = 'error-feedback'\ndefault = { quantize = 'dead_zone', code = 'context' }",
        "memory = 'cafe'",
    ] {
        let wanted = Made::by(text);
        let answer = made.ask(text).unwrap();
        let bytes = |made: &Made, holds: &dyn Fn(&StoredFrame) -> bool| {
            let of = made.stored.updates.iter().filter(|update| holds(update));
            of.map(|update| update.sizes.framed).sum::<u64>()
        };
        for line in &answer.rounds {
            let of = |frame: &StoredFrame| Of::Round(frame.round) == line.of;
            assert_eq!(line.framed, bytes(&wanted, &of), "{text}");
            assert_eq!(line.recorded_framed, bytes(&made, &of));
        }
        for line in &answer.clients {
            assert_eq!(
                line.framed,
                bytes(&wanted, &|frame| Of::Client(frame.client.clone()) == line.of),
                "{text}"
            );
        }
    }
}

#[test]
fn error_feedback_misses_only_what_is_still_owed_at_the_end() {
    let made = Made::by("default = {}");
    let len = made.layout.len();
    let text = format!("memory = 'error-feedback'\n{TOP_K}");
    let answer = made.ask(&text).unwrap();
    for (at, line) in answer.clients.iter().enumerate() {
        let mut encoder = Encoder::new(Arc::clone(&made.layout), &spec(&text)).unwrap();
        let mut sums = (vec![0.0f64; len], vec![0.0f32; len]);
        for (values, round) in deltas(at, len).into_iter().zip(1u64..) {
            let header = FrameHeader {
                kind: FrameKind::Update,
                round,
                seed: (round - 1) * 7 + 3,
            };
            sums.0
                .iter_mut()
                .zip(&values)
                .for_each(|(sum, value)| *sum += f64::from(*value));
            let pending = encoder.encode(&mut values.clone(), header).unwrap();
            encoder.settle(&pending, Ack::Accepted).unwrap();
            let frame = Frame::parse(&pending.frame, &made.layout).unwrap();
            frame.accumulate(1.0, &mut sums.1).unwrap();
        }
        let residual = encoder.residual().unwrap();
        let (mut owed, mut sent) = (0.0, 0.0);
        for ((sum, decoded), residual) in sums.0.iter().zip(&sums.1).zip(residual) {
            assert!((f64::from(*decoded) + f64::from(*residual) - sum).abs() < 1e-5);
            owed += f64::from(*residual) * f64::from(*residual);
            sent += sum * sum;
        }
        let found = line.sum_error.unwrap();
        assert!((found - owed / sent).abs() < 1e-4 * found, "{found} {}", owed / sent);
        assert!(line.error.unwrap() > 0.0 && line.cosine.unwrap() < 1.0);
    }
    // Without memory what is not sent is lost for good.
    let lost = made.ask(&format!("memory = 'none'\n{TOP_K}")).unwrap();
    assert!(lost.updates.sum_error > answer.updates.sum_error);
}

#[test]
fn updates_that_were_predicted_are_added_to_their_step() {
    let plain = Made::by("default = {}");
    let predicted = Made::by("memory = 'cafe'\ndefault = {}");
    let feedback = format!("memory = 'error-feedback'\n{TOP_K}");
    let (one, other) = (plain.ask(&feedback).unwrap(), predicted.ask(&feedback).unwrap());
    let (one, other) = (one.updates, other.updates);
    // The same but for what adding and taking off the step rounds.
    assert!(one.framed.abs_diff(other.framed) * 50 < one.framed, "{one:?} {other:?}");
    let (one, other) = (one.error.unwrap(), other.error.unwrap());
    assert!((one - other).abs() < 1e-2 * one, "{one} {other}");
    // What is predicted well costs little and is received well.
    let cafe = plain.ask(&format!("memory = 'cafe'\n{TOP_K}")).unwrap();
    let none = plain.ask(&format!("memory = 'none'\n{TOP_K}")).unwrap();
    assert!(cafe.clients[1].error < none.clients[1].error);
    assert_eq!((cafe.memory, cafe.step_memory), ("cafe", "error-feedback"));
}

#[test]
fn auto_is_error_feedback_only_where_everyone_took_part() {
    let mut made = Made::by("default = {}");
    assert_eq!(made.ask("").unwrap().memory, "error-feedback");
    made.stored.updates.remove(2);
    assert_eq!(made.ask("").unwrap().memory, "cafe");
}

/// The case: everyone took part, but the run's plan could not know that and chose CAFe.
#[test]
fn a_run_with_cafe_is_replayed_with_cafe_and_any_other_memory_is_named() {
    let uplink = format!("memory = 'cafe'\n{TOP_K}");
    let made = Made::by(&uplink);
    let auto = format!("memory = 'auto'\n{TOP_K}");
    let answer = made.ask(&auto).unwrap();
    assert_eq!(answer.memory, "cafe");
    assert!(
        answer.updates.sum_error.unwrap() < 0.02,
        "{:?}",
        answer.updates.sum_error
    );
    let named = |answer: &WhatIf| {
        answer
            .differences
            .iter()
            .any(|line| line.starts_with("memory of the updates"))
    };
    assert!(!named(&answer), "{:?}", answer.differences);
    let other = made.ask(&format!("memory = 'error-feedback'\n{TOP_K}")).unwrap();
    assert_eq!(other.memory, "error-feedback");
    assert!(other.differences[0].starts_with("memory of the updates: the run had cafe, the replay has error-feedback"));
}

/// A client that had not the step before could not predict by it, and is replayed without.
#[test]
fn an_update_that_was_not_predicted_is_not_predicted_in_the_replay() {
    let exact = "memory = 'cafe'\ndefault = {}";
    let (cafe, plain) = (Made::by(exact), Made::by("memory = 'none'\ndefault = {}"));
    let mut mixed = Made::by(exact);
    let replaced = plain.stored.updates.iter().filter(|update| update.client == "berta");
    for update in replaced {
        std::fs::copy(plain.blob(&update.frame), mixed.blob(&update.frame)).unwrap();
        let own = mixed.stored.updates.iter_mut();
        own.filter(|own| (own.round, &own.client) == (update.round, &update.client))
            .for_each(|own| own.clone_from(update));
    }
    let bytes = |made: &Made, text: &str| {
        let answer = made.ask(text).unwrap();
        answer.clients.iter().map(|line| line.framed).collect::<Vec<_>>()
    };
    let auto = format!("memory = 'auto'\n{TOP_K}");
    let (mixed, cafe) = (bytes(&mixed, &auto), bytes(&cafe, &auto));
    let none = bytes(&plain, &format!("memory = 'none'\n{TOP_K}"));
    assert_eq!((mixed[0], mixed[2]), (cafe[0], cafe[2]));
    assert!(
        mixed[1].abs_diff(none[1]) < mixed[1].abs_diff(cafe[1]),
        "{mixed:?} {cafe:?} {none:?}"
    );
}

#[test]
fn every_memory_that_a_run_can_have_is_answered() {
    let made = Made::by("default = {}");
    let memories = fl_compress::memories().filter(|memory| memory.encodes != Encodes::FromSum);
    for memory in memories.flat_map(|memory| memory.examples) {
        let answer = made.ask(&format!("memory = {memory}\n{TOP_K}")).unwrap();
        let error = answer.updates.error.unwrap();
        assert!(error > 0.0 && error.is_finite(), "{memory}: {error}");
        assert!(answer.updates.ratio.unwrap() > 4.0);
    }
    for text in ["memory = 'ef21'", "budget = '20B'\ndefault = {}"] {
        let error = made.ask(text).unwrap_err();
        assert!(matches!(error, WhatIfError::Spec(_)), "{text}: {error:?}");
    }
}

#[test]
fn any_number_of_threads_gives_the_same_answer() {
    let made = Made::by("memory = 'cafe'\ndefault = {}");
    let one = made.ask("").unwrap();
    for threads in [0, 2, 5, 64] {
        let mut seen = Vec::new();
        let progress = |done, total| seen.push((done, total));
        let many = what_if(made.data(), &made.stored, &spec(""), threads, progress).unwrap();
        assert_eq!(many, one, "{threads}");
        assert_eq!(seen, (1..=16).map(|done| (done, 16)).collect::<Vec<_>>());
    }
}

#[test]
fn what_is_not_kept_is_left_out_and_said() {
    let made = Made::by("default = {}");
    for update in made.stored.updates.iter().filter(|update| update.round < 3) {
        std::fs::remove_file(made.blob(&update.frame)).unwrap();
    }
    let answer = made.ask(TOP_K).unwrap();
    assert_eq!(answer.missing.into_iter().collect::<Vec<_>>(), [(1, 3), (2, 3)]);
    assert_eq!(
        (answer.updates.frames, answer.rounds.len(), answer.steps.frames),
        (6, 2, 4)
    );
    for update in &made.stored.updates {
        let _ = std::fs::remove_file(made.blob(&update.frame));
    }
    let error = made.ask(TOP_K).unwrap_err();
    assert!(
        matches!(&error, WhatIfError::Failed(why) if why.contains("keep_updates = true")),
        "{error}"
    );
}

#[test]
fn damaged_blobs_and_missing_steps_are_corruption_and_named() {
    let corrupt = |made: &Made, text: &str, named: &str| {
        let error = made.ask(text).unwrap_err();
        let WhatIfError::Stored(InspectError::Corrupt(why)) = &error else {
            panic!("{error:?}")
        };
        assert!(why.contains(named), "{why}");
    };
    let made = Made::by("default = {}");
    let name = made.stored.updates[5].frame.clone();
    let sound = std::fs::read(made.blob(&name)).unwrap();
    let longer = [sound.as_slice(), &[0]].concat();
    let flipped = [&[1], &sound[1..]].concat();
    for bytes in [&sound[..0], &sound[..sound.len() - 1], &longer, &flipped] {
        std::fs::write(made.blob(&name), bytes).unwrap();
        corrupt(&made, TOP_K, &name);
    }
    std::fs::write(made.blob(&name), &sound).unwrap();
    made.ask(TOP_K).unwrap();

    let step = made.stored.steps[1].frame.clone();
    std::fs::remove_file(made.blob(&step)).unwrap();
    corrupt(&made, TOP_K, &step);

    // A record that names a frame of another round, or another model update.
    let mut made = Made::by("memory = 'cafe'\ndefault = {}");
    made.stored.steps.swap(0, 1);
    made.stored.steps[0].round = 1;
    made.stored.steps[1].round = 2;
    corrupt(&made, TOP_K, "its predictor is not the model update");
    let mut made = Made::by("default = {}");
    made.stored.updates[0].round = 9;
    corrupt(&made, TOP_K, "of round 1");
    made.stored.updates[0].frame = "../../etc".to_owned();
    corrupt(&made, TOP_K, "digest");
}

#[test]
fn a_run_without_updates_has_no_answer() {
    let mut made = Made::by("default = {}");
    made.stored.updates.clear();
    let error = made.ask(TOP_K).unwrap_err();
    assert!(
        matches!(&error, WhatIfError::Failed(why) if why.contains("no update yet")),
        "{error}"
    );
}

#[test]
fn the_answer_says_what_it_is_and_tables_are_columns() {
    let made = Made::by("default = {}");
    let answer = made.ask(TOP_K).unwrap();
    let took = super::text::Took {
        threads: 2,
        time: std::time::Duration::from_millis(500),
    };
    let text = super::text::text(&answer, "top-k.toml", took);
    for words in [
        "top-k.toml",
        "the steps are encoded by the asked spec too",
        "nothing is trained again",
        "anna",
        "million a second",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let mut lines = text.lines();
    assert!(
        lines
            .next()
            .unwrap()
            .starts_with("With top-k.toml the updates of run test would have taken")
    );
    assert!(lines.next().unwrap().starts_with("Verdict: "));
    let scientific = |word: &str| word.contains("e-") && word.parse::<f64>().is_ok();
    assert!(!text.split_whitespace().any(scientific), "{text}");
    let json = serde_json::to_value(&answer).unwrap();
    assert_eq!(json["verdict"]["arrived"], 1.0 - answer.updates.sum_error.unwrap());
    assert_eq!(json["differences"].as_array().unwrap().len(), answer.differences.len());
    assert_eq!(json["clients"]["client"], serde_json::json!(["anna", "berta", "cleo"]));
    assert_eq!(json["rounds"]["framed"].as_array().unwrap().len(), ROUNDS as usize);
    assert!(json["updates"]["ratio"].as_f64().unwrap() > 4.0);
}
