//! A server on loopback sockets with mutual TLS, its command line and its data folder. One binary, because linking
//! takes longer than most tests.
#![allow(clippy::unwrap_used)]

#[path = "../fixtures/contains.rs"]
mod contains;
#[path = "../../../compress/tests/tool/help_page.rs"]
mod help_page;
#[path = "../fixtures/stored_run.rs"]
mod stored_run;
mod support;

mod absent;
mod admission;
mod aligned;
mod books;
mod check;
mod cli;
mod clock;
mod downloads;
mod edge;
mod fidelity;
mod foreign_texts;
mod health;
mod hostile;
mod ledger;
mod live;
mod metrics;
mod probe;
mod registered;
mod rounded;
mod run;
mod settings;
mod storage;
mod strangers;
mod stream;
mod what_if;
