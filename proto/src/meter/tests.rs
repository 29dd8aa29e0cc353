use std::io::{IoSlice, Result as IoResult};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use time::{Duration, OffsetDateTime};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tonic::service::Routes;

use super::{Meter, Metered};
use crate::{Authority, Dial, accept, client_tls, dial, server_builder, server_tls};

/// Bytes of a record with a lone PING in it.
const PING: u64 = 39;

#[tokio::test]
async fn both_ends_count_the_same_bytes_and_the_total_sums_connections() {
    let total = Arc::new(Meter::default());
    for round in 1..=2u64 {
        let (a, b) = tokio::io::duplex(64);
        let (ours, theirs) = (Arc::new(Meter::within(Arc::clone(&total))), Arc::new(Meter::default()));
        let (mut a, mut b) = (Metered::new(a, Arc::clone(&ours)), Metered::new(b, Arc::clone(&theirs)));
        let send = async {
            a.write_all(&[7; 1000]).await.unwrap();
            a.shutdown().await.unwrap();
        };
        let mut received = Vec::new();
        let (_, read) = tokio::join!(send, b.read_to_end(&mut received));
        assert_eq!(read.unwrap(), 1000);
        assert_eq!((ours.written(), theirs.read()), (1000, 1000));
        assert_eq!((total.written(), total.read()), (1000 * round, 0));
        assert_eq!(
            (ours.pings_written(), theirs.pings_read(), total.pings_written()),
            (0, 0, 0)
        );
    }
}

#[tokio::test]
async fn a_meter_is_closed_when_the_last_of_its_streams_is_gone() {
    let total = Arc::new(Meter::default());
    let one = Arc::new(Meter::within(Arc::clone(&total)));
    one.closed().await;
    let first = Metered::new(tokio::io::empty(), Arc::clone(&one));
    let second = Metered::new(tokio::io::empty(), Arc::clone(&total));
    assert_eq!((one.open(), total.open()), (1, 2));
    drop(second);
    let dropped = async { drop(first) };
    tokio::join!(one.closed(), total.closed(), dropped);
    assert_eq!((one.open(), total.open()), (0, 0));
}

/// Takes at most so many bytes of each vectored write.
struct Greedless(usize);

impl AsyncWrite for Greedless {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<IoResult<usize>> {
        Poll::Ready(Ok(buf.len().min(self.0)))
    }

    fn poll_write_vectored(self: Pin<&mut Self>, _: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<IoResult<usize>> {
        let offered: usize = bufs.iter().map(|buf| buf.len()).sum();
        Poll::Ready(Ok(offered.min(self.0)))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<IoResult<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<IoResult<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn of_a_vectored_write_only_what_was_written_counts() {
    let ping = [&[23, 3, 3, 0, 34][..], &[1; 34]].concat();
    let other = [&[23, 3, 3, 0, 200][..], &[23; 200]].concat();
    let stream = [&ping[..], &other, &ping, &other, &ping].concat();
    for most in [1, 4, 5, 38, 39, 40, 500, 5000] {
        let meter = Arc::new(Meter::default());
        let mut io = Metered::new(Greedless(most), Arc::clone(&meter));
        let mut sent = 0;
        while sent < stream.len() {
            // Pieces of 7, 14, 21 bytes, and the rest.
            let mut pieces = Vec::new();
            let mut left = &stream[sent..];
            for len in [7, 14, 21, usize::MAX] {
                let (piece, rest) = left.split_at(len.min(left.len()));
                pieces.push(IoSlice::new(piece));
                left = rest;
            }
            sent += io.write_vectored(&pieces).await.unwrap();
        }
        assert_eq!(
            (meter.written(), meter.pings_written()),
            (stream.len() as u64, 3 * PING),
            "{most}"
        );
    }
}

/// A real server pings a real client ten times a second and more; both sides count the same pings, and nothing else as
/// pings but the GOAWAY at the end, which has their size.
#[tokio::test]
async fn keepalive_pings_over_tls_are_counted_on_both_sides() {
    let (now, days) = (
        OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap(),
        Duration::days(3650),
    );
    let (authority, root) = Authority::create("fed", now - days, days * 3).unwrap();
    let own = authority.issue_server(now - days, days * 3).unwrap();
    let name = "anna".parse().unwrap();
    let client = authority.issue_client(&name, now - days, days * 3).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (server, here) = (Arc::new(Meter::default()), Arc::new(Meter::default()));
    let (sender, incoming) = tokio::sync::mpsc::channel::<std::io::Result<_>>(1);
    let (total, tls) = (Arc::clone(&server), server_tls(&root.certificate, &own).unwrap());
    tokio::spawn(async move {
        let (io, address) = listener.accept().await.unwrap();
        let accepted = accept(io, address, Arc::new(Meter::within(total)), tls, crate::CONNECT_TIMEOUT).await;
        sender.send(accepted).await.unwrap();
        // The server closes its connections when no more can come.
        sender.closed().await;
    });
    let incoming = tokio_stream::wrappers::ReceiverStream::new(incoming);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = server_builder(crate::MAX_STREAMS, std::time::Duration::from_millis(20))
        .add_routes(Routes::default())
        .serve_with_incoming_shutdown(incoming, async { drop(stopped.await) });
    let serving = tokio::spawn(serving);
    let channel = dial(Dial {
        address,
        tls: client_tls(&root.certificate, &client).unwrap(),
        meter: Arc::clone(&here),
        paces: crate::Paces::default(),
        silence: crate::Silence::default(),
        answered: crate::Answered::default(),
    })
    .await
    .unwrap();
    let begun = (here.read(), here.written());
    let pinged = async {
        while here.pings_written() < 5 * PING || server.pings_read() < 5 * PING {
            tokio::task::yield_now().await;
        }
    };
    let patience = std::time::Duration::from_secs(20);
    tokio::time::timeout(patience, pinged).await.expect("five pings");
    assert_eq!((server.pings_written() % PING, server.pings_read() % PING), (0, 0));
    assert!(here.read() >= begun.0 + 5 * PING && here.written() >= begun.1 + 5 * PING);
    drop(channel);
    let _ = stop.send(());
    serving.await.unwrap().unwrap();
    tokio::time::timeout(patience, here.closed()).await.unwrap();
    assert_eq!((server.written(), server.read()), (here.read(), here.written()));
    assert_eq!(
        (server.pings_written(), server.pings_read()),
        (here.pings_read(), here.pings_written())
    );
    assert!(
        server.pings_read() <= server.pings_written() + 2 * PING,
        "answers, and a farewell"
    );
}
