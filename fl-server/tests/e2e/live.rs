//! The live page at the admin address: access, content during a run, and that it never blocks the run.

use std::sync::Arc;

use crate::support::*;
use fl_proto::{Issued, Role, client_tls};
use fl_server::{Ending, Live, LiveError};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Status, head and body of one request over its own stream.
async fn ask<S: AsyncRead + AsyncWrite + Unpin>(stream: S, head: &str, body: &str) -> (u16, String, String) {
    try_ask(stream, head, body).await.unwrap()
}

/// As [`ask`]; `None` if there is no response.
async fn try_ask<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    head: &str,
    body: &str,
) -> Option<(u16, String, String)> {
    let len = body.len();
    let request = format!("{head}\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    // A server that closes TLS without an alert has still sent the whole response.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, head.to_lowercase(), body.to_owned()))
}

pub(crate) async fn get(address: &str, path: &str) -> (u16, String, String) {
    let stream = TcpStream::connect(address).await.unwrap();
    ask(stream, &format!("GET {path} HTTP/1.1\r\nHost: {address}"), "").await
}

/// A connection that reads the live events.
async fn viewer(address: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /live HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    BufReader::new(stream)
}

/// The data of the next server-sent event with this name.
async fn next_event(lines: &mut (impl AsyncBufReadExt + Unpin), name: &str) -> serde_json::Value {
    let (mut line, wanted) = (String::new(), format!("event: {name}"));
    loop {
        line.clear();
        assert!(
            lines.read_line(&mut line).await.unwrap() > 0,
            "the stream ended before {wanted}"
        );
        if line.trim_end() == wanted {
            break;
        }
    }
    line.clear();
    lines.read_line(&mut line).await.unwrap();
    serde_json::from_str(line.trim_start_matches("data: ")).unwrap()
}

#[tokio::test]
async fn who_looks_sees_the_run_go_on_and_ends_with_it() {
    let fed = Fed::new();
    let run = Run::rounds(3).evaluate().compression(SPARSE);
    let mut options = fed.options(&run);
    let address = fed.page(&mut options);
    let server = Server::start(options).await;

    let mut watching = viewer(&address).await;
    let waiting = next_event(&mut watching, "live").await;
    assert_eq!(waiting["phase"].as_str(), Some("waiting"));
    assert_eq!(waiting["round"].as_u64(), Some(0));
    assert_eq!(waiting["waiting"]["min"], 3);
    assert_eq!(next_event(&mut watching, "report").await["version"], 0);

    let (status, head, body) = get(&address, "/").await;
    assert_eq!(status, 200);
    assert!(head.contains("x-frame-options: deny") && head.contains("cache-control: no-store"));
    assert!(body.contains("<!doctype html>") && !body.contains("id=\"data\""));

    let mut hands = fed.clients(&server).await;
    let watches = watch_all(&mut hands).await;
    let training = loop {
        let now = next_event(&mut watching, "live").await;
        if now["phase"] == "training" {
            break now;
        }
    };
    assert_eq!(training["cohort"][0]["client"], "anna");
    assert_eq!(training["cohort"][0]["state"], "training");
    assert!(training["deadline_ms"].as_u64() > training["now_ms"].as_u64());
    let certificates = training["certificates"].as_array().unwrap();
    assert_eq!(
        certificates.len(),
        2 + 3,
        "authority, server, and each client that joined"
    );
    drop(watches);

    let (_, _, before) = get(&address, "/metrics").await;
    assert_contains(&before, "fl_phase{phase=\"training\"} 1.0");
    all_take_part(&mut hands).await;
    // The run is over, but the server stays up while clients are connected.
    let (status, _, report) = get(&address, "/report.json").await;
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!((status, report["balanced"].as_bool()), (200, Some(true)));
    assert_eq!(report["rounds"]["round"], serde_json::json!([1, 2, 3]));
    let (_, head, metrics) = get(&address, "/metrics").await;
    assert!(head.contains("content-type: application/openmetrics-text"));
    assert!(
        metrics.ends_with("# EOF\n")
            && metrics
                .lines()
                .any(|line| line.starts_with("fl_rounds_closed_total") && line.ends_with(" 3.0")),
        "{metrics}"
    );
    drop(hands);
    let outcome = server.end().await;
    assert_eq!(outcome.ending, Ending::Done);
    let mut rest = String::new();
    let _ = watching.read_to_string(&mut rest).await;
    assert!(TcpStream::connect(&address).await.is_err(), "the port is still open");
    // The store is unlocked.
    let again = fed.start(&run).await;
    assert_eq!(again.stop().await.version, 3);
}

#[tokio::test]
async fn a_loopback_page_answers_only_to_this_machines_own_name() {
    let fed = Fed::new();
    let mut options = fed.options(&Run::default());
    let address = fed.page(&mut options);
    let server = Server::start(options).await;
    for path in ["/", "/live.json", "/metrics"] {
        let stream = TcpStream::connect(&address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: evil.example");
        let (status, _, body) = ask(stream, &head, "").await;
        assert_eq!(status, 421);
        assert!(body.contains("localhost"));
    }
    assert_eq!(get(&address, "/nothing").await.0, 404);
    let stream = TcpStream::connect(&address).await.unwrap();
    let head = format!("POST /live.json HTTP/1.1\r\nHost: {address}");
    assert_eq!(ask(stream, &head, "").await.0, 405);
    server.stop().await;
}

#[tokio::test]
async fn elsewhere_the_page_speaks_tls_and_wants_the_token() {
    let fed = Fed::new();
    let mut options = fed.options(&Run::default());
    let address = fed.page_with_token(&mut options);
    let server = Server::start(options).await;

    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(fed.root.certificate.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let tell = async |head: &str, body: &str| {
        let stream = TcpStream::connect(&address).await.unwrap();
        let name = ServerName::try_from("fl-server").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        ask(stream, &format!("{head}\r\nHost: fl-server"), body).await
    };
    let (status, head, _) = tell("GET / HTTP/1.1", "").await;
    assert_eq!(status, 303);
    assert!(head.contains("location: /login"));
    assert_eq!(tell("GET /metrics HTTP/1.1", "").await.0, 401);
    assert_eq!(tell("GET /report.json HTTP/1.1", "").await.0, 401);
    let bearer = format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {TOKEN}");
    assert_eq!(tell(&bearer, "").await.0, 200);
    let post = "POST /login HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded";
    let (status, _, body) = tell(post, "token=guess").await;
    assert_eq!(status, 401);
    assert!(body.contains("That is not the token."));
    let (status, head, _) = tell(post, &format!("token={TOKEN}")).await;
    assert_eq!(status, 303);
    let cookie = head.split_once("set-cookie: ").unwrap().1.split(';').next().unwrap();
    let (status, _, _) = tell(&format!("GET /live.json HTTP/1.1\r\nCookie: {cookie}"), "").await;
    assert_eq!(status, 200);
    // A plain-text request gets no response.
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"));
    server.stop().await;
}

#[tokio::test]
async fn an_operator_reads_the_page_with_a_certificate_and_no_one_else_does() {
    let fed = Fed::new();
    let mut options = fed.options(&Run::default());
    let address = fed.page_with_token(&mut options);
    let server = Server::start(options).await;
    let connect = async |authority: &str, own: &Issued| {
        // The page speaks HTTP/1.1 and names no protocol.
        let mut tls = client_tls(authority, own).unwrap();
        Arc::make_mut(&mut tls).alpn_protocols.clear();
        let stream = TcpStream::connect(&address).await.unwrap();
        let name = ServerName::try_from("fl-server").unwrap();
        let connector = tokio_rustls::TlsConnector::from(tls);
        connector.connect(name, stream).await.unwrap()
    };
    let metrics = async |authority: &str, own: &Issued| {
        let stream = connect(authority, own).await;
        try_ask(stream, "GET /metrics HTTP/1.1\r\nHost: fl-server", "")
            .await
            .map(|(status, ..)| status)
    };
    let root = &fed.root.certificate;
    let (operator, other) = (
        fed.issue_as("otto", Role::Operator),
        fed.issue_as("olga", Role::Operator),
    );
    assert_eq!(metrics(root, &operator).await, Some(200));
    assert_eq!(metrics(root, &other).await, Some(200));
    for role in [Role::Client, Role::Evaluator] {
        assert_eq!(metrics(root, &fed.issue_as("eve", role)).await, Some(401), "{role}");
    }
    // Another federation's operator is refused in the handshake.
    let stranger = Fed::new().issue_as("otto", Role::Operator);
    assert_eq!(metrics(root, &stranger).await, None);
    let mut stream = BufReader::new(connect(root, &operator).await);
    stream
        .get_mut()
        .write_all(b"GET /live HTTP/1.1\r\nHost: fl-server\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    next_event(&mut stream, "live").await;
    std::fs::write(fed.dir.path().join("revoked"), "otto\n").unwrap();
    assert_eq!(metrics(root, &operator).await, Some(401), "revoked");
    // An open stream ends, too.
    let mut rest = Vec::new();
    // A server that closes TLS without an alert has still sent the whole response.
    let _ = stream.take(1 << 20).read_to_end(&mut rest).await;
    assert!(rest.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&rest));
    assert_eq!(metrics(root, &other).await, Some(200));
    server.stop().await;

    // Who read, and from where, is in the list of clients; who was refused is not.
    let config = fed.dir.path().join("server.toml");
    let data = fed.data();
    std::fs::write(&config, format!("data = {data:?}\n")).unwrap();
    let listed = std::process::Command::new(env!("CARGO_BIN_EXE_fl-server"))
        .args(["clients", "list", "--format", "json", "--fed"])
        .arg(&config)
        .output()
        .unwrap();
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let readers: Vec<_> = listed.as_array().unwrap().iter().collect();
    let names: Vec<_> = readers.iter().map(|reader| reader["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["olga", "otto"]);
    for reader in readers {
        assert_eq!(
            (&reader["role"], &reader["address"]),
            (&"operator".into(), &"127.0.0.1".into())
        );
        assert!(reader["last_seen"].as_u64().is_some(), "{reader}");
    }
}

#[test]
fn an_address_that_is_taken_and_a_token_that_is_short_are_said_in_words() {
    let own = Fed::new().server;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = Live::bind(address, None, &own).unwrap_err();
    assert!(error.to_string().contains("another process listens there"), "{error}");
    let everywhere = "0.0.0.0:0".parse().unwrap();
    for token in [None, Some(""), Some("short")] {
        let error = Live::bind(everywhere, token, &own).unwrap_err();
        assert!(matches!(error, LiveError::Token(_)), "{error}");
    }
    let broken = Issued {
        certificate: "no".into(),
        key: "no".into(),
    };
    assert!(matches!(
        Live::bind(everywhere, Some(TOKEN), &broken),
        Err(LiveError::Certificate(_))
    ));
}

#[tokio::test]
async fn silent_connections_do_not_close_the_page_however_many_they_are() {
    let fed = Fed::new();
    let run = Run::rounds(1);
    let mut options = fed.options(&run);
    let address = fed.page(&mut options);
    let server = Server::start(options).await;
    let mut held = Vec::new();
    let mut watching = viewer(&address).await;
    next_event(&mut watching, "live").await;
    for n in 0..200 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        if n % 2 == 0 {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: local").await.unwrap();
        }
        held.push(stream);
    }
    for path in ["/live.json", "/metrics"] {
        assert_eq!(get(&address, path).await.0, 200, "{path}");
    }
    let read = held[0].read(&mut [0; 1]).await;
    assert!(matches!(read, Ok(0) | Err(_)), "the oldest silent ones were closed");
    let mut hands = fed.clients(&server).await;
    all_take_part(&mut hands).await;
    // Viewers that were admitted earlier stay connected.
    loop {
        if next_event(&mut watching, "live").await["phase"] == "done" {
            break;
        }
    }
    drop((hands, held));
    assert_eq!(server.end().await.ending, Ending::Done);
}
