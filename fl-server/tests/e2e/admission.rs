//! Who may make which call, over open connections: every call of the schema by every role, and after each way in which a
//! certificate stops to count.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fl_proto::{Authority, Issued, Role};
use fl_server::{LiveSettings, Reload, ServerFiles};
use time::OffsetDateTime;
use tonic::Code;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

use crate::support::*;

/// The calls of the schema.
fn calls() -> Vec<&'static str> {
    let schema = include_str!("../../../proto/proto/fl/v1/federation.proto");
    let calls = schema.lines().filter_map(|line| line.trim().strip_prefix("rpc "));
    let calls: Vec<_> = calls.filter_map(|line| line.split('(').next()).collect();
    assert!(calls.len() >= 10, "{calls:?}");
    calls
}

/// The status of a call with one empty message: whichever way its messages travel, they are one stream each way on the wire.
pub(crate) async fn call(channel: &Channel, call: &str) -> Code {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let path = format!("/fl.v1.Federation/{call}").parse().unwrap();
    let message = tonic::Request::new(tokio_stream::once(()));
    let answered = async {
        let mut answer = grpc.streaming(message, path, ProstCodec::<(), ()>::default()).await?;
        while answer.get_mut().message().await?.is_some() {}
        Ok::<_, tonic::Status>(())
    };
    answered.await.err().map_or(Code::Ok, |status| status.code())
}

async fn all(channel: &Channel) -> Vec<(&'static str, Code)> {
    let mut codes = Vec::new();
    for name in calls() {
        codes.push((name, call(channel, name).await));
    }
    codes
}

fn is_denied(code: Code) -> bool {
    matches!(code, Code::PermissionDenied | Code::Unauthenticated)
}

async fn channel(fed: &Fed, server: &Server, own: &Issued) -> Channel {
    let tls = fl_proto::client_tls(&fed.root.certificate, own).unwrap();
    let dial = fl_proto::Dial::new(server.address.clone(), tls);
    fl_proto::dial(dial).await.unwrap()
}

#[tokio::test]
async fn each_role_makes_its_calls_and_no_other() {
    let fed = Fed::new();
    let server = fed.start(&Run::default()).await;
    for (role, denied) in [
        (Role::Client, vec![]),
        (Role::Evaluator, vec!["Submit"]),
        (Role::Operator, calls()),
    ] {
        let channel = channel(&fed, &server, &fed.issue_as("eve", role)).await;
        let found = all(&channel).await;
        let found: Vec<_> = found.into_iter().filter(|(_, code)| is_denied(*code)).collect();
        let names: Vec<_> = found.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, denied, "{role}");
        assert!(
            found.iter().all(|(_, code)| *code == Code::PermissionDenied),
            "{role}: {found:?}"
        );
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_stops_to_count_ends_every_call_of_its_open_connection() {
    static AHEAD: AtomicU64 = AtomicU64::new(0);
    const DAY: u64 = 24 * 3_600_000;
    let fed = Fed::new();
    let now = OffsetDateTime::now_utc();
    let (second, second_root) = Authority::create("test", now, time::Duration::days(10)).unwrap();
    let both = format!("{}{}", fed.root.certificate, second_root.certificate);
    let trusted = Arc::new(Mutex::new(both.clone()));
    let mut options = fed.options(&Run::default());
    options.authority = both;
    options.clock = || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        now.as_millis() as u64 + AHEAD.load(Ordering::Relaxed)
    };
    let own = fed.server.clone();
    let settings = LiveSettings {
        tuning: options.tuning,
        server: String::new(),
        lifetime: Duration::from_secs(DAY / 1000),
        authority: fed.dir.path().join("authority.pem"),
        own: None,
        costs: None,
        token: None,
    };
    let read = Arc::clone(&trusted);
    options.reload = Some(Reload::new(move || {
        Ok(ServerFiles {
            authority: read.lock().unwrap().clone(),
            own: own.clone(),
            page: None,
            settings: settings.clone(),
            changed: Vec::new(),
            ignored: Vec::new(),
        })
    }));
    let config = fed.dir.path().join("server.toml");
    std::fs::write(&config, format!("data = {:?}\n", fed.data())).unwrap();
    let command = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fl-server"));
        let done = command.args(args).arg("--fed").arg(&config).output().unwrap();
        assert!(
            done.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    };
    let server = Server::start(options).await;
    let by_second = |name: &str| {
        let issued = second.issue_client(&name.parse().unwrap(), now, time::Duration::days(5));
        issued.unwrap()
    };
    let reload = || {
        let mut socket = UnixStream::connect(fed.data().join("admin.sock")).unwrap();
        socket.write_all(b"\"reload\"\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert_contains(&answer, "read again");
    };
    // In this order: a clock that is ahead stays ahead.
    type End<'a> = (&'static str, Code, Box<dyn Fn() + 'a>);
    let ends: [End<'_>; 5] = [
        ("listed", Code::PermissionDenied, {
            let list = fed.dir.path().join("revoked");
            Box::new(move || std::fs::write(&list, "listed\n").unwrap())
        }),
        (
            "revoked",
            Code::PermissionDenied,
            Box::new(|| command(&["clients", "revoke", "revoked"])),
        ),
        (
            "forgotten",
            Code::PermissionDenied,
            Box::new(|| command(&["clients", "forget", "forgotten"])),
        ),
        ("removed", Code::Unauthenticated, {
            let (trusted, first) = (Arc::clone(&trusted), fed.root.certificate.clone());
            Box::new(move || {
                *trusted.lock().unwrap() = first.clone();
                reload();
            })
        }),
        (
            "expired",
            Code::Unauthenticated,
            Box::new(|| AHEAD.store(2 * DAY, Ordering::Relaxed)),
        ),
    ];
    for (name, code, end) in ends {
        let own = if name == "removed" {
            by_second(name)
        } else {
            fed.issue(name)
        };
        let mut hand = TestClient::connect(&server.address, &fed.root.certificate, &own, name).await;
        let mut watch = hand.watch().await;
        watch.message().await.unwrap().unwrap();
        let channel = channel(&fed, &server, &own).await;
        assert!(all(&channel).await.iter().all(|(_, code)| !is_denied(*code)), "{name}");
        // The calls above have ended the watch of before.
        let mut watch = hand.watch().await;
        watch.message().await.unwrap().unwrap();
        end();
        assert_eq!(
            all(&channel).await,
            calls().into_iter().map(|call| (call, code)).collect::<Vec<_>>(),
            "{name}"
        );
        let status = tokio::time::timeout(Duration::from_secs(60), ended(&mut watch)).await;
        assert_eq!(status.unwrap().code(), code, "{name}: the open watch");
    }
    server.stop().await;
}
