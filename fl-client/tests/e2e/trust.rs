//! Refused peers, and the error messages.

use crate::support::{Arithmetic, Certificates, Client, TestServer, World, config};
use fl_client::{ClientConfig, Error};

async fn refusal(config: ClientConfig) -> String {
    match Client::start(config, Arithmetic::new()).finish().await {
        Err(Error::Refused(text) | Error::Unverified(text)) => text,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_another_authority_is_not_spoken_to() {
    let mut server = TestServer::start(World::new(1));
    server.certificates = Certificates::new("ours");
    let state = tempfile::tempdir().unwrap();
    let text = refusal(config(&server, state.path())).await;
    assert!(
        text.contains("another federation") && text.contains("`authority`"),
        "{text}"
    );
    assert!(server.world().calls.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_of_another_authority_is_refused() {
    let server = TestServer::start(World::new(1));
    let state = tempfile::tempdir().unwrap();
    let mut config = config(&server, state.path());
    config.own = Certificates::new("theirs").client;
    let text = refusal(config).await;
    assert!(
        text.contains("certificate") && (text.contains("authority") || text.contains("check")),
        "{text}"
    );
    assert!(server.world().calls.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_client_certificate_is_refused() {
    let server = TestServer::start(World::new(1));
    let state = tempfile::tempdir().unwrap();
    let mut config = config(&server, state.path());
    config.own = server.certificates.expired_client();
    let text = refusal(config).await;
    assert!(text.contains("expired") || text.contains("ended on"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_the_server_or_the_authority_is_no_client_s() {
    let server = TestServer::start(World::new(1));
    for own in [&server.certificates.server, &server.certificates.authority] {
        let state = tempfile::tempdir().unwrap();
        let mut config = config(&server, state.path());
        config.own = own.clone();
        let text = refusal(config).await;
        assert!(text.contains("not a client's certificate"), "{text}");
    }
    assert!(server.world().calls.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_listening_is_retried_until_the_limit_and_said_so() {
    let mut server = TestServer::start(World::new(1));
    server.kill();
    let state = tempfile::tempdir().unwrap();
    let mut config = config(&server, state.path());
    config.give_up_after = Some(std::time::Duration::from_secs(3));
    let client = Client::start(config, Arithmetic::new());
    let seen = client.seen.clone();
    let error = client.finish().await.unwrap_err();
    assert!(
        matches!(&error, Error::GaveUp(text) if text.contains("nothing listens")),
        "{error}"
    );
    assert!(seen.lock().unwrap().len() > 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_does_not_speak_tls_is_named_so() {
    let certificates = Certificates::new("fed");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let state = tempfile::tempdir().unwrap();
    let mut config = ClientConfig::new(
        address,
        &certificates.authority.certificate,
        certificates.client.clone(),
        state.path(),
    );
    config.give_up_after = Some(std::time::Duration::from_millis(20));
    let error = Client::start(config, Arithmetic::new()).finish().await.unwrap_err();
    assert!(error.to_string().contains("does not speak TLS"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_or_address_that_cannot_be_used_is_a_configuration_error() {
    let server = TestServer::start(World::new(1));
    let state = tempfile::tempdir().unwrap();
    let good = config(&server, state.path());
    let mut bad_key = good.clone();
    bad_key.own.key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".to_owned();
    let mut bad_address = good;
    bad_address.server = "no port".to_owned();
    for (config, named) in [(bad_key, "`key`"), (bad_address, "host:port")] {
        let error = Client::start(config, Arithmetic::new()).finish().await.unwrap_err();
        assert!(matches!(&error, Error::Config(text) if text.contains(named)), "{error}");
    }
}
