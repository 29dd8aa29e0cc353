//! The program against a scripted server on a real socket, with learners and with trainers, and small files that claim to be large.
#![allow(clippy::unwrap_used)]

#[cfg(target_os = "linux")]
mod binary;
mod bombs;
#[cfg(target_os = "linux")]
mod first_weights;
#[cfg(target_os = "linux")]
#[path = "../../../compress/tests/tool/help_page.rs"]
mod help_page;
#[path = "../../../fl-client/tests/e2e/support/mod.rs"]
mod support;
#[cfg(target_os = "linux")]
mod trainer;
