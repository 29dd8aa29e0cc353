//! Whole federations, in one process and of real processes. One binary, because linking one takes longer than most of its
//! tests; `namespaces` is another, because it needs root.
#![allow(clippy::unwrap_used)]

#[path = "../fixtures/mod.rs"]
mod fixtures;
#[cfg(unix)]
#[path = "../../../compress/tests/tool/help_page.rs"]
mod help_page;

mod attack;
mod defaults;
#[cfg(unix)]
mod demo;
mod fashion;
mod hapt;
mod hundred;
mod kill9;
mod methods;
mod own_learner;
mod persistence;
mod predicted;
mod soak;
mod traces;
mod walk;
