//! Peers of protocol 1.1 and of 1.0 in one run. The peer of 1.1 is a relay that ends TLS on both sides and adds a field that 1.0
//! does not know to every message: a server of 1.1 to its client, and a client of 1.1 to the server.

use std::convert::Infallible;
use std::future::poll_fn;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use fl_client::{ClientConfig, Learner, Tasks};
use fl_proto::{Authority, Dial, Issued, Meter, accept, client_tls, server_builder, server_tls};
use fl_server::{Ending, Outcome, RunPlan, Serve};
use fl_sim::ready::{self, Ready};
use fl_sim::workload::TASK;
use http_body::Frame;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::transport::Channel;

use crate::fixtures::COMPRESSED;

const CLIENTS: u64 = 3;
const ROUNDS: u64 = 3;
const VALUES: usize = 40_000;
/// Field 1000 of a message: the text `new`.
const NEW: &[u8] = b"\xc2\x3e\x03new";

/// Messages that the relays have passed on.
type Passed = Arc<AtomicU64>;

/// A body of gRPC messages, to each of which [`NEW`] is added.
struct Newer {
    body: Body,
    read: BytesMut,
    passed: Passed,
}

impl Newer {
    /// The next whole message, behind its five bytes of gRPC.
    fn message(&mut self) -> Option<Bytes> {
        let len = u32::from_be_bytes(*self.read.get(1..)?.first_chunk()?) as usize;
        if self.read.len() < 5 + len {
            return None;
        }
        let mut message = self.read.split_to(5 + len);
        message.extend_from_slice(NEW);
        message[1..5].copy_from_slice(&((len + NEW.len()) as u32).to_be_bytes());
        self.passed.fetch_add(1, Ordering::Relaxed);
        Some(message.freeze())
    }
}

impl http_body::Body for Newer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if let Some(message) = self.message() {
                return Poll::Ready(Some(Ok(Frame::data(message))));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.read.extend_from_slice(&data),
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
    }
}

/// Passes calls on to the server, over the connection of one client.
#[derive(Clone)]
struct Relay {
    server: Channel,
    passed: Passed,
}

impl NamedService for Relay {
    const NAME: &'static str = "fl.v1.Federation";
}

impl Service<http::Request<Body>> for Relay {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let Self { mut server, passed } = self.clone();
        let newer = move |body| {
            let (read, passed) = (BytesMut::new(), Arc::clone(&passed));
            Body::new(Newer { body, read, passed })
        };
        Box::pin(async move {
            let answered = match poll_fn(|context| server.poll_ready(context)).await {
                Ok(()) => server.call(request.map(&newer)).await,
                Err(error) => Err(error),
            };
            Ok(answered.map_or_else(
                |error| Status::unavailable(error.to_string()).into_http(),
                |response| response.map(newer),
            ))
        })
    }
}

/// Relays the connections of one client to `server`; returns where it listens.
async fn relay(server: &str, authority: &str, own: &Issued, client: &Issued, passed: Passed) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let tls = (
        server_tls(authority, own).unwrap(),
        client_tls(authority, client).unwrap(),
    );
    let server = server.to_owned();
    tokio::spawn(async move {
        loop {
            let (io, from) = listener.accept().await.unwrap();
            let accepted = accept(
                io,
                from,
                Arc::new(Meter::default()),
                Arc::clone(&tls.0),
                fl_proto::CONNECT_TIMEOUT,
            );
            let (connections, incoming) = mpsc::channel(1);
            connections.send(accepted.await).await.unwrap();
            let dial = Dial {
                address: server.clone(),
                tls: Arc::clone(&tls.1),
                meter: Arc::new(Meter::default()),
                paces: Default::default(),
                silence: Default::default(),
                answered: Default::default(),
            };
            let relay = Relay {
                server: fl_proto::dial(dial).await.unwrap(),
                passed: Arc::clone(&passed),
            };
            let calls = server_builder(fl_proto::MAX_STREAMS, fl_proto::DEFAULT_PING_EVERY).add_service(relay);
            tokio::spawn(calls.serve_with_incoming(ReceiverStream::new(incoming)));
        }
    });
    address
}

/// The outcome of a run, the first `relayed` clients of which are behind a relay, and the messages that passed there.
async fn run(dir: &Path, relayed: u64) -> (Outcome, u64) {
    let text = format!(
        "name = \"versions\"\ntask = \"{TASK}\"\nrounds = {ROUNDS}\nseed = 1\nmodel = \"init.safetensors\"\n\
         [cohort]\nmin = {CLIENTS}\ntarget = {CLIENTS}\n{COMPRESSED}"
    );
    let layout = ready::layout(VALUES).unwrap();
    fl_client::weights::export(&dir.join("init.safetensors"), &layout, &vec![0.0; VALUES]).unwrap();
    let plan = RunPlan::load(&text, dir).unwrap();
    let (now, valid) = (OffsetDateTime::now_utc(), time::Duration::days(9));
    let (authority, root) = Authority::create("fed", now, valid).unwrap();
    let own = authority.issue_server(now, valid).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap().to_string();
    let options = Serve {
        first: CLIENTS as usize,
        ..Serve::new(dir.join("data"), plan, root.certificate.clone(), own.clone())
    };
    let served = tokio::spawn(fl_server::serve(listener, options, std::future::pending()));
    let (mut clients, passed) = (JoinSet::new(), Passed::default());
    for client in 0..CLIENTS {
        let name = format!("client-{client}");
        let issued = authority.issue_client(&name.parse().unwrap(), now, valid).unwrap();
        let address = match client < relayed {
            true => relay(&server, &root.certificate, &own, &issued, Arc::clone(&passed)).await,
            false => server.clone(),
        };
        let config = ClientConfig {
            sync: false,
            ..ClientConfig::new(&address, &root.certificate, issued, dir.join(name))
        };
        let make = move || Ok(Box::new(Ready::new(VALUES, client)?) as Box<dyn Learner>);
        let running = fl_client::run(
            config,
            Tasks::new().with_lazy(TASK, make),
            |_| {},
            std::future::pending(),
        );
        clients.spawn(Box::pin(running));
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap().unwrap();
    }
    (served.await.unwrap().unwrap(), passed.load(Ordering::Relaxed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_of_version_1_1_with_a_new_field_in_every_message_take_part_in_a_run_of_1_0() {
    let (plain, mixed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (expected, none) = run(plain.path(), 0).await;
    let (found, passed) = run(mixed.path(), CLIENTS - 1).await;
    assert_eq!((found.ending, found.version), (Ending::Done, ROUNDS));
    assert_eq!(found.model, expected.model);
    // Join, the first model, and in each round a state, an update and its answer, both ways.
    assert!(none == 0 && passed >= (CLIENTS - 1) * (4 + 3 * ROUNDS), "{passed}");
}
