//! The server renews its own certificate: open connections stay, new ones see the new certificate, and no crash, full disk or missing
//! key leaves a server without a pair.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime};

use fl_client::{ClientConfig, Learner, Tasks};
use fl_proto::{Authority, Dial, Issued, Lifetime, certificates_of, client_tls, is_pair, newest_pair};
use fl_server::{Enrollment, Event, Identity, RunPlan, Serve};
use fl_sim::ready::{self, Ready};
use fl_sim::workload::TASK;
use time::OffsetDateTime;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::fixtures::COMPRESSED;
use crate::fixtures::fed::Fed;
use crate::fixtures::process::{Process, TIMEOUT, done, fails, output, wait_for};

const SERVER: usize = 0;
const VALUES: usize = 500;
const LIFETIME: Duration = Duration::from_secs(90 * 60);
/// Above two thirds of the lifetime, and below the day by which validity begins early.
const STEP_SECONDS: u64 = 61 * 60;

/// How far the clock of the server in this process is ahead, in seconds.
static AHEAD: AtomicU64 = AtomicU64::new(0);

fn clock() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    now.as_millis() as u64 + 1000 * AHEAD.load(Ordering::Relaxed)
}

/// The certificate that a new connection sees.
async fn seen(address: &str, authority: &Issued, own: &Issued) -> Vec<u8> {
    let dial = Dial {
        address: address.to_owned(),
        tls: client_tls(&authority.certificate, own).unwrap(),
        meter: std::sync::Arc::default(),
        paces: Default::default(),
        silence: Default::default(),
        answered: Default::default(),
    };
    let io = TcpStream::connect(address).await.unwrap();
    let secured = fl_proto::handshake(dial, io).await.unwrap();
    secured.server_certificates().swap_remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_closes_no_connection_and_new_ones_see_the_new_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let text = format!(
        "name = \"own\"\ntask = \"{TASK}\"\nrounds = 2\nseed = 1\nevaluate = false\nmodel = \"init.safetensors\"\n\
         [cohort]\nmin = 2\ntarget = 2\n{COMPRESSED}"
    );
    let layout = ready::layout(VALUES).unwrap();
    fl_client::weights::export(&dir.join("init.safetensors"), &layout, &vec![0.0; VALUES]).unwrap();
    let plan = RunPlan::load(&text, dir).unwrap();
    let (now, valid) = (OffsetDateTime::now_utc(), time::Duration::days(9));
    let (authority, root) = Authority::create("fed", now, valid).unwrap();
    let own = authority.issue_server(now, LIFETIME.try_into().unwrap()).unwrap();
    for (name, text) in [
        ("authority.pem", &root.certificate),
        ("authority.key", &root.key),
        ("server.pem", &own.certificate),
        ("server.key", &own.key),
    ] {
        std::fs::write(dir.join(name), text).unwrap();
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (events, mut news) = tokio::sync::mpsc::channel(1024);
    let options = Serve {
        events: Some(events),
        clock,
        enrollment: Enrollment::new(dir),
        identity: Some(Identity {
            lifetime: LIFETIME,
            steady: Duration::ZERO,
            ..Identity::new(dir)
        }),
        ..Serve::new(dir.join("data"), plan, root.certificate.clone(), own.clone())
    };
    let server = tokio::spawn(fl_server::serve(listener, options, std::future::pending()));
    let (sender, mut said) = tokio::sync::mpsc::unbounded_channel();
    let mut clients = JoinSet::new();
    let mut start = |client: u64| {
        let name = format!("client-{client}");
        let own = authority.issue_client(&name.parse().unwrap(), now, valid).unwrap();
        let config = ClientConfig {
            sync: false,
            ..ClientConfig::new(&address, &root.certificate, own, dir.join(name))
        };
        let make = move || Ok(Box::new(Ready::new(VALUES, client)?) as Box<dyn Learner>);
        let (tasks, sender) = (Tasks::new().with_lazy(TASK, make), sender.clone());
        let tell = move |event| {
            let _ = sender.send((client, event));
        };
        clients.spawn(Box::pin(fl_client::run(config, tasks, tell, std::future::pending())));
    };
    start(0);
    let connected = async { while !matches!(said.recv().await, Some((0, fl_client::Event::Connected { .. }))) {} };
    timeout(TIMEOUT, connected).await.expect("the client connects");

    let watcher = authority.issue_client(&"watcher".parse().unwrap(), now, valid).unwrap();
    let before = certificates_of(&own.certificate).unwrap().swap_remove(0);
    assert_eq!(seen(&address, &root, &watcher).await, before);
    AHEAD.fetch_add(STEP_SECONDS, Ordering::Relaxed);
    let begun = Instant::now();
    let after = loop {
        let after = seen(&address, &root, &watcher).await;
        if after != before {
            break after;
        }
        assert!(begun.elapsed() < TIMEOUT, "the certificate stays");
    };
    let pair = pair(dir);
    assert_eq!(certificates_of(&pair.certificate).unwrap(), [after]);
    assert_ne!(pair.key, own.key);

    start(1);
    while let Some(event) = timeout(TIMEOUT, news.recv()).await.expect("a round takes too long") {
        if let Event::RoundOpened { attempt, .. } = event {
            assert_eq!(attempt, 1, "a round was tried again");
        }
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap().unwrap();
    }
    assert_eq!(server.await.unwrap().unwrap().version, 2);
    drop(sender);
    while let Some((client, event)) = said.recv().await {
        let again = matches!(
            event,
            fl_client::Event::Connected { .. } | fl_client::Event::Disconnected { .. }
        );
        assert!(client == 1 || !again, "the first client's connection ended: {event:?}");
    }
}

/// The pair in a folder.
fn pair(folder: &Path) -> Issued {
    let [certificate, key] = ["server.pem", "server.key"].map(|name| folder.join(name));
    let (pair, _) = newest_pair(&certificate, &key, |path| std::fs::read_to_string(path)).unwrap();
    assert!(is_pair(&pair));
    pair
}

/// Gives the server a certificate that was issued so many days ago, for so many days.
fn age(fed: &Fed, days_ago: i64, days: i64) {
    let read = |name: &str| std::fs::read_to_string(fed.path("fed").join(name)).unwrap();
    let authority = Authority::from_pem(&Issued {
        certificate: read("authority.pem"),
        key: read("authority.key"),
    });
    let issued = OffsetDateTime::now_utc() - time::Duration::days(days_ago);
    let own = authority
        .unwrap()
        .issue_server(issued, time::Duration::days(days))
        .unwrap();
    std::fs::write(fed.path("fed/server.pem"), &own.certificate).unwrap();
    std::fs::write(fed.path("fed/server.key"), &own.key).unwrap();
}

fn found() -> Fed {
    let fed = Fed::found();
    let task = "[tasks.digits]\nlearner = \"mlp\"\ndata = { builtin = { client = 0, train = 60, test = 20 } }";
    fed.issue("anna", task);
    fed.plan_walk(9);
    fed
}

fn connects(fed: &Fed) {
    let (sender, said) = channel();
    let _anna = Process::start(fed.client("anna"), 1, 1, &sender);
    wait_for(&said, 1, "connected");
}

fn is_due(own: &Issued) -> bool {
    Lifetime::of_pem(&own.certificate)
        .unwrap()
        .is_due(OffsetDateTime::now_utc())
}

/// Serves with a fault; whether the server came as far as serving. It is killed then.
fn serves(fed: &Fed, fault: &str) -> bool {
    let (sender, lines) = channel();
    let _server = Process::start(fed.serve(&["--identity-fault", fault]), SERVER, 1, &sender);
    loop {
        match lines.recv_timeout(TIMEOUT).unwrap().text {
            Some(text) if text.contains("serving `walk` on") => return true,
            Some(_) => {}
            None => return false,
        }
    }
}

#[test]
fn a_server_that_is_killed_at_any_write_of_its_renewal_starts_with_a_pair_and_renews() {
    let fed = found();
    let mut kills = 0;
    for at in 1.. {
        age(&fed, 70, 90);
        let old = pair(&fed.path("fed"));
        if serves(&fed, &format!("abort@{at}")) {
            assert!(pair(&fed.path("fed")) != old);
            break;
        }
        kills = at;
        let left = pair(&fed.path("fed"));
        assert!(left == old || !is_due(&left), "killed at {at}");
        assert!(serves(&fed, &format!("abort@{}", 1000)), "killed at {at}");
        let new = pair(&fed.path("fed"));
        assert!(new != old && !is_due(&new), "killed at {at}");
        assert!(
            left == old || new == left,
            "killed at {at}: a new pair that was on disk was thrown away"
        );
    }
    assert!(kills >= 16, "{kills}");
}

#[test]
fn a_server_that_was_off_past_its_expiry_renews_before_it_serves_and_one_with_a_full_disk_keeps_its_pair() {
    let fed = found();
    age(&fed, 70, 90);
    let old = pair(&fed.path("fed"));
    let (sender, lines) = channel();
    let full = Process::start(fed.serve(&["--identity-fault", "full@3"]), SERVER, 1, &sender);
    let said = wait_for(
        &lines,
        SERVER,
        "the server's certificate was not renewed and stays in use until it expires",
    );
    assert!(
        said.contains("server.key") && said.contains("authority renew"),
        "{said}"
    );
    wait_for(&lines, SERVER, "serving `walk` on");
    connects(&fed);
    assert!(pair(&fed.path("fed")) == old);
    full.kill();

    age(&fed, 100, 90);
    let (sender, lines) = channel();
    let _server = Process::start(fed.serve(&[]), SERVER, 2, &sender);
    wait_for(&lines, SERVER, "the server's certificate and key were renewed");
    wait_for(&lines, SERVER, "serving `walk` on");
    connects(&fed);
    let lifetime = Lifetime::of_pem(&pair(&fed.path("fed")).certificate).unwrap();
    assert_eq!(lifetime.expires - lifetime.issued, time::Duration::days(90));
}

#[test]
fn without_the_authoritys_key_the_server_says_what_to_type_and_takes_what_was_made_elsewhere() {
    let fed = found();
    age(&fed, 70, 90);
    let status = || done(fed.sim(&["server", "status", "fed"]));
    let check = || output(fed.sim(&["server", "check", "fed/server.toml"]));
    assert!(status().contains("is to be renewed since") && status().contains("a running server renews it by itself"));
    // A copy of the federation's folder where the key is.
    let copied = Command::new("cp")
        .arg("-r")
        .args([fed.path("fed"), fed.path("vault")])
        .status();
    assert!(copied.unwrap().success());
    std::fs::remove_file(fed.path("fed/authority.key")).unwrap();
    let (sender, lines) = channel();
    let server = Process::start(fed.serve(&[]), SERVER, 1, &sender);
    let said = wait_for(&lines, SERVER, "the authority's key is not here to renew it");
    assert!(
        said.contains("`fl-server authority renew` where the authority's key is"),
        "{said}"
    );
    wait_for(&lines, SERVER, "serving `walk` on");
    let todo = "copy server.pem and server.key here, and send the server SIGHUP";
    assert!(status().contains(todo), "{}", status());
    let (code, said, _) = check();
    assert!(code.success() && said.contains(todo), "{said}");
    fails(
        fed.sim(&["server", "authority", "renew", "--fed", "fed"]),
        2,
        &["authority.key is missing"],
    );
    let said = done(fed.sim(&["server", "authority", "renew", "--fed", "vault", "--days", "365"]));
    assert!(said.contains("are new, valid until"), "{said}");
    for file in ["server.pem", "server.key"] {
        std::fs::copy(fed.path("vault").join(file), fed.path("fed").join(file)).unwrap();
    }
    server.signal("-HUP");
    wait_for(&lines, SERVER, "new connections and transfers use them");
    connects(&fed);
    assert!(!status().contains("warning"), "{}", status());
    let (code, said, _) = check();
    assert!(code.success() && said.contains("is renewed by hand from"), "{said}");
    drop(server);

    std::fs::copy(fed.path("vault/authority.key"), fed.path("fed/authority.key")).unwrap();
    age(&fed, 100, 90);
    std::fs::remove_file(fed.path("fed/authority.key")).unwrap();
    let (code, said, error) = check();
    assert!(
        code.code() == Some(2) && said.contains("no client accepts it"),
        "{said}{error}"
    );
}

#[test]
fn a_certificate_of_ten_years_works_and_one_command_makes_it_renew_itself() {
    let fed = found();
    age(&fed, 100, 3650);
    let old = pair(&fed.path("fed"));
    let (sender, lines) = channel();
    let _server = Process::start(fed.serve(&[]), SERVER, 1, &sender);
    wait_for(&lines, SERVER, "serving `walk` on");
    connects(&fed);
    let (code, said, _) = output(fed.sim(&["server", "check", "fed/server.toml"]));
    assert!(code.success() && said.contains("is valid for 3650 days"), "{said}");
    assert!(pair(&fed.path("fed")) == old);
    let (code, _, said) = output(fed.sim(&["server", "authority", "renew", "--fed", "fed"]));
    assert!(
        code.success() && said.contains("new connections and transfers use them"),
        "{said}"
    );
    connects(&fed);
    let lifetime = Lifetime::of_pem(&pair(&fed.path("fed")).certificate).unwrap();
    assert_eq!(lifetime.expires - lifetime.issued, time::Duration::days(90));
}

/// The certificate of an authority, and one that it issued.
fn root_and_issuing() -> (String, Issued) {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    let params = |name: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    };
    let (above, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let root = params("Acme root").self_signed(&above).unwrap().pem();
    let above = Issuer::new(params("Acme root"), above);
    let issuing = Issued {
        certificate: params("Acme issuing").signed_by(&key, &above).unwrap().pem(),
        key: key.serialize_pem(),
    };
    (root, issuing)
}

#[test]
fn an_own_authority_with_another_below_it_works_on_both_sides_and_a_missing_link_is_named() {
    let fed = found();
    let ((root, issuing), now) = (root_and_issuing(), OffsetDateTime::now_utc());
    let (authority, days) = (Authority::from_pem(&issuing).unwrap(), time::Duration::days(30));
    let server = authority.issue_server(now, days).unwrap();
    let anna = authority.issue_client(&"anna".parse().unwrap(), now, days).unwrap();
    let write = |file: &str, text: &str| std::fs::write(fed.path(file), text).unwrap();
    for (file, text) in [
        ("fed/authority.pem", &root),
        ("fed/server.pem", &server.certificate),
        ("fed/server.key", &server.key),
        ("anna/authority.pem", &root),
        ("anna/client.pem", &anna.certificate),
        ("anna/client.key", &anna.key),
    ] {
        write(file, text);
    }
    std::fs::remove_file(fed.path("fed/authority.key")).unwrap();
    let named = [
        "server.pem does not lead to an authority of",
        "append",
        "CN=Acme issuing",
    ];
    fails(fed.serve(&[]), 2, &named);
    write("fed/server.pem", &(server.certificate.clone() + &issuing.certificate));
    let (sender, lines) = channel();
    let _server = Process::start(fed.serve(&[]), SERVER, 1, &sender);
    wait_for(&lines, SERVER, "serving `walk` on");
    fails(
        fed.client("anna"),
        3,
        &["is of `CN=Acme issuing`, not of `CN=Acme root`", "append"],
    );
    write("anna/client.pem", &(anna.certificate.clone() + &issuing.certificate));
    connects(&fed);
    let checked = done(fed.sim(&["client", "check", "anna/client.toml", "--online"]));
    assert!(checked.contains("belongs to the authority `Acme root`"), "{checked}");
}
