//! What a running server reports of itself: events for displays and logs, and traces.

pub mod event;
pub(crate) mod trace;
