//! The conditions under which a client may train, `[when]` of client.toml: what they are, where they are read, and what follows.
//!
//! A condition is a file in `sources` and a line in its table. Nothing here talks to the server or to a learner: the session
//! reads the decision of a [`Monitor`].

mod decision;
mod hours;
mod moment;
mod monitor;
mod program;
mod reading;
mod sampler;
mod settling;
mod sources;
mod surroundings;
mod table;
mod when;

pub use hours::Hours;
pub use moment::Moment;
pub use surroundings::Surroundings;
pub use when::When;

pub(crate) use decision::Decision;
pub(crate) use monitor::Monitor;
pub(crate) use reading::Reading;
pub(crate) use sampler::{Extra, Sampler};
pub(crate) use sources::METERED;
pub(crate) use table::WhenTable;
