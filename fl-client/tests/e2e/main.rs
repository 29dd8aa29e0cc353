//! The client against a scripted server on a real socket: the whole protocol, its failure modes, and the binary.
#![allow(clippy::unwrap_used)]

mod another_run;
mod averaged;
#[cfg(target_os = "linux")]
mod binary;
mod bombs;
mod conditions;
mod crashes;
#[cfg(target_os = "linux")]
mod first_weights;
#[cfg(target_os = "linux")]
#[path = "../../../compress/tests/tool/help_page.rs"]
mod help_page;
mod impostors;
mod kept_state;
mod models;
mod predicted;
#[cfg(unix)]
mod reload;
mod rounds;
mod stream;
mod support;
mod traffic;
#[cfg(target_os = "linux")]
mod trainer;
mod trust;
mod waiting;
