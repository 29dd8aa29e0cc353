//! A fleet: real clients that come, go, sleep, renew, are revoked and lose their links, by a seed, against a real server with
//! enrollment and short-lived certificates. Events follow the rounds, not the clock.

mod command;
mod device;
mod link;
mod outcome;

pub(crate) use command::FleetRun;
