//! The client against a scripted server at a real socket: the whole protocol, everything that can go wrong with it, and the
//! program as a user meets it.
#![allow(clippy::unwrap_used)]

mod another_run;
#[cfg(target_os = "linux")]
mod binary;
mod crashes;
#[cfg(target_os = "linux")]
#[path = "../../../compress/tests/tool/help_page.rs"]
mod help_page;
mod models;
mod predicted;
mod rounds;
mod support;
mod traffic;
mod trust;
