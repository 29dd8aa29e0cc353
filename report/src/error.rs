//! What can be wrong with a question to a report.

use crate::report::Report;

/// Why a question has no answer, in words for the person who asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A round that the run does not have.
    #[error("the run has no round {round}; {has}")]
    NoRound {
        /// The round asked for.
        round: u64,
        /// Which there are.
        has: String,
    },
    /// A client that the run does not have.
    #[error("the run has no client {client:?}; {has}")]
    NoClient {
        /// The name asked for, cut to a length that a line can show.
        client: String,
        /// The nearest names.
        has: String,
    },
    /// Something that a report does not hold.
    #[error("{0}")]
    NotKept(&'static str),
    /// A costs file that is not TOML, or has a key that is unknown or of another type.
    #[error("{0}")]
    Syntax(String),
    /// A value of a costs file that breaks a rule.
    #[error("`{key}` is {value}, but {rule}")]
    Value {
        /// The key with its table.
        key: String,
        /// Its value as written.
        value: String,
        /// The rule.
        rule: &'static str,
    },
    /// A form that could not be written.
    #[error("{form} cannot be written: {why}")]
    Form {
        /// The form's name.
        form: &'static str,
        /// Why.
        why: String,
    },
}

/// Names that an error shows.
const SHOWN: usize = 5;
/// Characters of a name that an error shows, and that are compared.
const SHOWN_CHARS: usize = 64;

impl Error {
    pub(crate) fn no_round(round: u64, report: &Report) -> Self {
        let has = match (report.rounds.first(), report.rounds.last()) {
            (Some(first), Some(last)) if first.round < last.round => {
                format!("it has rounds {} to {}", first.round, last.round)
            }
            (Some(only), _) => format!("it has only round {}", only.round),
            (None, _) => "no round was opened yet".to_owned(),
        };
        Self::NoRound { round, has }
    }

    pub(crate) fn no_client(client: &str, report: &Report) -> Self {
        let asked = cut(client);
        let mut near: Vec<(f64, String)> = report
            .clients
            .iter()
            .map(|line| cut(&line.client))
            .map(|name| (strsim::jaro_winkler(&asked, &name), name))
            .collect();
        near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let names: Vec<String> = near.iter().take(SHOWN).map(|(_, name)| format!("{name:?}")).collect();
        let has = match near.len() {
            0 => "no client was seen yet".to_owned(),
            1..=SHOWN => format!("it has {}", names.join(", ")),
            all => format!("the nearest of its {all} are {}", names.join(", ")),
        };
        Self::NoClient { client: asked, has }
    }

    pub(crate) fn form(form: &'static str) -> impl Fn(String) -> Self {
        move |why| Self::Form { form, why }
    }
}

fn cut(name: &str) -> String {
    name.chars().take(SHOWN_CHARS).collect()
}
