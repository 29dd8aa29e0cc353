//! What is left of a client's claim in a round.

use std::fmt;

use fl_proto::ClientId;
use serde::{Deserialize, Serialize};

/// A claim of a client that counts for less than it says: under the plan's limits, or in a mean loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limited {
    pub client: ClientId,
    pub of: Claim,
    pub claimed: u64,
    /// Examples that it counts with; 0 if it does not count.
    pub counted: f64,
    /// L2 norm of the decoded update or of its buffers; the loss.
    pub norm: f64,
    /// What `norm` is compared with.
    pub reference: f64,
    /// Factor of the values, 0 to 1.
    pub scale: f64,
}

/// What a client claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Claim {
    /// The trained values of an update.
    Update,
    /// The buffers of an update.
    Buffers,
    /// The loss of a training.
    TrainingLoss,
    /// The loss of an evaluation.
    EvaluationLoss,
}

impl Limited {
    /// Share of what was claimed that counts, 0 to 1.
    pub fn share(&self) -> f64 {
        self.counted / self.claimed.max(1) as f64 * self.scale
    }

    /// Whether less than half of what was claimed counts. Honest claims differ by less.
    pub fn is_conspicuous(&self) -> bool {
        self.counted < 0.5 * self.claimed as f64 || self.scale < 0.5
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            client,
            of,
            claimed,
            counted,
            norm,
            reference,
            scale,
        } = self;
        let loss = |what| {
            format!(
                "the {what} loss of {client} counts with {scale:.2e} of its value: it is {norm:.3e}, the median {reference:.3e}"
            )
        };
        let keys = match of {
            Claim::TrainingLoss => return f.write_str(&loss("training")),
            Claim::EvaluationLoss => return f.write_str(&loss("evaluation")),
            Claim::Buffers => {
                write!(
                    f,
                    "the buffers of the update of {client} count with {scale:.3} of their values"
                )?;
                "`norm`, `share`, `discard`"
            }
            Claim::Update if *counted == 0.0 => {
                write!(f, "the update of {client} does not count")?;
                "`discard`"
            }
            Claim::Update => {
                let is_fewer = counted.round() < *claimed as f64;
                let is_scaled = *scale < 1.0;
                write!(f, "the update of {client} counts with ")?;
                if is_fewer {
                    write!(f, "{:.0} of the {claimed} examples that it claims", counted.round())?;
                } else {
                    write!(f, "its {claimed} examples")?;
                }
                if is_scaled {
                    write!(f, " and {scale:.3} of its values")?;
                }
                match (is_fewer, is_scaled) {
                    (true, true) => "`share`, `examples`, `norm`",
                    (false, true) => "`share`, `norm`",
                    (_, false) => "`share`, `examples`",
                }
            }
        };
        if *scale < 1.0 || *counted == 0.0 {
            write!(f, ": its norm is {norm:.3e}, the reference {reference:.3e}")?;
        }
        write!(f, " ([limits] of run.toml: {keys})")
    }
}
