//! The bounds of both ports over real sockets: each one holds, and `/metrics` counts it.

use std::time::{Duration, Instant};

use fl_proto::wire::enrollment_client::EnrollmentClient;
use fl_proto::{Authority, Dial, EnrollmentLine, NewKey, PROTOCOL_MAJOR, Secret, pinned_client_tls, wire};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tonic::Code;

use crate::settings::Served;
use crate::support::*;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// `/metrics` of the page at `address`.
pub(crate) struct Metrics(pub(crate) String);

impl Metrics {
    pub(crate) async fn of(address: &str) -> Self {
        let mut io = TcpStream::connect(address).await.unwrap();
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        io.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        io.read_to_string(&mut text).await.unwrap();
        Self(text)
    }

    /// `/metrics` as soon as they say what the server has seen: a socket may close before its end is counted.
    pub(crate) async fn once(address: &str, holds: impl Fn(&Self) -> bool) -> Self {
        let began = Instant::now();
        loop {
            let metrics = Self::of(address).await;
            if holds(&metrics) {
                return metrics;
            }
            assert!(began.elapsed() < TIMEOUT, "not in time:\n{}", metrics.0);
        }
    }

    /// Connections that found all places of their address taken, or were closed for a newer one.
    pub(crate) fn crowded_out(&self, port: &str) -> u64 {
        self.closed(port, "address") + self.closed(port, "evicted")
    }

    /// The value of a series, named with its labels.
    pub(crate) fn get(&self, series: &str) -> u64 {
        let line = self.0.lines().find_map(|line| line.strip_prefix(series));
        let value = line.unwrap_or_else(|| panic!("{series} is not in\n{}", self.0)).trim();
        value.parse::<f64>().unwrap() as u64
    }

    pub(crate) fn closed(&self, port: &str, reason: &str) -> u64 {
        self.get(&format!("fl_edge_closed_total{{port=\"{port}\",reason=\"{reason}\"}}"))
    }

    /// Connections in the handshake, and open ones.
    fn connections(&self, port: &str) -> (u64, u64) {
        let get = |state| self.get(&format!("fl_edge_connections{{port=\"{port}\",state=\"{state}\"}}"));
        (get("handshaking"), get("open"))
    }
}

/// Sends `bytes` and waits until the server closes the connection.
pub(crate) async fn closes(address: &str, bytes: &[u8]) {
    let mut io = TcpStream::connect(address).await.unwrap();
    io.write_all(bytes).await.unwrap();
    until_closed(&mut io).await;
}

pub(crate) async fn until_closed(io: &mut (impl tokio::io::AsyncRead + Unpin)) {
    // A reset is an end, too.
    let end = async { while matches!(io.read(&mut [0; 1024]).await, Ok(1..)) {} };
    let end = tokio::time::timeout(TIMEOUT, end).await;
    end.expect("the server closes the connection");
}

#[tokio::test]
async fn handshakes_at_the_main_port_are_bounded_in_time_and_number_and_every_end_is_counted() {
    let fed = Fed::new();
    let mut options = fed.options(&Run::default());
    options.tuning.handshake_timeout = Duration::from_millis(300);
    options.tuning.handshakes_per_address = 2;
    let page = fed.page(&mut options);
    let server = Server::start(options).await;

    closes(&server.address, b"").await;
    closes(&server.address, b"GET / HTTP/1.1\r\n\r\n").await;
    let now = time::OffsetDateTime::now_utc();
    let (other, _) = Authority::create("other", now, time::Duration::days(1)).unwrap();
    let foreign = other.issue_client(&"anna".parse().unwrap(), now, time::Duration::days(1));
    let foreign = foreign.unwrap();
    if let Ok(mut client) = TestClient::dial(&server.address, &fed.root.certificate, &foreign).await {
        client.join(None).await.unwrap_err();
    }
    for reason in ["handshake_timeout", "handshake", "certificate"] {
        Metrics::once(&page, |metrics| metrics.closed("main", reason) == 1).await;
    }
    let metrics = Metrics::of(&page).await;
    assert_eq!(metrics.connections("main"), (0, 0));

    // A third one of the address is closed at once, or takes the place of one that was silent for long enough.
    let mut silent = [
        TcpStream::connect(&server.address).await.unwrap(),
        TcpStream::connect(&server.address).await.unwrap(),
        TcpStream::connect(&server.address).await.unwrap(),
    ];
    let anna = loop {
        if let Ok(anna) = TestClient::dial(&server.address, &fed.root.certificate, &fed.issue("anna")).await {
            break anna;
        }
    };
    let _anna = anna.joined("anna").await;
    for io in &mut silent {
        until_closed(io).await;
    }
    // Every connection has one end, but the client of the run.
    let metrics = Metrics::once(&page, |metrics| {
        let failed = ["handshake_timeout", "handshake", "certificate"];
        let failed: u64 = failed.iter().map(|reason| metrics.closed("main", reason)).sum();
        metrics.connections("main") == (0, 1)
            && metrics.get("fl_edge_accepted_total{port=\"main\"}") == failed + metrics.crowded_out("main") + 1
    });
    let metrics = metrics.await;
    assert!(metrics.crowded_out("main") >= 1, "{}", metrics.0);
    assert_eq!(metrics.closed("main", "full"), 0);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_calls_too_often_waits_and_its_connections_beyond_the_bounds_are_counted() {
    let fed = Fed::new();
    let mut options = fed.options(&Run::default());
    options.tuning.call_rate = 5;
    options.tuning.connections_per_client = 1;
    options.tuning.idle = Duration::from_millis(500);
    let page = fed.page(&mut options);
    let server = Server::start(options).await;
    let older = fed.client("anna", &server).await;
    let mut anna = fed.client("anna", &server).await;
    older.meter.closed().await;
    // Two calls are made; three more are free, and the last four wait for a fifth of a second each.
    let began = Instant::now();
    for _ in 0..7 {
        anna.join(None).await.unwrap();
    }
    assert!(began.elapsed() >= Duration::from_millis(600), "{:?}", began.elapsed());
    let metrics = Metrics::once(&page, |metrics| metrics.closed("main", "newer") == 1).await;
    assert_eq!(metrics.get("fl_edge_calls_total{port=\"main\"}"), 9);
    // Fewer on a machine that is slow to make a call.
    let waited = metrics.get("fl_edge_calls_limited_total{port=\"main\",limit=\"rate\"}");
    assert!((1..=4).contains(&waited), "{waited}");
    anna.meter.closed().await;
    Metrics::once(&page, |metrics| metrics.closed("main", "idle") == 1).await;
    drop((older, anna));
    server.stop().await;
}

/// Runs `fl-server ARGS`, which must succeed.
pub(crate) async fn fl_server(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_fl-server"))
        .args(args)
        .output()
        .await
        .unwrap();
    let (said, errors) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(said).unwrap();
    assert!(output.status.success(), "{args:?}: {said}{errors}");
    said
}

/// The way to the enrollment port of `line`.
pub(crate) fn way(line: &EnrollmentLine) -> Dial {
    Dial::new(line.address.clone(), pinned_client_tls(line.authority).unwrap())
}

/// Asks for a certificate with the secret of `line`.
pub(crate) async fn ask(line: &EnrollmentLine) -> Result<wire::EnrollReply, tonic::Status> {
    let mut calls = EnrollmentClient::new(fl_proto::dial(way(line)).await.unwrap());
    let key = NewKey::generate().unwrap();
    let request = wire::EnrollRequest {
        protocol_major: PROTOCOL_MAJOR,
        secret: line.secret.as_bytes().to_vec().into(),
        request: key.request(None).unwrap().into(),
        name: String::new(),
    };
    calls.enroll(request).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn the_enrollment_port_is_bounded_in_time_number_and_rate_and_every_end_is_counted() {
    let tight =
        "handshake_timeout = \"300ms\"\nenroll_connections_per_address = 2\nenroll_timeout = \"3s\"\nenroll_rate = 1\n";
    let mut server = Served::start("127.0.0.1", tight).await;
    assert_eq!(server.metrics().await.get("fl_enrollment_open"), 0);
    TcpStream::connect(&server.enroll).await.unwrap_err();
    let line = server.line("anna").await;
    assert_eq!(server.metrics().await.get("fl_enrollment_open"), 1);

    closes(&server.enroll, b"").await;
    closes(&server.enroll, &[7; 100]).await;
    // A connection that makes no call, and the one that takes the only other place.
    let way = way(&line);
    let meter = std::sync::Arc::clone(&way.meter);
    let _idle = fl_proto::dial(way).await.unwrap();
    server.counts(|metrics| metrics.connections("enroll") == (0, 1)).await;
    meter.closed().await;
    for reason in ["handshake_timeout", "handshake", "lifetime"] {
        server.counts(|metrics| metrics.closed("enroll", reason) == 1).await;
    }
    server.counts(|metrics| metrics.connections("enroll") == (0, 0)).await;

    // Guesses cost a second, and two at once wait for each other.
    let guess = || EnrollmentLine {
        secret: Secret::generate().unwrap(),
        ..line.clone()
    };
    let began = Instant::now();
    let (first, second) = (guess(), guess());
    let (first, second) = tokio::join!(ask(&first), ask(&second));
    for refused in [first, second] {
        assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    }
    assert!(began.elapsed() >= Duration::from_millis(1_900), "{:?}", began.elapsed());
    let metrics = server.metrics().await;
    assert_eq!(metrics.get("fl_enrollments_total{outcome=\"wrong_secret\"}"), 2);
    assert_eq!(metrics.get("fl_edge_calls_total{port=\"enroll\"}"), 2);
    assert_eq!(
        metrics.get("fl_edge_calls_limited_total{port=\"enroll\",limit=\"rate\"}"),
        1
    );

    // Silent connections take every place of the address; the device gets one as soon as they are silent for too long.
    let silent = [
        TcpStream::connect(&server.enroll).await.unwrap(),
        TcpStream::connect(&server.enroll).await.unwrap(),
        TcpStream::connect(&server.enroll).await.unwrap(),
    ];
    for mut io in silent {
        until_closed(&mut io).await;
    }
    server.counts(|metrics| metrics.crowded_out("enroll") >= 1).await;
    ask(&line).await.unwrap();
    let issued = "fl_enrollments_total{outcome=\"issued\"}";
    assert_eq!(server.metrics().await.get(issued), 1);
    server.child.kill().await.unwrap();
}

#[tokio::test]
async fn behind_a_proxy_the_bounds_of_an_address_are_those_of_the_client() {
    let fed = Fed::new();
    let mut options = fed.options(&Run::default());
    options.tuning.proxy_protocol = true;
    options.tuning.handshakes_per_address = 1;
    let address = fed.page(&mut options);
    let server = Server::start(options).await;
    let own = fed.issue("anna");
    // A proxy: what it says of the client comes before the client's bytes.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (front, to) = (listener.local_addr().unwrap().to_string(), server.address.clone());
    tokio::spawn(async move {
        for host in 1.. {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut behind = TcpStream::connect(&to).await.unwrap();
            let says = format!("PROXY TCP4 203.0.113.{host} 10.0.0.1 4711 7070\r\n");
            behind.write_all(says.as_bytes()).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut behind).await });
        }
    });
    // Each of another address, so that none crowds another out.
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(TcpStream::connect(&front).await.unwrap());
    }
    let mut hand = TestClient::dial(&front, &fed.root.certificate, &own).await.unwrap();
    hand.join(None).await.unwrap();
    let metrics = Metrics::once(&address, |metrics| metrics.connections("main").0 == 3).await;
    assert_eq!(metrics.crowded_out("main"), 0);
    // Without a header, nobody is let in.
    TestClient::dial(&server.address, &fed.root.certificate, &own)
        .await
        .map(drop)
        .unwrap_err();
    drop((silent, hand));
    server.stop().await;
}

#[tokio::test]
async fn a_proxy_that_nobody_asked_for_is_named() {
    let fed = Fed::new();
    let mut server = fed.start(&Run::default()).await;
    for header in ["PROXY TCP4 203.0.113.7 10.0.0.1 1 2\r\n", "\r\n\r\n\0\r\nQUIT\n"] {
        closes(&server.address, header.as_bytes()).await;
    }
    let why = loop {
        if let fl_server::Event::TurnedAway { why, .. } = server.events.recv().await.unwrap() {
            break why;
        }
    };
    assert_contains(&why, "`proxy_protocol = true`");
    server.stop().await;
}
