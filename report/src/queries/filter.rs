//! Restricts a question to one round, one client or both.

use crate::error::Error;
use crate::report::Report;
use crate::report::flow::Flow;
use crate::report::participation::Participation;
use crate::report::round::RoundLine;

/// The lines that a question is about. Empty: all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Only lines of this round.
    pub round: Option<u64>,
    /// Only lines of this client.
    pub client: Option<String>,
}

/// Names that an error shows.
const SHOWN: usize = 5;
/// Characters of a name that an error shows and compares.
const SHOWN_CHARS: usize = 64;

impl Filter {
    /// Refuses a round or client that the run does not have.
    pub(super) fn check(&self, report: &Report) -> Result<(), Error> {
        if let Some(round) = self.round {
            // Bytes before the first round or after the last are booked to a round without a round line.
            let known = report.round(round).is_some() || report.participations.iter().any(|line| line.round == round);
            if !known {
                return Err(no_round(round, report));
            }
        }
        match &self.client {
            Some(client) if report.client(client).is_none() => Err(no_client(client, report)),
            _ => Ok(()),
        }
    }

    pub(super) fn has_round(&self, round: u64) -> bool {
        self.round.is_none_or(|own| own == round)
    }

    pub(super) fn has_client(&self, client: &str) -> bool {
        self.client.as_ref().is_none_or(|own| own == client)
    }

    pub(super) fn rounds<'a>(&self, report: &'a Report) -> impl Iterator<Item = &'a RoundLine> + Clone {
        report.rounds.iter().filter(|line| self.has_round(line.round))
    }

    pub(super) fn participations<'a>(&self, report: &'a Report) -> impl Iterator<Item = &'a Participation> + Clone {
        let lines = report.participations.iter();
        lines.filter(|line| self.has_round(line.round) && self.has_client(&line.client))
    }

    /// The bytes of these lines, added up.
    pub(super) fn flow(&self, report: &Report) -> Flow {
        match (self.round, &self.client) {
            (None, None) => report.totals,
            (None, Some(client)) => report.client(client).map(|line| line.flow).unwrap_or_default(),
            (Some(_), _) => {
                let mut flow = Flow::default();
                self.participations(report).for_each(|line| flow.add(&line.flow));
                flow
            }
        }
    }
}

fn no_round(round: u64, report: &Report) -> Error {
    let has = match (report.rounds.first(), report.rounds.last()) {
        (Some(first), Some(last)) if first.round < last.round => {
            format!("it has rounds {} to {}", first.round, last.round)
        }
        (Some(only), _) => format!("it has only round {}", only.round),
        (None, _) => "no round was opened yet".to_owned(),
    };
    Error::NoRound { round, has }
}

fn no_client(client: &str, report: &Report) -> Error {
    let client = cut(client);
    let names = report.clients.iter().map(|line| {
        let name = cut(&line.client);
        (strsim::jaro_winkler(&client, &name), name)
    });
    let mut names: Vec<(f64, String)> = names.collect();
    names.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let shown: Vec<String> = names.iter().take(SHOWN).map(|(_, name)| format!("{name:?}")).collect();
    let has = match names.len() {
        0 => "no client was seen yet".to_owned(),
        1..=SHOWN => format!("it has {}", shown.join(", ")),
        all => format!("the nearest of its {all} are {}", shown.join(", ")),
    };
    Error::NoClient { client, has }
}

fn cut(name: &str) -> String {
    name.chars().take(SHOWN_CHARS).collect()
}
