//! A connection of a device that enrolls.

use std::io;
use std::net::SocketAddr;

use fl_proto::Accepted;
use tokio::sync::oneshot;
use tonic::transport::server::Connected;

use crate::accounting::edge::Open;
use crate::rpc::revocable::Revocable;

/// A connection that fails when its [`Stay`] ends.
pub(super) type Lease = Revocable<Accepted<SocketAddr>, Leaving>;

#[derive(Debug)]
pub(super) struct Leaving {
    /// Completes for the [`Stay`] when this is dropped.
    _left: oneshot::Sender<()>,
    _open: Open,
}

/// How long a connection lasts: dropping this ends it.
#[derive(Debug)]
pub(super) struct Stay {
    _end: oneshot::Sender<()>,
    left: oneshot::Receiver<()>,
}

pub(super) fn lease(io: Accepted<SocketAddr>, open: Open) -> (Lease, Stay) {
    let ((end, ended), (leaving, left)) = (oneshot::channel(), oneshot::channel());
    let why = "enrollment took too long, or another device took the place";
    let held = Leaving {
        _left: leaving,
        _open: open,
    };
    let lease = Lease::new(io, ended, io::ErrorKind::TimedOut, why, held);
    (lease, Stay { _end: end, left })
}

impl Stay {
    /// Completes when the connection has ended by itself.
    pub(super) async fn left(&mut self) {
        let _ = (&mut self.left).await;
    }
}

impl Connected for Lease {
    type ConnectInfo = SocketAddr;

    fn connect_info(&self) -> SocketAddr {
        *self.io().info()
    }
}
