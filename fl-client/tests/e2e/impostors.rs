//! What answers in the server's place cannot end a client, and neither can a refusal that its operator takes back.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fl_client::{Event, Outcome};
use tonic::Code;

use crate::support::{Arithmetic, Certificates, Client, TestServer, World, config, is_all_of};

/// Answers every connection with the same bytes until it is dropped.
struct Impostor {
    address: String,
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Impostor {
    fn at(address: &str, says: Vec<u8>) -> Self {
        let listener = loop {
            match TcpListener::bind(address) {
                Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => std::thread::yield_now(),
                bound => break bound.unwrap(),
            }
        };
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let answer = move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let _ = stream.and_then(|mut stream| stream.write_all(&says));
            }
        };
        Self {
            address: address.to_owned(),
            over,
            thread: Some(std::thread::spawn(answer)),
        }
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(&self.address);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// Waits until the client has reported `count` more failed connections.
async fn fails(client: &Client, count: usize) {
    let failed = || {
        let seen = client.seen.lock().unwrap();
        seen.iter()
            .filter(|event| matches!(event, Event::Disconnected { .. }))
            .count()
    };
    let before = failed();
    until(client, || failed() >= before + count).await;
}

async fn until(client: &Client, is_so: impl Fn() -> bool) {
    while !is_so() {
        assert!(!client.task.is_finished(), "the client has ended");
        tokio::task::yield_now().await;
    }
}

/// A false server at `address` for each answer in turn, until the client has met it twice.
async fn false_answers(client: &Client, address: &str, certificates: &mut Certificates) {
    let alert = |description: u8| vec![0x15, 3, 3, 0, 2, 2, description];
    // Bad, unsupported, revoked, expired and unknown certificate, unknown authority, access denied, no certificate, handshake failure.
    let alerts = [42, 43, 44, 45, 46, 48, 49, 51, 116, 40].map(alert);
    let texts = [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0xff; 300], b""].map(<[u8]>::to_vec);
    for answer in alerts.into_iter().chain(texts) {
        let _impostor = Impostor::at(address, answer);
        fails(client, 2).await;
    }
    let world = || Arc::new(std::sync::Mutex::new(World::new(1)));
    let foreign = TestServer::at(address, &Certificates::new("theirs"), world());
    fails(client, 2).await;
    drop(foreign);
    // Expired, not valid yet, and a client's.
    for wrong in [
        certificates.server_of(-9),
        certificates.server_of(9),
        certificates.client.clone(),
    ] {
        let right = std::mem::replace(&mut certificates.server, wrong);
        let server = TestServer::at(address, certificates, world());
        certificates.server = right;
        fails(client, 2).await;
        drop(server);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_answers_in_the_server_s_place_the_client_trains_once_the_server_is_back() {
    const ROUNDS: u64 = 60;
    let mut server = TestServer::start(World::new(ROUNDS));
    let (address, world) = (server.address().to_owned(), Arc::clone(&server.world));
    let mut certificates = server.certificates.clone();
    server.kill();
    let state = tempfile::tempdir().unwrap();
    let mut config = config(&server, state.path());
    config.exit_when_done = false;
    config.backoff.max = Duration::from_millis(1);
    let client = Client::start(config, Arithmetic::new());
    // Before the first join, and in the middle of a run.
    false_answers(&client, &address, &mut certificates).await;
    let mut server = TestServer::at(&address, &certificates, Arc::clone(&world));
    let took = |rounds: usize| world.lock().unwrap().accepted.len() >= rounds;
    until(&client, || took(2)).await;
    server.kill();
    fails(&client, 1).await;
    assert!(!took(ROUNDS as usize));
    false_answers(&client, &address, &mut certificates).await;
    let server = TestServer::at(&address, &certificates, Arc::clone(&world));
    until(&client, || took(ROUNDS as usize)).await;
    assert_eq!(client.stop().await, Outcome::Stopped);
    is_all_of(&server.world(), state.path(), 1..=ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_the_server_refuses_asks_again_rarely_and_trains_when_it_is_restored() {
    for code in [Code::PermissionDenied, Code::Unauthenticated, Code::InvalidArgument] {
        let server = TestServer::start(World::new(1));
        server.world().denies = Some(code);
        let state = tempfile::tempdir().unwrap();
        let mut config = config(&server, state.path());
        config.exit_when_done = false;
        config.backoff.max = Duration::from_millis(1);
        let client = Client::start(config.clone(), Arithmetic::new());
        fails(&client, 2).await;
        let waits: Vec<_> = client
            .seen
            .lock()
            .unwrap()
            .iter()
            .filter_map(|event| match event {
                Event::Disconnected { why, retry_in } if why.contains("denied") => Some(*retry_in),
                _ => None,
            })
            .collect();
        let least = if code == Code::InvalidArgument { 1 } else { 120 } * config.backoff.max / 2;
        assert!(
            waits.len() >= 2 && waits.iter().all(|wait| *wait >= least),
            "{code:?}: {waits:?}"
        );
        server.world().denies = None;
        until(&client, || server.world().accepted.len() == 1).await;
        assert_eq!(client.stop().await, Outcome::Stopped);

        // Whoever waits for the end of a run is told at once.
        server.world().denies = Some(code);
        config.exit_when_done = true;
        let ended = Client::start(config, Arithmetic::new()).finish().await.unwrap_err();
        assert!(ended.to_string().contains("denied by the test"), "{ended}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_taken_for_another_takes_no_part_and_says_so() {
    let server = TestServer::start(World::new(1));
    server.world().client = "beta";
    let state = tempfile::tempdir().unwrap();
    let config = config(&server, state.path());
    let ended = Client::start(config, Arithmetic::new())
        .finish()
        .await
        .unwrap_err()
        .to_string();
    assert!(
        ended.contains("takes this client for `beta`") && ended.contains("of `alpha`"),
        "{ended}"
    );
    assert!(server.world().accepted.is_empty());
}
