//! A sweep: grids over the keys of an experiment, settings chosen on some seeds and reported on others, resumable.
//!
//! `file` and `grid` read what is to run; `trial` names each run by a digest of its inputs; `folder` keeps the results;
//! `run` runs what is missing; `summary`, `statistics`, `choice` and `outcome` make the tables; the others show them.

mod choice;
mod command;
mod file;
mod files;
mod folder;
mod grid;
mod markdown;
mod outcome;
mod page;
mod phase;
mod run;
mod several;
mod statistics;
mod summary;
mod text;
mod trial;

pub use command::{SweepCommand, Swept};
pub use file::{Point, Points, Sweep};
pub use folder::Folder;
pub use outcome::{Outcome, PhaseOutcome};
pub use phase::Phase;
pub use several::Named;
pub use statistics::{Estimate, Quality, Spread};
pub use summary::{Reach, Summary};
pub use trial::{Record, Trial};
