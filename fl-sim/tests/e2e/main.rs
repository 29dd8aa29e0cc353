//! Whole federations, in one process and as separate processes. One binary, because linking takes longer than most
//! tests; `namespaces` is separate, because it requires root.
#![allow(clippy::unwrap_used)]

#[cfg(target_os = "linux")]
#[path = "../../../fl-client/src/trainer/tests/fake.rs"]
mod fake;
#[path = "../fixtures/mod.rs"]
mod fixtures;
#[cfg(unix)]
#[path = "../../../compress/tests/tool/help_page.rs"]
mod help_page;

mod arrays;
mod attack;
mod averaged;
mod bandwidths;
#[cfg(target_os = "linux")]
mod base;
mod budgets;
#[cfg(unix)]
mod check;
mod conditions;
mod defaults;
#[cfg(unix)]
mod demo;
mod downloads;
mod enrollment;
mod fashion;
mod fleet;
mod full_disk;
mod hapt;
mod hostile;
mod hundred;
mod kill9;
mod learners;
mod limits;
mod methods;
mod metrics;
mod model_wire;
mod own_certificate;
mod own_learner;
mod own_models;
mod persistence;
mod predicted;
#[cfg(unix)]
mod reload;
mod renewal;
mod roles;
mod rotation;
mod soak;
mod space;
mod sweep;
mod texts;
mod traces;
#[cfg(target_os = "linux")]
mod trainers;
mod versions;
mod walk;
