//! The link between one device and the server: a TCP proxy that can be cut.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// State of a link. A change breaks all open connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    cuts: u64,
    is_up: bool,
}

/// A link; it ends when dropped.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) address: String,
    state: watch::Sender<State>,
    task: AbortHandle,
}

impl Link {
    pub(super) async fn to(server: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let (state, seen) = watch::channel(State { cuts: 0, is_up: true });
        let task = tokio::spawn(carry(listener, server.to_owned(), seen)).abort_handle();
        Ok(Self { address, state, task })
    }

    /// Breaks all connections; new ones succeed at once.
    pub(super) fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Breaks all connections and lets no new one through, or lets them through again.
    pub(super) fn set_up(&self, is_up: bool) {
        self.state.send_modify(|state| state.is_up = is_up);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(listener: TcpListener, server: String, state: watch::Receiver<State>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((mut device, _)) = accepted else { continue };
        let mut state = state.clone();
        if !state.borrow_and_update().is_up {
            continue;
        }
        let server = server.clone();
        connections.spawn(async move {
            let both = async {
                let mut server = TcpStream::connect(server).await?;
                copy_bidirectional(&mut device, &mut server).await
            };
            tokio::select! {
                _ = both => {}
                _ = state.changed() => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_link_carries_bytes_until_it_is_cut_and_again_when_it_is_up() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let link = Link::to(&server.local_addr().unwrap().to_string()).await.unwrap();
        let connect = async || {
            let mut device = TcpStream::connect(&link.address).await.unwrap();
            let (mut far, _) = server.accept().await.unwrap();
            device.write_all(b"up").await.unwrap();
            far.write_all(b"dn").await.unwrap();
            let mut heard = [[0; 2]; 2];
            far.read_exact(&mut heard[0]).await.unwrap();
            device.read_exact(&mut heard[1]).await.unwrap();
            assert_eq!(heard, [*b"up", *b"dn"]);
            device
        };
        let ends = async |mut device: TcpStream| !matches!(device.read(&mut [0]).await, Ok(1..));
        let device = connect().await;
        link.cut();
        assert!(ends(device).await);
        let device = connect().await;
        link.set_up(false);
        assert!(ends(device).await);
        let refused = TcpStream::connect(&link.address).await.unwrap();
        assert!(ends(refused).await, "no connection gets through");
        link.set_up(true);
        connect().await;
    }
}
