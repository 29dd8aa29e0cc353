//! The page of a sweep: one HTML file with its style and pictures, without scripts and without network requests.

mod front;
mod loss;
mod section;
mod svg;
mod times;
mod traffic;

use std::fmt::Write as _;

use super::outcome::{Outcome, PhaseOutcome};
use super::phase::Phase;
use super::statistics::Quality;
use super::text::cells;
pub(super) use section::Section;
use svg::{escape, series};

const STYLE: &str = include_str!("page.css");

/// Writes the page of a sweep. `title`: the name of its file.
pub(super) fn page(title: &str, outcome: &Outcome, sections: &[Section<'_>]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}: sweep</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n",
        title = escape(title)
    );
    if outcome.quick {
        out.push_str(
            "<p class=\"warn\">The quick form: fewer rounds and seeds, too short for a figure to be cited.</p>\n",
        );
    }
    if outcome.builds.len() > 1 {
        let _ = writeln!(
            out,
            "<p class=\"warn\">The trials were run by {} builds of the program: {}.</p>",
            outcome.builds.len(),
            escape(&outcome.builds.join(", "))
        );
    }
    // What is reported comes first; how it was chosen follows.
    for section in sections.iter().rev() {
        write_section(&mut out, section);
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn write_section(out: &mut String, section: &Section<'_>) {
    let title = if section.is_choice() { "Choice" } else { "Report" };
    let _ = writeln!(
        out,
        "<section>\n<h2>{title}</h2>\n<p>{}</p>",
        escape(&section.outcome.about("bold:"))
    );
    write_table(out, section.outcome);
    out.push_str("<div class=\"charts\">\n");
    let front = front::chart(section);
    if !front.is_empty() {
        let _ = writeln!(
            out,
            "<figure><figcaption>Quality against bytes <small>mean of the last three rounds; small dots are seeds, the line is \
             the Pareto front</small></figcaption>\n{front}</figure>"
        );
    }
    let loss = loss::chart(section);
    if !loss.is_empty() {
        let _ = writeln!(
            out,
            "<figure><figcaption>Loss against round <small>mean of the seeds and their range</small></figcaption>\n{loss}{}</figure>",
            legend(section)
        );
    }
    out.push_str("</div>\n");
    let kinds: Vec<String> = traffic::KINDS
        .iter()
        .map(|(about, class)| format!("<span><i class=\"{class}\"></i>{about}</span>"))
        .collect();
    let _ = writeln!(
        out,
        "<figure><figcaption>Bytes by kind <small>shares of a run's bytes on the sockets; the total is on the right</small>\
         </figcaption>\n<p class=\"legend\">{}</p>\n{}</figure>",
        kinds.join(""),
        traffic::by_kind(section)
    );
    let _ = writeln!(
        out,
        "<h3>Bytes by round <small>each picture has its own scale</small></h3>\n{}{}</section>",
        traffic::by_round(section),
        times::table(section.outcome)
    );
}

fn legend(section: &Section<'_>) -> String {
    let entry =
        |(name, color): (String, usize)| format!("<span><i class=\"{}\"></i>{}</span>", series(color), escape(&name));
    let entries: Vec<String> = section.legend().into_iter().map(entry).collect();
    format!("<p class=\"legend\">{}</p>", entries.join(""))
}

fn write_table(out: &mut String, outcome: &PhaseOutcome) {
    let quality = outcome.quality.map_or("quality", Quality::name);
    let against = escape(&outcome.baseline);
    let averaged = match outcome.has_average() {
        true => format!(
            "<th>{quality}<small>averaged model</small></th><th>less {against}<small>averaged model, 95 %</small></th>"
        ),
        false => String::new(),
    };
    let _ = write!(
        out,
        "<div class=\"wide\"><table>\n<thead><tr><th>variant</th><th>point</th><th>{quality}<small>last model</small></th>\
         <th>{quality}<small>last 3 rounds</small></th><th>less {against}<small>last model, 95 %</small></th>\
         <th>less {against}<small>last 3 rounds, 95 %</small></th>{averaged}<th>bytes</th><th>bits a value<small>up / down</small></th>\
         <th>ratio<small>to fp32 averaging</small></th><th>ratio<small>without its first download</small></th>\
         <th>ratio<small>bytes {}</small></th></tr></thead>\n<tbody>\n",
        escape(&outcome.reach_heading())
    );
    for (line, row) in cells(outcome).iter().skip(1).zip(&outcome.rows) {
        let is_chosen = row.chosen && outcome.phase == Phase::Choose;
        let class = if is_chosen { " class=\"chosen\"" } else { "" };
        let line: Vec<String> = line.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
        let _ = writeln!(out, "<tr{class}>{}</tr>", line.concat());
    }
    out.push_str("</tbody></table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::file::tests::{FILE, read};
    use crate::sweep::summary::tests::group;

    #[test]
    fn a_table_has_a_heading_for_each_cell_with_and_without_averaged_models() {
        let mut groups = [group("fp32", 0, &[&[0.9]], 1000), group("ours", 0, &[&[0.85]], 100)];
        for averages in [false, true] {
            if averages {
                for group in &mut groups {
                    let last = group.records[0].score.rounds.last_mut().unwrap();
                    last.metrics.insert("evaluation/average_accuracy".to_owned(), 0.9);
                }
            }
            let outcome = PhaseOutcome::of(&read(FILE).unwrap(), Phase::Report, &groups);
            assert_eq!(outcome.has_average(), averages);
            let mut table = String::new();
            write_table(&mut table, &outcome);
            let count = |what: &str| table.matches(what).count();
            assert_eq!(count("<th>") * outcome.rows.len(), count("<td>"), "{table}");
        }
    }
}
