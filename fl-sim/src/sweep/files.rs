//! The files that a sweep writes into its folder: its trials as CSV and JSON, and its page.

use serde::Serialize;

use super::folder::Folder;
use super::outcome::Outcome;
use super::page::{Section, page};
use super::summary::Group;
use super::trial::Record;
use crate::score::{RoundLine, Score};
use crate::statistics::Quality;

/// Writes `trials.csv`, `rounds.csv`, `times.csv`, `trials.json` and `sweep.html`. `groups`: the trials of each phase of `outcome`.
pub(super) fn write(folder: &Folder, title: &str, outcome: &Outcome, groups: &[Vec<Group>]) -> anyhow::Result<()> {
    let all = groups.iter().flatten();
    let runs: Vec<Run<'_>> = all
        .flat_map(|group| group.records.iter().map(|record| Run::of(group, record)))
        .collect();
    folder.write(
        "trials.csv",
        &csv(runs.iter().map(|run| (run.head(), RunLine::of(run))))?,
    )?;
    let rounds = runs.iter().flat_map(|run| {
        let rounds = run.score.rounds.iter();
        rounds.map(|round| (run.head(), Line::of(round)))
    });
    folder.write("rounds.csv", &csv(rounds)?)?;
    let times = runs
        .iter()
        .flat_map(|run| run.score.times.iter().map(|time| (run.head(), time)));
    folder.write("times.csv", &csv(times)?)?;
    folder.write("trials.json", &serde_json::to_vec_pretty(&runs)?)?;
    let sections = outcome.phases.iter().zip(groups);
    let sections: Vec<Section<'_>> = sections.map(|(outcome, groups)| Section { outcome, groups }).collect();
    folder.write("sweep.html", page(title, outcome, &sections)?.as_bytes())
}

fn csv(rows: impl Iterator<Item = impl Serialize>) -> anyhow::Result<Vec<u8>> {
    let mut out = csv::Writer::from_writer(Vec::new());
    for row in rows {
        out.serialize(row)?;
    }
    Ok(out.into_inner()?)
}

#[derive(Serialize)]
struct Run<'a> {
    phase: String,
    variant: &'a str,
    point: usize,
    label: &'a str,
    settings: &'a [(String, String)],
    seed: u64,
    build: &'a str,
    score: &'a Score,
}

impl<'a> Run<'a> {
    fn of(group: &'a Group, record: &'a Record) -> Self {
        Self {
            phase: record.phase.to_string(),
            variant: &record.variant,
            point: group.point,
            label: &group.label,
            settings: &record.settings,
            seed: record.seed,
            build: &record.build,
            score: &record.score,
        }
    }

    fn head(&self) -> Head<'_> {
        Head {
            phase: &self.phase,
            variant: self.variant,
            point: self.point,
            label: self.label,
            seed: self.seed,
        }
    }
}

/// The first columns of a row of CSV.
#[derive(Serialize)]
struct Head<'a> {
    phase: &'a str,
    variant: &'a str,
    point: usize,
    label: &'a str,
    seed: u64,
}

/// The other columns of `trials.csv`.
#[derive(Serialize)]
struct RunLine<'a> {
    accuracy: Option<f64>,
    perplexity: Option<f64>,
    rmse: Option<f64>,
    /// The same quality, mean of the last three rounds.
    last_3: Option<f64>,
    /// The same quality, of the averaged model.
    averaged: Option<f64>,
    rounds: usize,
    clients: u64,
    parameters: u64,
    bytes_up: u64,
    bytes_down: u64,
    bits_up: f64,
    bits_down: f64,
    ratio: f64,
    ratio_without_first: f64,
    /// On the virtual clock.
    seconds: Option<f64>,
    /// From the first update of a round to its last, mean of the rounds.
    spread: Option<f64>,
    model: &'a str,
    build: &'a str,
}

impl<'a> RunLine<'a> {
    fn of(run: &'a Run<'_>) -> Self {
        let score = run.score;
        Self {
            accuracy: Quality::Accuracy.last(score),
            perplexity: score.perplexity(),
            rmse: score.rmse(),
            last_3: Quality::of(&std::iter::once(score)).and_then(|quality| quality.tail(score)),
            averaged: Quality::of(&std::iter::once(score)).and_then(|quality| quality.averaged(score)),
            rounds: score.rounds.len(),
            clients: score.clients,
            parameters: score.parameters,
            bytes_up: score.server_socket.0,
            bytes_down: score.server_socket.1,
            bits_up: score.bits().0,
            bits_down: score.bits().1,
            ratio: score.ratio(),
            ratio_without_first: score.ratio_without_first(),
            seconds: score.virtual_seconds(),
            spread: score.spread(),
            model: &score.model,
            build: run.build,
        }
    }
}

/// The other columns of `rounds.csv`.
#[derive(Serialize)]
struct Line {
    round: u64,
    updates: u64,
    accuracy: Option<f64>,
    perplexity: Option<f64>,
    rmse: Option<f64>,
    test_loss: Option<f64>,
    train_loss: f64,
    bytes_up: u64,
    bytes_down: u64,
    frames_up: u64,
    frames_down: u64,
    seconds: f64,
    spread: Option<f64>,
}

impl Line {
    fn of(round: &RoundLine) -> Self {
        Self {
            round: round.round,
            updates: round.updates,
            accuracy: Quality::Accuracy.at(round),
            perplexity: round.perplexity,
            rmse: round.rmse(),
            test_loss: round.test_loss,
            train_loss: round.train_loss,
            bytes_up: round.up,
            bytes_down: round.down,
            frames_up: round.frames_up,
            frames_down: round.frames_down,
            seconds: round.seconds,
            spread: round.spread,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::file::tests::{FILE, read};
    use super::super::outcome::PhaseOutcome;
    use super::super::phase::Phase;
    use super::super::summary::tests::group;
    use super::*;
    use crate::score::LinkTime;

    /// The files of two points under two seeds. `label`: of the second.
    fn written(label: &str) -> (tempfile::TempDir, impl Fn(&Path, &str) -> String) {
        let sweep = read(FILE).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path(), &sweep, FILE).unwrap();
        let mut ours = group("ours", 0, &[&[0.4, 0.7], &[0.5, 0.8]], 10);
        ours.label = label.to_owned();
        for (at, record) in ours.records.iter_mut().enumerate() {
            record.score.times = vec![LinkTime {
                mbit: 10.0,
                latency_ms: 50.0,
                seconds: 3.0 + at as f64,
            }];
        }
        let groups = vec![group("fp32", 0, &[&[0.5, 0.8], &[0.5, 0.9]], 1000), ours];
        let outcome = Outcome {
            quick: false,
            builds: vec!["a".into()],
            phases: vec![PhaseOutcome::of(&sweep, Phase::Report, &groups)],
        };
        write(&folder, "tiny", &outcome, &[groups]).unwrap();
        (dir, |dir: &Path, name: &str| {
            std::fs::read_to_string(dir.join(name)).unwrap()
        })
    }

    #[test]
    fn tables_have_a_row_for_each_trial_and_each_round() {
        let (dir, file) = written("budget=\"a, b\"");
        let trials = file(dir.path(), "trials.csv");
        let mut lines = trials.lines();
        let head = "phase,variant,point,label,seed,accuracy,perplexity,rmse,last_3,averaged,rounds,clients,parameters,\
                    bytes_up,bytes_down,bits_up,bits_down,ratio,ratio_without_first,seconds,spread,model,build";
        assert_eq!(lines.next(), Some(head));
        assert_eq!(
            lines.next(),
            Some(
                "report,fp32,0,,0,80.0,,,65.0,,2,2,10,2005,2005,200.0,200.0,0.09975062344139651,0.0798004987531172,,,,"
            )
        );
        assert_eq!(lines.count(), 3);
        assert!(trials.contains("ours,0,\"budget=\"\"a, b\"\"\",1,80.0,"), "{trials}");
        assert_eq!(file(dir.path(), "rounds.csv").lines().count(), 1 + 2 * 2 * 2);
        let times = file(dir.path(), "times.csv");
        assert_eq!(
            times.lines().next(),
            Some("phase,variant,point,label,seed,mbit,latency_ms,seconds")
        );
        assert!(
            times.lines().count() == 3 && times.contains(",1,10.0,50.0,4.0"),
            "{times}"
        );
        let page = data(&file(dir.path(), "sweep.html"));
        assert_eq!(page["phases"][0]["times"]["rows"][1][4], "3.5", "the mean of the seeds");
        let json: serde_json::Value = serde_json::from_str(&file(dir.path(), "trials.json")).unwrap();
        assert_eq!(json.as_array().map(Vec::len), Some(4));
        assert_eq!(json[3]["score"]["rounds"][1]["accuracy"].as_f64(), Some(0.8));
    }

    /// What the scripts of a page draw.
    fn data(page: &str) -> serde_json::Value {
        let (_, rest) = page.split_once("id=\"data\">").unwrap();
        serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
    }

    #[test]
    fn the_page_needs_no_network_and_no_text_leaves_its_place() {
        let label = "<script>alert(1)</script>\"";
        let (dir, file) = written(label);
        let page = file(dir.path(), "sweep.html");
        assert_eq!(data(&page)["phases"][0]["points"][1]["name"], label);
        for part in ["<script>", "src=\"http", "href=\"http", "url(http", "@import"] {
            assert!(!page.contains(part), "{part}");
        }
    }

    /// The tests of the page in a browser read the same file, so what is written is what they draw. `UPDATE_GOLDEN=1` rewrites it.
    #[test]
    fn the_data_of_the_page_is_golden() {
        let (dir, file) = written("budget=0.2 bits");
        let page = data(&file(dir.path(), "sweep.html"));
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../page/test/sweep.json");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, format!("{page:#}\n")).unwrap();
        }
        let golden: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert!(golden == page, "sweep.json has changed; it is now:\n{page:#}");
    }
}
