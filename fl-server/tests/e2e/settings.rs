//! SIGHUP to a serving process: the settings of both ports, of enrollment and of the page change, and open connections stay.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fl_proto::{EnrollmentLine, Issued, Secret, client_tls};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr, Command};
use tonic::Code;

use crate::edge::{Metrics, TIMEOUT, ask, closes, fl_server, until_closed, way};
use crate::support::*;

/// A server process, and the folder of its federation.
pub(crate) struct Served {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) child: Child,
    pub(crate) log: Lines<BufReader<ChildStderr>>,
    pub(crate) address: String,
    pub(crate) admin: String,
    pub(crate) enroll: String,
}

impl Served {
    /// Serves with these keys beside the addresses. `admin`: the host of the page.
    pub(crate) async fn start(admin: &str, keys: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fed = dir.path().join("fed");
        fl_server(&["init", fed.to_str().unwrap(), "--listen", "127.0.0.1:0"]).await;
        let [address, page, enroll] = [(); 3].map(|()| free_address());
        let admin = page.replace("127.0.0.1", admin);
        write_model(&dir.path().join("init.safetensors"), &Fed::new().layout);
        std::fs::write(dir.path().join("run.toml"), Fed::new().toml(&Run::default())).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_fl-server"));
        command
            .args(["serve".into(), fed.join("server.toml")])
            .args(["--run".into(), dir.path().join("run.toml")])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .env_remove("RUST_LOG")
            .kill_on_drop(true);
        let head = format!("listen = \"{address}\"\nadmin = \"{admin}\"\nenroll = \"{enroll}\"\n");
        std::fs::write(fed.join("server.toml"), format!("{head}{keys}")).unwrap();
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut served = Self {
            dir,
            child,
            log,
            address,
            admin: page,
            enroll,
        };
        served.says(" serving ").await;
        served
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("fed").join(name)
    }

    /// The next line of the log that contains `part`.
    async fn says(&mut self, part: &str) -> String {
        let mut said = String::new();
        loop {
            let line = tokio::time::timeout(TIMEOUT, self.log.next_line()).await;
            let line = line.unwrap_or_else(|_| panic!("no `{part}` in\n{said}"));
            let line = line.unwrap().unwrap_or_else(|| panic!("the server ended:\n{said}"));
            if line.contains(part) {
                return line;
            }
            said.push_str(&line);
            said.push('\n');
        }
    }

    /// Puts other keys into server.toml and sends SIGHUP. Returns what the server says of it.
    async fn change(&mut self, keys: &str) -> String {
        let text = std::fs::read_to_string(self.path("server.toml")).unwrap();
        let head: String = text.lines().take(3).map(|line| format!("{line}\n")).collect();
        std::fs::write(self.path("server.toml"), format!("{head}{keys}")).unwrap();
        self.hang_up().await;
        self.says("were read again").await
    }

    async fn hang_up(&self) {
        let id = self.child.id().unwrap().to_string();
        let sent = Command::new("kill").args(["-HUP", &id]).status().await;
        assert!(sent.unwrap().success());
    }

    pub(crate) async fn issue(&self, name: &str) -> (String, Issued) {
        let (fed, to) = (self.path(""), self.dir.path().join(name));
        let (fed, out) = (fed.to_str().unwrap(), to.to_str().unwrap());
        fl_server(&["issue", name, "--fed", fed, "--out", out]).await;
        issued_in(&to)
    }

    pub(crate) async fn line(&self, name: &str) -> EnrollmentLine {
        let said = fl_server(&["enroll", name, "--fed", self.path("").to_str().unwrap()]).await;
        said.trim().strip_prefix("fl-client enroll ").unwrap().parse().unwrap()
    }

    pub(crate) async fn metrics(&self) -> Metrics {
        Metrics::of(&self.admin).await
    }

    /// Waits until `/metrics` say so.
    pub(crate) async fn counts(&self, holds: impl Fn(&Metrics) -> bool) {
        Metrics::once(&self.admin, holds).await;
    }
}

#[tokio::test]
async fn bounds_of_the_main_port_change_and_open_connections_stay() {
    let mut server = Served::start("127.0.0.1", "").await;
    let (root, own) = server.issue("anna").await;
    let mut older = TestClient::connect(&server.address, &root, &own, "anna").await;
    let mut silent = TcpStream::connect(&server.address).await.unwrap();
    let said = server
        .change("handshake_timeout = \"300ms\"\nconnections_per_client = 1\ncall_rate = 5\nverify_at_once = 5\n")
        .await;
    let keys = "changed: `connections_per_client`, `handshake_timeout`, `call_rate`; restart the server to change `verify_at_once`";
    assert!(said.ends_with(keys), "{said}");
    older.join(None).await.unwrap();
    // A connection of before has the time of before.
    closes(&server.address, b"").await;
    server
        .counts(|metrics| metrics.closed("main", "handshake_timeout") == 1)
        .await;
    let mut newer = TestClient::connect(&server.address, &root, &own, "anna").await;
    older.meter.closed().await;
    server.counts(|metrics| metrics.closed("main", "newer") == 1).await;
    let began = Instant::now();
    for _ in 0..8 {
        newer.join(None).await.unwrap();
    }
    assert!(began.elapsed() >= Duration::from_millis(600), "{:?}", began.elapsed());

    let said = server
        .change("idle = \"300ms\"\nhandshakes_per_address = 1\nverify_at_once = 5\n")
        .await;
    let keys = "changed: `connections_per_client`, `handshakes_per_address`, `handshake_timeout`, `call_rate`, `idle`; restart the \
                server to change `verify_at_once`";
    assert!(said.ends_with(keys), "{said}");
    newer.meter.closed().await;
    server.counts(|metrics| metrics.closed("main", "idle") == 1).await;
    let mut second = TcpStream::connect(&server.address).await.unwrap();
    let mut third = TcpStream::connect(&server.address).await.unwrap();
    // The oldest silent ones make room, or the newest finds none.
    until_closed(&mut silent).await;
    tokio::select! {
        () = until_closed(&mut second) => {}
        () = until_closed(&mut third) => {}
    }
    server.counts(|metrics| metrics.crowded_out("main") >= 2).await;
    // Nothing changed: nothing is named, but what still takes a restart.
    let said = server.change("idle = \"300ms\"\nhandshakes_per_address = 1\n").await;
    assert!(said.ends_with("new connections and transfers use them"), "{said}");
}

#[tokio::test]
async fn enrollment_changes_its_bounds_and_what_it_tells_devices() {
    let mut server = Served::start("127.0.0.1", "").await;
    let line = server.line("anna").await;
    let said = server
        .change(
            "address = \"fl.example.org:7070\"\ncertificate_days = 1\nhandshake_timeout = \"300ms\"\n\
             enroll_connections_per_address = 2\nenroll_timeout = \"3s\"\nenroll_rate = 1\n",
        )
        .await;
    let keys = "changed: `address`, `certificate_days`, `handshake_timeout`, `enroll_connections_per_address`, `enroll_timeout`, \
                `enroll_rate`";
    assert!(said.ends_with(keys), "{said}");
    closes(&server.enroll, b"").await;
    let way = way(&line);
    let meter = Arc::clone(&way.meter);
    let _idle = fl_proto::dial(way).await.unwrap();
    meter.closed().await;
    for reason in ["handshake_timeout", "lifetime"] {
        server.counts(|metrics| metrics.closed("enroll", reason) == 1).await;
    }
    for mut silent in [
        TcpStream::connect(&server.enroll).await.unwrap(),
        TcpStream::connect(&server.enroll).await.unwrap(),
        TcpStream::connect(&server.enroll).await.unwrap(),
    ] {
        until_closed(&mut silent).await;
    }
    server.counts(|metrics| metrics.crowded_out("enroll") >= 1).await;
    // A burst of one call; the second one waits.
    let guess = EnrollmentLine {
        secret: Secret::generate().unwrap(),
        ..line.clone()
    };
    assert_eq!(ask(&guess).await.unwrap_err().code(), Code::Unauthenticated);
    let limited = "fl_edge_calls_limited_total{port=\"enroll\",limit=\"rate\"}";
    assert_eq!(server.metrics().await.get(limited), 0);
    let reply = ask(&line).await.unwrap();
    assert_eq!(reply.server, "fl.example.org:7070");
    assert_eq!(ask(&guess).await.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(server.metrics().await.get(limited), 1);
}

/// The status of `/metrics` with this token, the certificate of the page, and when the server's is to be renewed.
async fn page(server: &Served, root: &str, own: &Issued, token: &str) -> (u16, Vec<u8>, u64) {
    let mut tls = client_tls(root, own).unwrap();
    Arc::make_mut(&mut tls).alpn_protocols.clear();
    let io = TcpStream::connect(&server.admin).await.unwrap();
    let name = ServerName::try_from("fl-server").unwrap();
    let mut io = tokio_rustls::TlsConnector::from(tls).connect(name, io).await.unwrap();
    let certificate = io.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: fl-server\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    io.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A server that closes TLS without an alert has still sent the whole response.
    let _ = io.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let due = match status {
        200 => Metrics(answer).get("fl_certificate_renewal_timestamp_seconds{kind=\"server\",name=\"server\"}"),
        _ => 0,
    };
    (status, certificate, due)
}

#[tokio::test]
async fn the_page_takes_another_token_and_the_servers_renewed_certificate() {
    let mut server = Served::start("0.0.0.0", "").await;
    let (root, own) = server.issue("anna").await;
    let first = std::fs::read_to_string(server.path("admin.token")).unwrap();
    let (status, before, due) = page(&server, &root, &own, first.trim()).await;
    assert_eq!((status, page(&server, &root, &own, TOKEN).await.0), (200, 401));
    std::fs::write(server.path("admin.token"), TOKEN).unwrap();
    server.change("").await;
    assert_eq!(page(&server, &root, &own, first.trim()).await.0, 401);
    assert_eq!(page(&server, &root, &own, TOKEN).await, (200, before.clone(), due));
    std::fs::write(server.path("admin.token"), "short").unwrap();
    server.hang_up().await;
    let said = server.says("not reloaded").await;
    assert_contains(&said, "admin.token");
    assert_contains(&said, "stay in use");
    assert_eq!(page(&server, &root, &own, TOKEN).await.0, 200);
    std::fs::write(server.path("admin.token"), TOKEN).unwrap();
    let fed = server.path("");
    fl_server(&["authority", "renew", "--fed", fed.to_str().unwrap(), "--days", "360"]).await;
    let (status, after, later) = page(&server, &root, &own, TOKEN).await;
    assert!(status == 200 && after != before);
    // Two thirds of 360 days, in place of two thirds of 90.
    let days = (later - due) as f64 / 86_400.0;
    assert!((179.9..180.1).contains(&days), "{days}");
}
