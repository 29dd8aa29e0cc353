//! The admin address: the page of the run that is served, its data, and its metrics, over HTTP. It answers questions and
//! changes nothing.
//!
//! On a loopback address it asks for nothing. Anywhere else it speaks TLS and asks for a token. The command line's own
//! socket is another ([`crate::admin::socket`]).

mod auth_guard;
mod connection_limit;
pub(crate) mod listener;
mod metrics;
mod routes;
mod snapshot;
pub(crate) mod sources;
pub(crate) mod view;
