//! What a running server reports of itself: events for displays and logs, the live status, and traces.

pub mod event;
pub(crate) mod events;
pub(crate) mod status;
pub(crate) mod trace;
pub(crate) mod turned_away;
