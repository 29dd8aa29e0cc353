//! The admin address: the page of the served run, its data, and its metrics, over HTTP. It is read-only.
//!
//! On a loopback address it needs no token. On any other address it uses TLS and requires the token or an operator's certificate.
//! The command line uses another socket ([`crate::admin::socket`]).

mod access;
mod auth_guard;
mod connection_limit;
pub(crate) mod listener;
mod metrics;
mod routes;
pub(crate) mod snapshot;
pub(crate) mod view;
