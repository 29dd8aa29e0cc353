//! A sweep: grids over the keys of an experiment, settings chosen on some seeds and reported on others, resumable.
//!
//! `file` and `grid` read what is to run; `trial` names each run by a digest of its inputs; `folder` keeps the results;
//! `run` runs what is missing; `summary`, `choice` and `outcome` make the tables; the others show them.

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
mod summary;
mod text;
mod trial;

pub(crate) use command::SweepCommand;
#[cfg(test)]
pub(crate) use file::Sweep;
