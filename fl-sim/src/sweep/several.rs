//! The sweeps of a folder, and their summary.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;
use toml::Table;

use super::outcome::Outcome;
use super::phase::Phase;
use super::summary::Summary;
use super::text::{align, estimate, line, reach};
use crate::statistics::Quality;
use crate::wrong::{self, wrong};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct NamedOutcome {
    /// The sweep's file, without its folder and its ending.
    pub(crate) sweep: String,
    pub(crate) outcome: Outcome,
}

/// The sweep files of `dir`, by name: those with the keys `report` and `baseline`.
///
/// # Errors
/// `Config` if the folder has none, or a file in it cannot be read.
pub(super) fn files(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).map_err(|e| wrong(dir.display(), e))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| dir.display().to_string())?.path();
        if path.extension().is_none_or(|ending| ending != "toml") {
            continue;
        }
        let table = wrong::read(&path)?.parse::<Table>();
        let table = table.map_err(|e| wrong(path.display(), e))?;
        if table.contains_key("report") && table.contains_key("baseline") {
            files.push(path);
        }
    }
    if files.is_empty() {
        let why = "holds no sweep: no .toml file has the keys `report` and `baseline`";
        return Err(wrong(dir.display(), why).into());
    }
    files.sort();
    Ok(files)
}

/// A row for each reported point; of a sweep that ran its choice alone, for each chosen one.
pub(super) fn summary(found: &[NamedOutcome]) -> String {
    let header = [
        "sweep",
        "variant",
        "point",
        "quality",
        "last 3 rounds",
        "of last 3",
        "bytes",
        "ratio",
        "reach",
    ];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    for NamedOutcome { sweep, outcome } in found {
        let reported = outcome.phases.iter().find(|phase| phase.phase == Phase::Report);
        let Some(phase) = reported.or(outcome.phases.first()) else {
            continue;
        };
        let rows = phase.rows.iter().filter(|row| row.chosen);
        lines.extend(rows.map(|row| cells(sweep, row, phase.quality)));
    }
    align(&lines)
}

fn cells(sweep: &str, row: &Summary, quality: Option<Quality>) -> Vec<String> {
    let all = line(row, quality);
    let digits = quality.map_or(2, Quality::digits);
    vec![
        sweep.to_owned(),
        all[0].clone(),
        all[1].clone(),
        quality.map_or("-", Quality::name).to_owned(),
        all[3].clone(),
        estimate(row.tail_difference, digits),
        all[6].clone(),
        all[8].clone(),
        reach(row),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sweeps_of_a_folder_are_its_files_with_seeds_to_report() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        let why = format!("{:#}", files(dir.path()).unwrap_err());
        assert!(why.contains("holds no sweep"), "{why}");
        write("b.toml", "report = [1]\nbaseline = \"fp32\"");
        write("a.toml", "report = [2]\nbaseline = \"fp32\"");
        write("experiment.toml", "seeds = [1]");
        write("notes.txt", "report");
        let found = files(dir.path()).unwrap();
        assert_eq!(found, ["a.toml", "b.toml"].map(|name| dir.path().join(name)));
        write("c.toml", "report = [");
        let why = format!("{:#}", files(dir.path()).unwrap_err());
        assert!(why.contains("c.toml"), "{why}");
    }
}
