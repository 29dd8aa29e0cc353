//! A link of 2 Mbit/s with 200 ms from end to end and back, which loses 5 % of the packets of each direction: every round finishes, and
//! an upload gets most of what a plain TCP stream gets.
//!
//! The kernel may lack netem, so that `fixtures/slow_link.py` is the link: it passes IP packets between two TUN interfaces, so the
//! losses and delays are those that TCP sees.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;

use serde_json::Value;

use crate::fixtures::EXACT;
use crate::fixtures::fed::Fed;
use crate::fixtures::netns::Namespace;
use crate::fixtures::process::{Process, done, wait_for};

const ROUNDS: u64 = 4;
const SERVER: usize = 0;
const CLIENT_ADDRESS: &str = "10.78.0.1";
const SERVER_ADDRESS: &str = "10.78.0.2";
const PLAIN_PORT: u16 = 5001;
/// Share of a plain TCP stream's goodput that an upload must reach.
const SHARE: f64 = 0.7;

/// One-way delay of the link in milliseconds.
const DELAY: u32 = 100;

/// A plain TCP stream: the receiver, which prints the seconds from the connection to its end, and a sender of so many bytes.
const RECEIVER: &str = "import socket,sys,time\n\
    s=socket.create_server((sys.argv[1],int(sys.argv[2])))\n\
    print('ready',flush=True)\n\
    while True:\n c,_=s.accept();t=time.time()\n while c.recv(65536):pass\n print(time.time()-t,flush=True);c.close()\n";
const SENDER: &str = "import socket,sys\n\
    c=socket.create_connection((sys.argv[1],int(sys.argv[2])))\n\
    c.sendall(bytes(int(sys.argv[3])));c.shutdown(1);c.recv(1);print('sent')\n";

/// The link between two namespaces.
struct SlowLink {
    client: Namespace,
    server: Namespace,
    process: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl SlowLink {
    fn join(label: &str, seed: u64) -> Self {
        let [client, server] = ["c", "s"].map(|end| Namespace::plain(&format!("{label}-{end}")));
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/slow_link.py");
        let mut process = Command::new("python3")
            .args([script, client.name(), CLIENT_ADDRESS, server.name(), SERVER_ADDRESS])
            .args(["--rate", "2e6", "--delay", &DELAY.to_string(), "--loss", "0.05"])
            .args(["--seed", &seed.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("needs python3: {e}"));
        let mut said = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "the link needs /dev/net/tun");
        Self {
            client,
            server,
            process,
            said,
        }
    }

    /// Ends the link; returns what it saw.
    fn end(mut self) -> Value {
        drop(self.process.stdin.take());
        let mut text = String::new();
        self.said.read_to_string(&mut text).unwrap();
        assert!(self.process.wait().unwrap().success());
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for SlowLink {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Seconds of the transfers of at least `packets` packets upward.
fn uploads(seen: &Value, packets: u64) -> Vec<f64> {
    let transfers = seen["transfers"].as_array().unwrap().iter();
    let large = transfers.filter(|t| t["direction"] == "up" && t["packets"].as_u64().unwrap() >= packets);
    large.map(|t| t["seconds"].as_f64().unwrap()).collect()
}

fn lossy(seen: &Value) {
    for way in ["up", "down"] {
        let (packets, lost) = (
            seen[way]["packets"].as_u64().unwrap(),
            seen[way]["lost"].as_u64().unwrap(),
        );
        println!(
            "{way}: {packets} packets, {lost} lost, {} dropped by the queue",
            seen[way]["dropped"]
        );
        let share = lost as f64 / packets as f64;
        assert!((0.02..0.08).contains(&share), "{share}");
    }
}

/// A client that trains in fp32 both ways; returns the bytes of an update and the seconds of each upload.
fn federation(link: SlowLink) -> (u64, Vec<f64>) {
    let fed = Fed::found();
    let port = fed.address.rsplit_once(':').unwrap().1;
    let config = fed.path("fed/server.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace(&fed.address, &format!("0.0.0.0:{port}"))).unwrap();
    fed.issue(
        "far",
        "[tasks.digits]\nlearner = \"mlp\"\ndata = { builtin = { client = 0, train = 100, test = 50 } }",
    );
    let run = format!(
        "name = \"slow\"\ntask = \"digits\"\nrounds = {ROUNDS}\nseed = 1\n[cohort]\nmin = 1\ntarget = 1\nretries = 0\n\
         [train]\nepochs = 1\nbatch_size = 20\nlearning_rate = 0.1\n{EXACT}"
    );
    fed.plan(&run, "mlp", 1);
    let (sender, lines) = channel();
    let mut server = Process::start(
        link.server.inside(&fed.serve(&["--exit-when-done"])),
        SERVER,
        1,
        &sender,
    );
    wait_for(&lines, SERVER, "serving `slow` on");
    let mut client = fed.client("far");
    client.args(["--server", &format!("{SERVER_ADDRESS}:{port}")]);
    let mut client = Process::start(link.client.inside(&client), 1, 1, &sender);
    wait_for(&lines, SERVER, &format!("done: version {ROUNDS}"));
    assert!(client.end().success() && server.end().success());
    let seen = link.end();
    lossy(&seen);
    let report = fed.report();
    assert!(report.balanced && report.rounds.iter().all(|round| round.attempts == 1));
    let bytes = report.totals.update / ROUNDS;
    let seconds = uploads(&seen, bytes / 1500 / 2);
    assert_eq!(seconds.len() as u64, ROUNDS, "{seen}");
    (bytes, seconds)
}

/// Seconds of as many plain TCP streams of as many bytes.
fn plain(link: SlowLink, bytes: u64) -> Vec<f64> {
    let python = |code: &str, args: &[String]| {
        let mut command = Command::new("python3");
        command
            .args(["-c", code, SERVER_ADDRESS, &PLAIN_PORT.to_string()])
            .args(args);
        command
    };
    let (sender, lines) = channel();
    let _receiver = Process::start(link.server.inside(&python(RECEIVER, &[])), SERVER, 1, &sender);
    wait_for(&lines, SERVER, "ready");
    let mut seconds = Vec::new();
    for _ in 0..ROUNDS {
        done(link.client.inside(&python(SENDER, &[bytes.to_string()])));
        // The connection is there when the first byte arrives; an upload is measured from its departure.
        let line = wait_for(&lines, SERVER, ".");
        seconds.push(line.parse::<f64>().unwrap() + f64::from(DELAY) / 1e3);
    }
    lossy(&link.end());
    seconds
}

/// Compares uploads with plain streams, both with the losses of `seeds`.
fn compare(label: &str, settings: &[&str], seeds: std::ops::RangeInclusive<u64>) {
    let (mut ours, mut theirs) = (0.0, 0.0);
    for seed in seeds {
        let link = |what: &str| {
            let link = SlowLink::join(&format!("{label}{seed}{what}"), seed);
            for setting in settings {
                link.client.set(setting);
                link.server.set(setting);
            }
            link
        };
        let (bytes, uploads) = federation(link("f"));
        let streams = plain(link("t"), bytes);
        let rate = |seconds: &[f64]| 8.0 * bytes as f64 * seconds.len() as f64 / seconds.iter().sum::<f64>() / 1e3;
        println!(
            "{label}, seed {seed}: {ROUNDS} uploads of {bytes} bytes at {:.0} kbit/s, plain TCP streams at {:.0} kbit/s",
            rate(&uploads),
            rate(&streams)
        );
        println!("  seconds: {uploads:.1?} and {streams:.1?}");
        ours += uploads.iter().sum::<f64>();
        theirs += streams.iter().sum::<f64>();
    }
    let share = theirs / ours;
    println!("{label}: an upload gets {:.0} % of a plain TCP stream", 100.0 * share);
    std::io::stdout().flush().unwrap();
    assert!(share >= SHARE, "{share}");
}

#[test]
#[ignore = "needs root, iproute2, python3 and /dev/net/tun: cargo slow-link"]
fn on_a_slow_link_every_round_finishes_and_an_upload_gets_what_tcp_gets_in_namespaces() {
    compare("system", &[], 1..=3);
}

#[test]
#[ignore = "needs root, iproute2, python3 and /dev/net/tun: cargo slow-link"]
fn with_reno_it_is_the_same_in_namespaces() {
    compare("reno", &["net.ipv4.tcp_congestion_control=reno"], 1..=1);
}
