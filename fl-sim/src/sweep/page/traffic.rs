//! Where the bytes went: by kind over a whole run, and by round.

use std::fmt::Write as _;

use super::section::Section;
use super::svg::{Area, Axis, END, begin, escape};
use crate::score::{Score, bytes};
use crate::sweep::statistics::Spread;
use crate::sweep::summary::Group;

/// The kinds and their classes.
pub(super) const KINDS: [(&str, &str); 4] = [
    ("updates, clients to server", "k0"),
    ("model updates, server to clients", "k1"),
    ("messages, HTTP/2 and TLS of the rounds", "k2"),
    ("joining, leaving, the last model", "k3"),
];

/// Rounds are drawn for so many points.
const SHOWN: usize = 8;

const BAR: Area = Area {
    width: 380.0,
    height: 200.0,
    left: 62.0,
    right: 8.0,
    top: 12.0,
    bottom: 42.0,
};

/// Bytes of a run by kind, in the order of [`KINDS`].
fn kinds(score: &Score) -> [u64; 4] {
    let sum = |of: fn(&crate::score::RoundLine) -> u64| score.rounds.iter().map(of).sum::<u64>();
    let (up, down) = (sum(|round| round.frames_up), sum(|round| round.frames_down));
    let rounds = sum(|round| round.up.saturating_add(round.down));
    let messages = rounds.saturating_sub(up + down);
    [up, down, messages, score.sent().saturating_sub(rounds)]
}

fn means<const N: usize>(group: &Group, of: impl Fn(&Score) -> [u64; N]) -> [f64; N] {
    let all: Vec<[u64; N]> = group.records.iter().map(|record| of(&record.score)).collect();
    std::array::from_fn(|kind| {
        let values: Vec<f64> = all.iter().map(|kinds| kinds[kind] as f64).collect();
        Spread::of(&values).map_or(0.0, |spread| spread.mean)
    })
}

/// A bar for each point, as shares of its bytes: totals differ by orders of magnitude and stand beside the bars.
pub(super) fn by_kind(section: &Section<'_>) -> String {
    let mut out = String::from("<div class=\"bars\">\n");
    for (row, group) in section.outcome.rows.iter().zip(section.groups) {
        let kinds = means(group, kinds);
        let total: f64 = kinds.iter().sum();
        let _ = write!(
            out,
            "<span class=\"who\">{}</span><span class=\"bar\">",
            escape(&section.name(row))
        );
        for ((about, class), count) in KINDS.iter().zip(kinds) {
            let share = 100.0 * count / total.max(1.0);
            let text = if share >= 9.0 {
                format!("{share:.0} %")
            } else {
                String::new()
            };
            let _ = write!(
                out,
                "<span class=\"{class}\" style=\"width:{share:.2}%\" title=\"{about}: {} ({share:.1} %)\">{text}</span>",
                bytes(count as u64),
            );
        }
        let _ = writeln!(out, "</span><span class=\"total\">{}</span>", bytes(total as u64));
    }
    out.push_str("</div>\n");
    out
}

/// A small chart for each point: the bytes of every round by kind, mean of the seeds.
pub(super) fn by_round(section: &Section<'_>) -> String {
    let mut out = String::from("<div class=\"small\">\n");
    let rows = section.outcome.rows.iter().zip(section.groups);
    for (row, group) in rows.filter(|(row, _)| row.chosen).take(SHOWN) {
        let at = |at: usize| {
            means(group, |score| {
                score.rounds.get(at).map_or([0; 3], |round| {
                    let frames = round.frames_up.saturating_add(round.frames_down);
                    let all = round.up.saturating_add(round.down);
                    [round.frames_up, round.frames_down, all.saturating_sub(frames)]
                })
            })
        };
        let columns: Vec<[f64; 3]> = (0..group.rounds()).map(at).collect();
        let _ = writeln!(
            out,
            "<figure><figcaption>{}</figcaption>\n{}</figure>",
            escape(&section.name(row)),
            stacked(&columns)
        );
    }
    out.push_str("</div>\n");
    out
}

/// Stacked columns, one for each round. Its axis has one unit, that of the largest round.
fn stacked(columns: &[[f64; 3]]) -> String {
    let total = |column: &[f64; 3]| column.iter().sum::<f64>();
    let most = columns.iter().map(total).fold(1.0, f64::max);
    let (unit, scale) = match most {
        most if most < 1024.0 => ("bytes", 1.0),
        most if most < 1_048_576.0 => ("KiB", 1024.0),
        _ => ("MiB", 1_048_576.0),
    };
    let y = Axis::linear([0.0, most / scale].into_iter(), true);
    let mut x = Axis::rounds(columns.len());
    // Columns are centered in slots of equal width.
    let slot = 1.0 / columns.len().max(1) as f64;
    let ticks = std::mem::take(&mut x.ticks);
    let mut out = begin(&BAR, &x, &y, ["round", unit], "bytes by round and kind");
    for (round, text) in ticks {
        let at = BAR.x((round - 0.5) * slot);
        let _ = writeln!(
            out,
            "<text class=\"tick middle\" x=\"{at:.1}\" y=\"{:.1}\">{text}</text>",
            BAR.y(0.0) + 17.0
        );
    }
    for (at, column) in columns.iter().enumerate() {
        let (from, to) = (BAR.x((at as f64 + 0.12) * slot), BAR.x((at as f64 + 0.88) * slot));
        let mut below = 0.0;
        for (count, (about, class)) in column.iter().zip(KINDS) {
            let (low, high) = (BAR.y(y.at(below / scale)), BAR.y(y.at((below + count) / scale)));
            below += count;
            let _ = writeln!(
                out,
                "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{high:.1}\" width=\"{:.1}\" height=\"{:.1}\">\
                 <title>round {}, {about}: {}</title></rect>",
                to - from,
                low - high,
                at + 1,
                bytes(*count as u64)
            );
        }
    }
    out.push_str(END);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::summary::tests::group;

    #[test]
    fn kinds_add_up_to_the_sockets() {
        let group = group("ours", 0, &[&[0.5, 0.6]], 100);
        let score = &group.records[0].score;
        assert_eq!(kinds(score), [100, 100, 200, 10]);
        assert_eq!(kinds(score).iter().sum::<u64>(), score.sent());
    }
}
