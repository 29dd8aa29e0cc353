//! Questions to a report: one table for each, with the lines of one round or one client where asked.

use crate::against::{BaselineRound, ReachLine, RunRound, TotalLine};
use crate::columns::{Line, Table};
use crate::costs::{ClientCost, RoundCost};
use crate::directions::{DirectionLine, directions};
use crate::error::Error;
use crate::lines::{ClientLine, Participation, RoundLine, TensorLine};
use crate::report::Report;
use crate::savings::{Saving, costs};
use crate::scale::ScaleLine;
use crate::stages::{StageLine, stages};
use crate::tensors::{TensorTotal, totals};

/// By what a report's bytes are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// Rounds.
    Round,
    /// Clients.
    Client,
    /// Clients in rounds.
    Participation,
    /// Tensors, in each direction.
    Tensor,
    /// Stages of compression, in each direction.
    Stage,
    /// What the bytes on the sockets were for.
    Direction,
    /// What was paid for, and what to change.
    Saving,
}

impl By {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Round,
        Self::Client,
        Self::Participation,
        Self::Tensor,
        Self::Stage,
        Self::Direction,
        Self::Saving,
    ];

    /// Its name in every form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Round => "round",
            Self::Client => "client",
            Self::Participation => "participation",
            Self::Tensor => "tensor",
            Self::Stage => "stage",
            Self::Direction => "direction",
            Self::Saving => "saving",
        }
    }
}

/// Which lines are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Those of one round.
    pub round: Option<u64>,
    /// Those of one client.
    pub client: Option<String>,
}

impl Report {
    /// The lines of a question. By round and client together, both ask for participations.
    ///
    /// # Errors
    /// `NoRound`, `NoClient`; `NotKept` for the tensors of one client.
    pub fn table(&self, by: By, filter: &Filter) -> Result<Table, Error> {
        if let Some(round) = filter.round {
            // Bytes before the first round, or after the last, are booked to one that has no line of its own.
            let known = self.round(round).is_some() || self.participations.iter().any(|line| line.round == round);
            known.then_some(()).ok_or_else(|| Error::no_round(round, self))?;
        }
        if let Some(client) = &filter.client {
            self.client(client).ok_or_else(|| Error::no_client(client, self))?;
        }
        let lines = self.participations.iter().filter(|line| {
            filter.round.is_none_or(|round| round == line.round)
                && filter.client.as_ref().is_none_or(|client| *client == line.client)
        });
        Ok(match by {
            By::Round if filter.client.is_none() => Table::of(
                self.rounds
                    .iter()
                    .filter(|line| filter.round.is_none_or(|round| round == line.round)),
            ),
            By::Client if filter.round.is_none() => Table::of(
                self.clients
                    .iter()
                    .filter(|line| filter.client.as_ref().is_none_or(|client| *client == line.client)),
            ),
            By::Round | By::Client | By::Participation => Table::of(lines),
            By::Tensor if filter.client.is_some() => {
                return Err(Error::NotKept(
                    "tensors are not kept per client: ask by tensor without a client, or for the client by stage",
                ));
            }
            By::Tensor => match filter.round {
                Some(round) => Table::of(self.tensors.iter().filter(|line| line.round == round)),
                None => Table::of(totals(&self.tensors).iter()),
            },
            By::Stage => Table::of(stages(self, filter).iter()),
            By::Direction => Table::of(directions(self, filter).iter()),
            By::Saving => Table::of(costs(self, filter).iter()),
        })
    }

    /// The line of this round.
    pub fn round(&self, round: u64) -> Option<&RoundLine> {
        self.rounds.iter().find(|line| line.round == round)
    }

    /// The line of this client.
    pub fn client(&self, client: &str) -> Option<&ClientLine> {
        self.clients.iter().find(|line| line.client == client)
    }
}

/// Every kind of table of a report, with no line: its name, what a line is, and its columns.
pub fn schemas() -> [(&'static str, &'static str, Table); 15] {
    fn empty<L: Line>() -> Table {
        Table::of(std::iter::empty::<&L>())
    }
    [
        ("round", "One line a round.", empty::<RoundLine>()),
        ("client", "One line a client.", empty::<ClientLine>()),
        (
            "participation",
            "One line for each client in each round; also what `--by round --client C` and `--by client --round R` give.",
            empty::<Participation>(),
        ),
        (
            "tensor",
            "One line for each tensor and direction, over all rounds.",
            empty::<TensorTotal>(),
        ),
        (
            "tensor of a round",
            "One line for each tensor and direction of one round: `--by tensor --round R`, and `tensors` of the JSON.",
            empty::<TensorLine>(),
        ),
        ("stage", "One line for each direction and stage.", empty::<StageLine>()),
        (
            "direction",
            "One line for each direction and kind of bytes; the kinds of a direction add up to its sockets.",
            empty::<DirectionLine>(),
        ),
        (
            "saving",
            "One line for each cost, the largest first; they add up to the sockets. `savings` of the JSON has the first three.",
            empty::<Saving>(),
        ),
        (
            "scale",
            "One line for each direction and kind of bytes: `kinds` of the JSON of `--scale`.",
            empty::<ScaleLine>(),
        ),
        (
            "costs by client",
            "Columns that `--by client --costs FILE` adds; also `costs.clients` of the JSON.",
            empty::<ClientCost>(),
        ),
        (
            "costs by round",
            "Columns that `--by round --costs FILE` adds; also `costs.rounds` of the JSON.",
            empty::<RoundCost>(),
        ),
        (
            "against a baseline",
            "One line a round: `--against fedavg-fp32`, and `rounds` of its JSON.",
            empty::<BaselineRound>(),
        ),
        (
            "against a run",
            "One line a round: `--against RUN2`, and `rounds` of its JSON.",
            empty::<RunRound>(),
        ),
        (
            "totals of a comparison",
            "Two lines, this run's first: `totals` of the JSON of `--against`.",
            empty::<TotalLine>(),
        ),
        (
            "reach of a comparison",
            "One line for each accuracy that one of the runs reached: `reach` of the JSON of `--against RUN2`.",
            empty::<ReachLine>(),
        ),
    ]
}
