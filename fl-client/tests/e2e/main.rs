//! The session against a scripted server at a real socket: the whole protocol, and everything that can go wrong with it.
#![allow(clippy::unwrap_used)]

mod another_run;
mod crashes;
mod models;
mod predicted;
mod rounds;
mod support;
mod traffic;
mod trust;
