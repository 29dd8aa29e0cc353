//! Bounds the concurrent connections of the admin address, so that they take nothing from the clients. Connections with
//! an allowed request keep their places: a new connection evicts the oldest one without a request, or without an
//! allowed request.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use axum::Extension;
use axum::middleware::AddExtension;
use axum_server::accept::Accept;
use tokio::sync::oneshot;
use tower::Layer;

use crate::lock::lock;
use crate::rpc::revocable::Revocable;

#[derive(Debug, Clone)]
pub(super) struct Limit {
    places: usize,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// Connections without an allowed request, by number: the oldest first. Dropping the sender closes the connection.
    outside: BTreeMap<u64, oneshot::Sender<()>>,
    inside: BTreeMap<u64, oneshot::Sender<()>>,
}

impl Limit {
    pub(super) fn new(places: usize) -> Self {
        Self {
            places,
            table: Arc::default(),
        }
    }

    /// A place for a new connection, and a signal that completes when it is taken; `None` if no place can be taken.
    fn take(&self) -> Option<(Place, oneshot::Receiver<()>)> {
        let mut table = lock(&self.table);
        if table.outside.len() + table.inside.len() >= self.places {
            table.outside.pop_first()?;
        }
        let number = table.next;
        table.next += 1;
        let (end, ended) = oneshot::channel();
        table.outside.insert(number, end);
        let limit = self.clone();
        Some((Place { number, limit }, ended))
    }
}

/// A connection's place; an extension of its requests.
#[derive(Debug, Clone)]
pub(super) struct Place {
    number: u64,
    limit: Limit,
}

impl Place {
    /// A request on this connection was allowed: its place cannot be taken any more.
    pub(super) fn let_in(&self) {
        let mut table = lock(&self.limit.table);
        if let Some(end) = table.outside.remove(&self.number) {
            table.inside.insert(self.number, end);
        }
    }

    fn leave(&self) {
        let mut table = lock(&self.limit.table);
        table.outside.remove(&self.number);
        table.inside.remove(&self.number);
    }
}

impl<I, S> Accept<I, S> for Limit {
    type Stream = Connection<I>;
    type Service = AddExtension<S, Place>;
    type Future = std::future::Ready<io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, io: I, service: S) -> Self::Future {
        let Some((place, ended)) = self.take() else {
            let why = "too many connections to the admin page";
            return std::future::ready(Err(io::Error::new(io::ErrorKind::ConnectionRefused, why)));
        };
        let service = Extension(place.clone()).layer(service);
        let why = "a newer connection has taken this one's place";
        let kind = io::ErrorKind::ConnectionAborted;
        let connection = Connection::new(io, ended, kind, why, PlaceGuard(place));
        std::future::ready(Ok((connection, service)))
    }
}

pub(super) type Connection<I> = Revocable<I, PlaceGuard>;

/// A place, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct PlaceGuard(Place);

impl Drop for PlaceGuard {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(end: &mut oneshot::Receiver<()>) -> bool {
        end.try_recv() == Err(oneshot::error::TryRecvError::Empty)
    }

    #[test]
    fn a_newcomer_takes_the_place_of_the_oldest_that_was_not_let_in() {
        let limit = Limit::new(3);
        let mut held: Vec<_> = (0..3).map(|_| limit.take().unwrap()).collect();
        held[0].0.let_in();
        let mut fourth = limit.take().unwrap();
        let open: Vec<_> = held.iter_mut().map(|(_, end)| is_open(end)).collect();
        assert_eq!(open, [true, false, true]);
        held[2].0.let_in();
        fourth.0.let_in();
        assert!(limit.take().is_none(), "no connection may be evicted");
        held[2].0.leave();
        assert!(limit.take().is_some() && is_open(&mut fourth.1));
    }
}
