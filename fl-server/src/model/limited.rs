//! What the plan's limits took of an update.

use std::fmt;

use fl_proto::ClientId;

/// An update that counts for less than its sender claimed, because of the plan's limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Limited {
    /// The sender.
    pub client: ClientId,
    /// Examples claimed.
    pub claimed: u64,
    /// Examples that the update counts with; 0 if it does not count.
    pub counted: f64,
    /// L2 norm of the decoded update.
    pub norm: f64,
    /// Norm that the limits compare with.
    pub reference: f64,
    /// Factor of the update's values, 0 to 1.
    pub scale: f64,
    /// Whether `norm`, `reference` and `scale` are of the update's buffers; otherwise, they are of its trained values.
    pub is_buffers: bool,
}

impl Limited {
    /// Whether the update counts for less than half of what was claimed. Honest updates differ by less.
    pub fn is_conspicuous(&self) -> bool {
        self.counted < 0.5 * self.claimed as f64 || self.scale < 0.5
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            client,
            claimed,
            counted,
            norm,
            reference,
            scale,
            is_buffers,
        } = self;
        if *is_buffers {
            return write!(
                f,
                "the buffers of the update of {client} count with {scale:.3} of their values: their norm is {norm:.3e}, the \
                 median {reference:.3e}"
            );
        }
        if *counted == 0.0 {
            return write!(
                f,
                "the update of {client} does not count: its norm is {norm:.3e}, the median {reference:.3e}"
            );
        }
        write!(f, "the update of {client} counts with ")?;
        let counted = counted.round();
        if counted < *claimed as f64 {
            write!(f, "{counted} of the {claimed} examples that it claims")?;
        } else {
            write!(f, "its {claimed} examples")?;
        }
        if *scale < 1.0 {
            write!(
                f,
                " and {scale:.3} of its values: its norm is {norm:.3e}, the median {reference:.3e}"
            )?;
        }
        Ok(())
    }
}
