//! The hostile run: connections that garble, stall, lie and guess at both ports of a real server, by a seed, while honest clients
//! train. At the end: what was sent of each kind and how it ended, and whether a round, a byte or a bit was lost.

mod attack;
mod command;
mod outcome;

pub(crate) use command::HostileRun;
