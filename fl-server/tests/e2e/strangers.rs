//! Connections of many strangers, and clients that are silent, connect twice, or are very slow, do not disturb the
//! clients of the run.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use fl_compress::Layout;
use fl_proto::wire::federation_client::FederationClient;
use fl_proto::{CHUNK, UpdateReply, client_tls, wire};
use fl_server::blobs::Blobs;
use fl_server::disk::Disk;
use fl_server::record::Record;
use fl_server::store::Store;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

/// Larger than a small transfer.
fn large() -> Layout {
    Layout::new([("w", vec![300, 100])]).unwrap()
}

/// A TLS ClientHello without the extensions of TLS 1.3, so it offers at most TLS 1.2.
fn hello_of_tls_1_2() -> Vec<u8> {
    let extensions: &[&[u8]] = &[
        // supported_groups: x25519, secp256r1; ec_point_formats: uncompressed; signature_algorithms: ecdsa and rsa_pss.
        &[0, 10, 0, 6, 0, 4, 0, 29, 0, 23],
        &[0, 11, 0, 2, 1, 0],
        &[0, 13, 0, 6, 0, 4, 4, 3, 8, 4],
    ];
    let extensions = extensions.concat();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    // No session; ECDHE with AES-GCM and ChaCha20, ECDSA and RSA; no compression.
    body.extend([0, 0, 8, 0xc0, 0x2b, 0xc0, 0x2f, 0xcc, 0xa9, 0xcc, 0xa8, 1, 0]);
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    let mut hello = vec![22, 3, 1];
    hello.extend((body.len() as u16 + 4).to_be_bytes());
    hello.extend([1, 0]);
    hello.extend((body.len() as u16).to_be_bytes());
    hello.extend(body);
    hello
}

#[tokio::test]
async fn tls_1_2_is_refused_at_both_ports() {
    let fed = Fed::new();
    let mut options = fed.options(&Run::default());
    let page = fed.page_with_token(&mut options);
    let server = Server::start(options).await;
    for address in [&server.address, &page] {
        let mut io = TcpStream::connect(address).await.unwrap();
        io.write_all(&hello_of_tls_1_2()).await.unwrap();
        let mut answer = Vec::new();
        let _ = io.read_to_end(&mut answer).await;
        // A fatal alert: protocol_version (RFC 8446, section 6.2).
        assert_eq!(answer.get(..1), Some(&[21][..]), "{address}: {answer:?}");
        assert_eq!(answer.get(5..7), Some(&[2, 70][..]), "{address}: {answer:?}");
    }
    server.stop().await;
}

/// Connects `times` times, sends one of several messages, and stays as long as the server allows.
async fn stranger(address: String, number: usize, times: usize) {
    for time in 0..times {
        let Ok(mut io) = TcpStream::connect(&address).await else {
            continue;
        };
        let _ = match (number + time) % 4 {
            0 | 1 => Ok(()),
            2 => io.write_all(&hello_of_tls_1_2()[..20]).await,
            _ => io.write_all(b"GET / HTTP/1.1\r\n\r\n").await,
        };
        let _ = io.read_to_end(&mut Vec::new()).await;
    }
}

#[tokio::test]
async fn twenty_clients_finish_their_rounds_whatever_strangers_do_where_few_files_may_be_open() {
    const CLIENTS: usize = 20;
    const STRANGERS: usize = 300;
    fl_proto::raise_open_files();
    let fed = Fed::new();
    let folder = fed.dir.path();
    let program = env!("CARGO_BIN_EXE_fl-server");
    let run = fed.toml(&Run::default().clients(CLIENTS));
    std::fs::write(folder.join("run.toml"), run).unwrap();
    let server = "listen = \"127.0.0.1:0\"\nadmin = \"off\"\n";
    for (name, text) in [
        ("server.toml", server),
        ("authority.pem", &fed.root.certificate),
        ("server.pem", &fed.server.certificate),
        ("server.key", &fed.server.key),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let limited = "ulimit -n 128 && exec \"$0\" serve \"$1\" --run \"$2\" --exit-when-done";
    let mut child = Command::new("sh")
        .args(["-c", limited, program])
        .args([folder.join("server.toml"), folder.join("run.toml")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut stderr = child.stderr.take().unwrap();
    let said = tokio::spawn(async move {
        let mut said = String::new();
        let _ = stderr.read_to_string(&mut said).await;
        said
    });
    let first = lines.next_line().await.unwrap().expect("it serves");
    let address = first.rsplit(' ').next().unwrap().to_owned();

    let strangers: Vec<_> = (0..STRANGERS)
        .map(|n| tokio::spawn(stranger(address.clone(), n, 10)))
        .collect();
    // The strangers connect before the clients.
    let mut early = Vec::new();
    for _ in 0..STRANGERS {
        early.push(TcpStream::connect(&address).await);
    }
    let mut clients = Vec::new();
    for n in 0..CLIENTS {
        let name = format!("client-{n}");
        let (own, authority, address) = (fed.issue(&name), fed.root.certificate.clone(), address.clone());
        clients.push(tokio::spawn(async move {
            // Reconnects after any failure, like a real client.
            let mut hand = loop {
                if let Ok(mut hand) = TestClient::dial(&address, &authority, &own).await
                    && hand.join(None).await.is_ok()
                {
                    break hand;
                }
                tokio::task::yield_now().await;
            };
            hand = hand.joined(&name).await;
            hand.take_part().await
        }));
    }
    let mut models = Vec::new();
    for client in clients {
        models.push(client.await.unwrap());
    }
    assert!(models.windows(2).all(|pair| pair[0] == pair[1]));
    let mut last = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        last = line;
    }
    let status = child.wait().await.unwrap();
    strangers.iter().for_each(tokio::task::JoinHandle::abort);
    drop(early);
    let said = said.await.unwrap();
    assert!(status.success(), "{said}");
    assert_contains(&last, &models[0].to_string());
    assert_contains(&said, "open_files=128");
    assert!(!said.contains("ERROR") && !said.contains("os error 24"), "{said}");
}

#[tokio::test]
async fn a_clients_newest_connection_ends_its_oldest_and_one_without_a_call_is_closed() {
    let fed = Fed::new();
    let mut options = fed.options(&Run::default());
    options.tuning.connections_per_client = 2;
    options.tuning.idle = Duration::from_secs(2);
    let server = Server::start(options).await;
    let mut oldest = fed.client("anna", &server).await;
    let mut watch = oldest.watch().await;
    let mut others = [fed.client("anna", &server).await, fed.client("anna", &server).await];
    ended(&mut watch).await;
    assert!(oldest.join(None).await.is_err());
    let mut berta = fed.client("berta", &server).await;
    let mut watch = berta.watch().await;
    watch.message().await.unwrap();
    for other in &mut others {
        other.meter.closed().await;
        assert!(other.join(None).await.is_err(), "it made no call for too long");
    }
    berta.join(None).await.unwrap();
    drop((oldest, others, berta, watch));
    server.stop().await;
}

#[tokio::test]
async fn a_newer_watch_ends_the_older_and_says_why() {
    let fed = Fed::new();
    let server = fed.start(&Run::default()).await;
    let (mut first, mut second) = (fed.client("anna", &server).await, fed.client("anna", &server).await);
    let mut older = first.watch().await;
    older.message().await.unwrap();
    let mut newer = second.watch().await;
    newer.message().await.unwrap();
    let status = ended(&mut older).await;
    assert_eq!(status.code(), Code::Aborted);
    assert!(status.message().contains("its own certificate"), "{status}");
    drop((first, second, older, newer));
    server.stop().await;
}

/// A federation with an open round 1 and one slot for large transfers.
async fn with_one_place(
    fed: &Fed,
    stall: Duration,
) -> (Server, Vec<TestClient>, Vec<tonic::Streaming<wire::RoundState>>) {
    let mut options = fed.options(&Run::default());
    options.tuning.transfers_at_once = 1;
    options.tuning.stall = stall;
    let server = Server::start(options).await;
    let mut hands = fed.clients(&server).await;
    let watches = in_training(&mut hands).await;
    (server, hands, watches)
}

const FOR_EVER: Duration = Duration::from_secs(3600);

/// Limits waits that could hang.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(60), what).await;
    done.expect("it is held up")
}

#[tokio::test]
async fn an_upload_takes_its_place_when_its_bytes_come_and_a_newer_one_ends_it() {
    let fed = Fed::with_layout(large());
    let (server, mut hands, _watches) = with_one_place(&fed, FOR_EVER).await;
    let mut berta = hands.remove(1);
    let mut anna = hands.remove(0);
    let frame = anna.encode(1);
    assert!(frame.len() > CHUNK);
    let header = anna.header(1, &frame);
    // Announces an upload and sends nothing.
    let (parts, stream) = mpsc::channel(4);
    parts.send(header_chunk(&header)).await.unwrap();
    let mut calls = anna.calls.clone();
    let silent = tokio::spawn(async move { calls.submit(ReceiverStream::new(stream)).await });
    while parts.capacity() < parts.max_capacity() {
        tokio::task::yield_now().await;
    }
    assert_eq!(soon(berta.send(1)).await, UpdateReply::Accepted);
    // Her second upload replaces the first.
    assert_eq!(soon(anna.submit(&header, &frame)).await.unwrap(), UpdateReply::Accepted);
    let ended = silent.await.unwrap().unwrap_err();
    assert_eq!(ended.code(), Code::Aborted, "{ended}");
    drop((parts, anna, berta, hands));
    server.stop().await;
}

#[tokio::test]
async fn an_upload_that_trickles_is_broken_off_and_resumed() {
    let fed = Fed::with_layout(large());
    let (server, mut hands, _watches) = with_one_place(&fed, Duration::from_secs(2)).await;
    let mut berta = hands.remove(1);
    let mut anna = hands.remove(0);
    let frame = anna.encode(1);
    let header = anna.header(1, &frame);
    let (parts, stream) = mpsc::channel(4);
    let mut calls = anna.calls.clone();
    let slow = tokio::spawn(async move { calls.submit(ReceiverStream::new(stream)).await });
    parts.send(header_chunk(&header)).await.unwrap();
    // A hundred bytes per second, a tenth of the minimum rate, until the server gives up.
    let trickle = async {
        let mut clock = tokio::time::interval(Duration::from_millis(10));
        for byte in &frame {
            clock.tick().await;
            if parts.send(data_chunk(std::slice::from_ref(byte))).await.is_err() {
                // The call has ended; its status follows.
                std::future::pending::<()>().await;
            }
        }
    };
    let broken = tokio::select! {
        ended = slow => ended.unwrap().unwrap_err(),
        () = trickle => panic!("it was not broken off"),
    };
    assert_eq!(broken.code(), Code::DeadlineExceeded, "{broken}");
    assert_eq!(berta.send(1).await, UpdateReply::Accepted, "the place is free");
    let UpdateReply::Wanted { offset } = anna.offer(&header).await else {
        panic!("it is gone")
    };
    assert!(offset > 0, "what came is kept");
    let rest = fl_proto::UpdateHeader {
        offset,
        ..header.clone()
    };
    let accepted = anna.submit(&rest, &frame[offset as usize..]).await.unwrap();
    assert_eq!(accepted, UpdateReply::Accepted);
    drop((anna, berta, hands));
    server.stop().await;
}

/// A client that receives no data on its streams: their flow-control window is 0.
async fn deaf(fed: &Fed, server: &Server, name: &str) -> FederationClient<tonic::transport::Channel> {
    let tls = client_tls(&fed.root.certificate, &fed.issue(name)).unwrap();
    let address = server.address.clone();
    let connect = tower::service_fn(move |_: tonic::transport::Uri| {
        let (tls, address) = (Arc::clone(&tls), address.clone());
        async move {
            let io = TcpStream::connect(address).await?;
            let connector = tokio_rustls::TlsConnector::from(tls);
            let io = connector.connect("fl-server".try_into().unwrap(), io).await?;
            Ok::<_, std::io::Error>(TokioIo::new(io))
        }
    });
    let endpoint = tonic::transport::Endpoint::from_static("http://fl-server").initial_stream_window_size(0);
    FederationClient::new(endpoint.connect_with_connector(connect).await.unwrap())
}

#[tokio::test]
async fn a_download_that_nobody_reads_takes_no_place() {
    let fed = Fed::with_layout(large());
    let (server, mut hands, _watches) = with_one_place(&fed, FOR_EVER).await;
    let mut calls = deaf(&fed, &server, "anna").await;
    let request = fetch_request(None, 0, None);
    // Only the response head arrives, because headers need no window.
    let unread = calls.fetch(wire::FetchRequest::from(request)).await.unwrap();
    soon(hands[1].try_update_model(0)).await.unwrap();
    drop((unread, calls, hands));
    server.stop().await;
}

#[tokio::test]
async fn what_a_server_keeps_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let fed = Fed::new();
    let server = fed.start(&Run::default()).await;
    let mut hands = fed.clients(&server).await;
    all_take_part(&mut hands).await;
    let (mut folders, mut files) = (vec![fed.data()], 0);
    while let Some(folder) = folders.pop() {
        assert_eq!(
            folder.metadata().unwrap().permissions().mode() & 0o777,
            0o700,
            "{folder:?}"
        );
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.metadata().unwrap();
            if meta.is_dir() {
                folders.push(path);
            } else {
                assert_eq!(meta.permissions().mode() & 0o777, 0o600, "{path:?}");
                files += 1;
            }
        }
    }
    assert!(files > 5, "{files}");
    drop(hands);
    server.end().await;
}

#[tokio::test]
async fn updates_that_no_restart_needs_are_removed_unless_they_are_to_be_kept() {
    for keep in [false, true] {
        let fed = Fed::new();
        let run = Run::rounds(3).compression(SPARSE);
        let mut options = fed.options(&run);
        assert!(!options.tuning.keep_updates, "the default");
        options.tuning.keep_updates = keep;
        options.tuning.checkpoint_every = 1;
        let server = Server::start(options).await;
        let mut hands = fed.clients(&server).await;
        all_take_part(&mut hands).await;
        drop(hands);
        server.end().await;
        let store = Store::open(&fed.data(), Disk::default()).unwrap();
        let stored = store.run(&"test".parse().unwrap()).unwrap();
        let blobs = Blobs::open(&fed.data(), stored.name(), Disk::default()).unwrap();
        let has = |record: &Record| match record {
            Record::UpdateAccepted { update, .. } => blobs.len(&update.digest).unwrap().is_some(),
            _ => false,
        };
        let updates = stored.records().filter(|record| has(record.as_ref().unwrap())).count();
        let packs = std::fs::read_dir(fed.data().join("packs/test")).unwrap().count();
        // With the updates of one round.
        assert_eq!(packs, updates / 3);
        drop((blobs, stored, store));
        // Updates since the older checkpoint (round 2), or all of them.
        assert_eq!(updates, if keep { 9 } else { 3 });
        // The run can be served again.
        assert_eq!(fed.start(&run).await.stop().await.version, 3);
    }
}
