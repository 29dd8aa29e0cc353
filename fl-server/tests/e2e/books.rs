//! The accounts of a running server: all views agree at each moment, no saving is overstated, and the data on disk
//! survives a kill.

use std::path::PathBuf;
use std::process::Stdio;

use crate::cli::good;
use crate::support::*;
use fl_compress::Layout;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::Child;

/// A federation of processes. The run has 20,100 parameters, so fp32 is larger than everything else on a connection.
struct Founded {
    dir: tempfile::TempDir,
    fed: String,
}

/// A server process and its addresses.
struct Serving {
    child: Child,
    address: String,
    page: String,
}

fn founded(rounds: u64, evaluate: bool) -> Founded {
    let dir = tempfile::tempdir().unwrap();
    let fed = dir.path().join("fed").display().to_string();
    good(&["init", &fed, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let layout = Layout::new([("a.weight", vec![200, 100]), ("b.bias", vec![100])]).unwrap();
    write_model(&dir.path().join("init.safetensors"), &layout);
    let run = format!(
        "name = \"test\"\ntask = \"toy\"\nrounds = {rounds}\nseed = 7\nmodel = \"init.safetensors\"\n\
         evaluate = {evaluate}\n[cohort]\nmin = 3\ntarget = 3\n{SPARSE}"
    );
    std::fs::write(dir.path().join("run.toml"), run).unwrap();
    Founded { dir, fed }
}

impl Founded {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn serve(&self) -> Serving {
        let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_fl-server"))
            .args(["serve", &self.fed, "--run", self.path("run.toml").to_str().unwrap()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines
            .next_line()
            .await
            .unwrap()
            .expect("the server says where it listens");
        let (listen, page) = first.split_once("; look at http://").unwrap();
        let (address, page) = (listen.rsplit(' ').next().unwrap(), page.trim_end_matches('/'));
        let (address, page) = (address.to_owned(), page.to_owned());
        // Keeps reading the output, so that the process never blocks on a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Serving { child, address, page }
    }

    async fn clients(&self, address: &str) -> Vec<TestClient> {
        let mut hands = Vec::new();
        for name in NAMES {
            let out = self.path(name);
            good(&["issue", name, "--fed", &self.fed, "--out", out.to_str().unwrap()]);
            let (authority, own) = issued_in(&out);
            hands.push(TestClient::connect(address, &authority, &own, name).await);
        }
        hands
    }

    /// The answer of the running server to `fl-server status --format json`.
    async fn status(&self) -> Value {
        let socket = PathBuf::from(&self.fed).join("data/admin.sock");
        let mut stream = UnixStream::connect(socket).await.unwrap();
        stream.write_all(b"\"status\"\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        serde_json::from_str::<Value>(&answer).unwrap()["status"].take()
    }

    /// Reads all views, one after another.
    async fn look(&self, page: &str) -> Look {
        Look {
            before: metrics(page).await,
            report: serde_json::from_str(&get(page, "/report.json").await).unwrap(),
            live: serde_json::from_str(&get(page, "/live.json").await).unwrap(),
            status: self.status().await,
            after: metrics(page).await,
        }
    }
}

async fn get(page: &str, path: &str) -> String {
    let (status, head, body) = crate::live::get(page, path).await;
    assert_eq!(status, 200, "{path}: {head}");
    body
}

/// Bytes of the run, and the figures derived from them.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Said {
    moved: (u64, u64),
    pending: (u64, u64),
    ratio: f64,
    closed: u64,
    balanced: bool,
}

async fn metrics(page: &str) -> Said {
    let text = get(page, "/metrics").await;
    let sum = |name: &str, with: &str| -> u64 {
        let lines = text
            .lines()
            .filter(|line| line.starts_with(name) && line.contains(with));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64)
            .sum()
    };
    let both = |name: &str| (sum(name, "direction=\"up\""), sum(name, "direction=\"down\""));
    let (rows, open) = (both("fl_ledger_bytes_total{"), both("fl_ledger_open_bytes{"));
    let socket = both("fl_socket_bytes_total{");
    assert_eq!((rows.0 + open.0, rows.1 + open.1), socket, "{text}");
    assert_eq!(both("fl_run_socket_bytes{"), socket, "the run has had one process");
    let named = both("fl_client_socket_bytes_total{");
    assert!(named.0 <= socket.0 && named.1 <= socket.1);
    let ratio = text.lines().find_map(|line| line.strip_prefix("fl_run_saving_ratio "));
    Said {
        moved: socket,
        pending: both("fl_ledger_pending_bytes{"),
        ratio: ratio.map_or(0.0, |ratio| ratio.parse().unwrap()),
        closed: sum("fl_rounds_closed_total ", ""),
        balanced: sum("fl_ledger_balanced ", "") == 1,
    }
}

fn pair(object: &Value, up: &str, down: &str) -> (u64, u64) {
    (object[up].as_u64().unwrap(), object[down].as_u64().unwrap())
}

fn reported(report: &Value) -> Said {
    let totals = &report["totals"];
    let moved = pair(totals, "socket_up", "socket_down");
    assert_eq!(moved, pair(report, "metered_up", "metered_down"), "the meter differs");
    let rows = &report["participations"];
    let sum = |name: &str| -> u64 { rows[name].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum() };
    assert_eq!((sum("socket_up"), sum("socket_down")), moved, "the lines do not add up");
    let closed = report["rounds"]["closed"].as_array().unwrap();
    Said {
        moved,
        pending: pair(&report["pending"], "socket_up", "socket_down"),
        ratio: report["baselines"][0]["socket_ratio"].as_f64().unwrap(),
        closed: closed.iter().filter(|closed| closed.as_bool().unwrap()).count() as u64,
        balanced: report["balanced"].as_bool().unwrap(),
    }
}

fn moved(moved: &Value, closed: u64) -> Said {
    Said {
        moved: pair(moved, "socket_up", "socket_down"),
        pending: pair(moved, "pending_up", "pending_down"),
        ratio: moved["ratio"].as_f64().unwrap(),
        closed,
        balanced: moved["balanced"].as_bool().unwrap(),
    }
}

/// The figures of metrics, report, page and status, then of the metrics again.
struct Look {
    before: Said,
    report: Value,
    live: Value,
    status: Value,
    after: Said,
}

impl Look {
    /// In the order of the requests.
    fn said(&self) -> [Said; 5] {
        let live = &self.live;
        assert_eq!(
            pair(&live["throughput"], "socket_up", "socket_down"),
            pair(&live["moved"], "socket_up", "socket_down")
        );
        let run = &self.status["runs"][0];
        [
            self.before,
            reported(&self.report),
            // The page takes its number of closed rounds from the report.
            moved(&live["moved"], reported(&self.report).closed),
            moved(&self.status["serving"]["moved"], run["closed"].as_u64().unwrap()),
            self.after,
        ]
    }

    /// Each view must include everything in the views before it, and equal them if nothing happened in between.
    fn agrees(&self) -> bool {
        let said = self.said();
        for (earlier, later) in said.iter().zip(&said[1..]) {
            assert!(earlier.moved.0 <= later.moved.0, "{said:?}");
            assert!(earlier.moved.1 <= later.moved.1, "{said:?}");
            assert!(earlier.closed <= later.closed, "{said:?}");
            assert!(earlier.balanced && later.balanced, "{said:?}");
        }
        let quiet = self.before == self.after;
        assert!(!quiet || said.iter().all(|one| *one == self.before), "{said:?}");
        quiet
    }

    fn ratios(&self) -> impl Iterator<Item = f64> {
        self.said().into_iter().map(|said| said.ratio)
    }
}

/// The end of a run from the outside, once everything is on disk.
async fn settled(founded: &Founded, page: &str, ratios: &mut Vec<f64>) -> Said {
    loop {
        let look = founded.look(page).await;
        ratios.extend(look.ratios());
        if look.agrees() && look.after.pending == (0, 0) && look.status["serving"]["present"] == json!([]) {
            return look.after;
        }
    }
}

#[tokio::test]
async fn report_page_status_and_metrics_agree_at_each_moment_and_no_ratio_exceeds_the_final_one() {
    for (rounds, evaluate) in [(4, true), (1, false)] {
        let founded = founded(rounds, evaluate);
        let mut serving = founded.serve().await;
        let page = serving.page.clone();
        let mut hands = founded.clients(&serving.address).await;
        let mut ratios = Vec::new();
        let (mut looks, mut quiet) = (0, 0);
        // The first look is taken while the last client is still missing, so that no run is over before it.
        let (last, others) = hands.split_last_mut().unwrap();
        let mut others = Box::pin(all_take_part(others));
        tokio::select! {
            _ = &mut others => panic!("a run without its last client ended"),
            look = founded.look(&page) => {
                quiet += u64::from(look.agrees());
                ratios.extend(look.ratios());
                looks += 1;
            }
        }
        let mut taking = Box::pin(async { tokio::join!(others, last.take_part()) });
        loop {
            // Clients and observers take turns at every await.
            tokio::select! {
                _ = &mut taking => break,
                look = founded.look(&page) => {
                    quiet += u64::from(look.agrees());
                    ratios.extend(look.ratios());
                    looks += 1;
                }
            }
        }
        drop(taking);
        // The run is done; its clients are still connected.
        let look = founded.look(&page).await;
        look.agrees();
        ratios.extend(look.ratios());
        assert_eq!(look.status["runs"][0]["state"], "done");
        drop(hands);
        let last = settled(&founded, &page, &mut ratios).await;
        assert!(looks > 0, "{quiet} of {looks} looks saw nothing move");

        // The server gets no signal: everything it has reported is on disk.
        serving.child.kill().await.unwrap();
        let report: Value = serde_json::from_str(&good(&["report", &founded.fed, "--format", "json"])).unwrap();
        let found = reported(&report);
        assert_eq!((found.moved, found.closed), (last.moved, rounds));
        assert_eq!(report["baselines"][0]["through"], rounds);
        assert!(found.ratio > 1.0, "{found:?}");
        let most = ratios.iter().copied().fold(0.0, f64::max);
        assert!(
            most <= found.ratio,
            "{most} was shown, {} in the end: {ratios:?}",
            found.ratio
        );
        assert!(ratios.iter().any(|ratio| *ratio > 0.0));

        // The accounts are unchanged after a restart.
        let mut serving = founded.serve().await;
        let again = reported(&serde_json::from_str(&get(&serving.page, "/report.json").await).unwrap());
        assert_eq!((again.moved, again.pending), (last.moved, (0, 0)));
        serving.child.kill().await.unwrap();
    }
}

#[tokio::test]
async fn a_signed_report_of_a_server_that_goes_on_serving_has_the_bytes_after_the_last_round() {
    let founded = founded(1, true);
    let serving = founded.serve().await;
    let mut hands = founded.clients(&serving.address).await;
    all_take_part(&mut hands).await;
    // The clients stay connected.
    let before = metrics(&serving.page).await;
    let file = founded.path("signed.jsonl").display().to_string();
    good(&["report", &founded.fed, "--sign", "-o", &file]);
    let after = metrics(&serving.page).await;
    let authority = format!("{}/authority.pem", founded.fed);
    let verified = good(&["verify", "--report", &file, "--authority", &authority]);
    assert_contains(&verified, "intact");
    let signed = std::fs::read_to_string(&file).unwrap();
    let header: Value = serde_json::from_str(signed.lines().next().unwrap()).unwrap();
    let moved = pair(&header["totals"], "socket_up", "socket_down");
    assert_eq!(moved, pair(&header, "metered_up", "metered_down"));
    assert!(before.moved.0 <= moved.0 && moved.0 <= after.moved.0);
    assert!(before.moved.1 <= moved.1 && moved.1 <= after.moved.1);
    let round = signed
        .lines()
        .find(|line| line.starts_with("{\"kind\":\"round\""))
        .unwrap();
    let round: Value = serde_json::from_str(round).unwrap();
    let (steps, framed) = (round["steps"].as_u64().unwrap(), round["framed_down"].as_u64().unwrap());
    assert_eq!(
        steps,
        2 * 3 * framed,
        "every client got the last model with its state, and fetched it"
    );
}
