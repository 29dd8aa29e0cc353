//! Signs of life: the call of gRPC's health service, the command `health`, and messages to a service manager.

use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::cli::{fl_server, good};
use crate::support::*;
use fl_compress::Layout;
use fl_proto::{Dial, Issued, Meter, client_tls, dial};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Asks for the health of `service` over a connection of its own.
async fn check(fed: &Fed, server: &Server, own: &Issued, service: &str) -> (Result<i32, Status>, Arc<Meter>) {
    let way = Dial::new(server.address.clone(), client_tls(&fed.root.certificate, own).unwrap());
    let meter = Arc::clone(&way.meter);
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let reply = HealthClient::new(dial(way).await.unwrap()).check(request).await;
    (reply.map(|reply| reply.into_inner().status), meter)
}

#[tokio::test]
async fn certified_callers_learn_that_the_server_serves_and_their_bytes_are_in_the_ledger() {
    let fed = Fed::new();
    let server = fed.start(&Run::default()).await;
    let (probe, lost) = (fed.issue("probe"), fed.issue("lost"));
    std::fs::write(fed.dir.path().join("revoked"), "lost\n").unwrap();
    let mut written = 0;
    for (service, expected) in [("", Ok(1)), ("fl.v1.Federation", Ok(1)), ("other", Err(Code::NotFound))] {
        let (status, meter) = check(&fed, &server, &probe, service).await;
        assert_eq!(status.map_err(|status| status.code()), expected, "{service}");
        meter.closed().await;
        written += meter.written();
    }
    let (status, _) = check(&fed, &server, &lost, "").await;
    assert_eq!(status.unwrap_err().code(), Code::PermissionDenied);
    let long = "x".repeat(5_000);
    let (status, meter) = check(&fed, &server, &probe, &long).await;
    assert_eq!(status.unwrap_err().code(), Code::OutOfRange);
    meter.closed().await;

    let outcome = server.stop().await;
    let ledger = fed.ledger();
    assert!(ledger.is_balanced());
    let total = ledger.total();
    assert_eq!((total.socket_up, total.socket_down), outcome.socket);
    let flow = ledger.clients()[&Some("probe".parse().unwrap())];
    assert_eq!(flow.socket_up, written, "an oversized request names no client");
    assert!(flow.control_up > 0 && flow.control_down > 0);
}

/// Exit code and output of `fl-server health`.
fn health(fed: &str, timeout: &str) -> (Option<i32>, String) {
    let output = fl_server(&["health", fed, "--timeout", timeout]);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

fn founded(dir: &Path) -> String {
    let fed = dir.join("fed").display().to_string();
    good(&["init", &fed, "--listen", "127.0.0.1:0", "--admin", "off"]);
    fed
}

#[test]
fn a_hung_server_is_an_error_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let fed = founded(dir.path());
    let (code, text) = health(&fed, "60");
    assert!(code == Some(1) && text.contains("no server runs in"), "{text}");
    // A process that hangs accepts nothing; the kernel connects its callers all the same.
    let data = Path::new(&fed).join("data");
    std::fs::create_dir_all(&data).unwrap();
    let _hung = UnixListener::bind(data.join("admin.sock")).unwrap();
    let (code, text) = health(&fed, "0.1");
    assert!(code == Some(1), "{text}");
    assert_contains(&text, "does not answer within 0.1 s");
    let (code, text) = health("nowhere", "5");
    assert!(code == Some(2) && text.contains("does not exist"), "{text}");
}

#[test]
fn a_service_manager_learns_when_the_server_serves_works_and_stops() {
    let dir = tempfile::tempdir().unwrap();
    let fed = founded(dir.path());
    let layout = Layout::new([("a.weight", vec![4])]).unwrap();
    write_model(&dir.path().join("init.safetensors"), &layout);
    let run = dir.path().join("run.toml");
    let plan = "name = \"test\"\ntask = \"toy\"\nmodel = \"init.safetensors\"\nrounds = 1\nseed = 7\n\
                [cohort]\nmin = 1\ntarget = 1\n";
    std::fs::write(&run, plan).unwrap();
    let socket = dir.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let message = || {
        let mut bytes = [0; 4096];
        let len = manager.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    };
    let mut child = Command::new(env!("CARGO_BIN_EXE_fl-server"))
        .args(["serve", &fed, "--run", run.to_str().unwrap()])
        .env("NOTIFY_SOCKET", &socket)
        .env("WATCHDOG_USEC", "300000")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let ready = std::iter::repeat_with(message).find(|text| text.contains("READY=1"));
    assert!(ready.unwrap().contains("STATUS=serving `test` on 127.0.0.1:"));
    let (code, text) = health(&fed, "60");
    assert!(code == Some(0) && text.contains("healthy: serving `test` on"), "{text}");
    for _ in 0..2 {
        assert_eq!(message(), "WATCHDOG=1\n");
    }
    let stopped = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(stopped.unwrap().success());
    assert!(std::iter::repeat_with(message).any(|text| text == "STOPPING=1\n"));
    assert!(child.wait().unwrap().success());
}
