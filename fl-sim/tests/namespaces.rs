//! The ledger against the kernel: a server and its clients run in separate network namespaces connected by veth pairs.
//! The ledger of the server must equal the traffic logs of the clients to the byte, and the interface counters minus
//! packet headers and TCP retransmissions.
//!
//! Requires root and iproute2: `cargo namespaces`. Fails with the reason if it cannot run.
#![allow(clippy::unwrap_used)]

mod fixtures;
#[path = "namespaces/slow_link.rs"]
mod slow_link;

use std::sync::mpsc::{Receiver, channel};

use fixtures::EXACT;
use fixtures::fed::Fed;
use fixtures::netns::{Counters, Namespace};
use fixtures::process::{Line, Process, done, wait_for};

const CLIENTS: usize = 2;
const ROUNDS: u64 = 3;
const SERVER: usize = 0;
/// Ethernet, IPv4 and TCP headers with the timestamp option.
const HEADERS: u64 = 14 + 20 + 20 + 12;
/// Options that only SYN and SYN-ACK have: segment size and window scale.
const SYN: u64 = 8;
/// A reset for a closed connection lacks the timestamp option.
const BARE: u64 = 12;
/// Maximum payload of a segment: an MTU of 1500 bytes without IPv4, TCP and timestamps.
const SEGMENT: u64 = 1500 - 20 - 20 - 12;

/// Bytes from and to the clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bytes {
    up: u64,
    down: u64,
}

/// Kernel counters of one side of the run.
#[derive(Debug, Clone, Copy, Default)]
struct Side {
    links: Counters,
    /// SYNs, sent by clients or received by the server; each has one reply.
    connections: u64,
    out_segments: u64,
    again: u64,
    resets: u64,
}

impl Side {
    fn of(namespace: &Namespace, links: &[String]) -> Self {
        let snmp = namespace.snmp();
        let tcp = |name: &str| snmp[&format!("Tcp.{name}")] as u64;
        for name in ["Udp.OutDatagrams", "Icmp.OutMsgs"] {
            assert_eq!(snmp[name], 0, "something else than TCP moved");
        }
        let links = links.iter().map(|link| namespace.counters(link));
        Self {
            links: links.fold(Counters::default(), Counters::add),
            connections: tcp("ActiveOpens") + tcp("PassiveOpens"),
            out_segments: tcp("OutSegs"),
            again: tcp("RetransSegs"),
            resets: tcp("OutRsts"),
        }
    }

    fn add(self, other: Self) -> Self {
        Self {
            links: self.links.add(other.links),
            connections: self.connections + other.connections,
            out_segments: self.out_segments + other.out_segments,
            again: self.again + other.again,
            resets: self.resets + other.resets,
        }
    }
}

/// Measurements of one run.
#[derive(Debug)]
struct Figures {
    ledger: Bytes,
    clients: Bytes,
    server_side: Side,
    client_side: Side,
}

/// Totals of the ledger, from `fl-server report --format json`.
fn ledger(report: &str) -> Bytes {
    let report: serde_json::Value = serde_json::from_str(report).unwrap();
    assert_eq!(report["balanced"], true);
    let totals = report.get("totals").or(report.get("total")).unwrap();
    Bytes {
        up: totals["socket_up"].as_u64().unwrap(),
        down: totals["socket_down"].as_u64().unwrap(),
    }
}

/// Sum of the traffic that the clients report in their remaining lines.
fn own_books(lines: &Receiver<Line>) -> Bytes {
    let mut sum = Bytes::default();
    for text in lines.try_iter().filter_map(|line| line.text) {
        let line: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        if line["fields"]["message"] == "traffic" {
            sum.up += line["fields"]["sent"].as_u64().unwrap();
            sum.down += line["fields"]["received"].as_u64().unwrap();
        }
    }
    sum
}

/// The namespaces of a federation, and the address of the server for each client.
struct Net {
    server: Namespace,
    clients: Vec<Namespace>,
    /// The router, if links are shaped.
    router: Option<Namespace>,
}

impl Net {
    /// Each client has a separate link.
    fn direct() -> Self {
        let server = Namespace::add("server");
        let clients: Vec<_> = (0..CLIENTS).map(|k| Namespace::add(&format!("client{k}"))).collect();
        for (k, client) in clients.iter().enumerate() {
            let (here, there) = (format!("10.77.{k}.1/30"), format!("10.77.{k}.2/30"));
            let last = 2 * k as u8;
            server.join((&format!("v{k}"), &here, last), client, ("e0", &there, last + 1));
        }
        Self {
            server,
            clients,
            router: None,
        }
    }

    /// A router with short queues, which drops excess packets.
    fn shaped(rate: &str, limit: u32) -> Self {
        let (server, router) = (Namespace::add("server"), Namespace::add("router"));
        let clients: Vec<_> = (0..CLIENTS).map(|k| Namespace::add(&format!("client{k}"))).collect();
        router.join(("s0", "10.77.99.2/30", 100), &server, ("v0", "10.77.99.1/30", 101));
        server.ip("route add default via 10.77.99.2");
        router.shape("s0", rate, limit);
        for (k, client) in clients.iter().enumerate() {
            let (here, there) = (format!("10.77.{k}.1/30"), format!("10.77.{k}.2/30"));
            let last = 2 * k as u8;
            router.join((&format!("m{k}"), &here, last), client, ("e0", &there, last + 1));
            client.ip(&format!("route add default via 10.77.{k}.1"));
            router.shape(&format!("m{k}"), rate, limit);
        }
        Self {
            server,
            clients,
            router: Some(router),
        }
    }

    fn address(&self, client: usize) -> String {
        match self.router {
            Some(_) => "10.77.99.1".to_owned(),
            None => format!("10.77.{client}.1"),
        }
    }

    fn server_links(&self) -> Vec<String> {
        let links = if self.router.is_some() { 1 } else { CLIENTS };
        (0..links).map(|k| format!("v{k}")).collect()
    }

    fn sides(&self) -> (Side, Side) {
        let clients = self.clients.iter().map(|client| Side::of(client, &["e0".to_owned()]));
        (
            Side::of(&self.server, &self.server_links()),
            clients.fold(Side::default(), Side::add),
        )
    }

    /// Packets dropped by the router, from and to the clients.
    fn drops(&self) -> (u64, u64) {
        let router = self.router.as_ref().unwrap();
        let down = (0..CLIENTS).map(|k| router.drops(&format!("m{k}"))).sum();
        (router.drops("s0"), down)
    }
}

/// Runs fp32 both ways; measures from the first packet on the links to the last.
fn federation(net: &Net) -> Figures {
    let fed = Fed::found();
    let port = fed.address.rsplit_once(':').unwrap().1;
    let config = fed.path("fed/server.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(text.contains(&fed.address), "{text}");
    std::fs::write(&config, text.replace(&fed.address, &format!("0.0.0.0:{port}"))).unwrap();
    for k in 0..CLIENTS {
        let data = format!("data = {{ builtin = {{ client = {k}, train = 300, test = 100 }} }}");
        fed.issue(
            &format!("client{k}"),
            &format!("[tasks.digits]\nlearner = \"mlp\"\n{data}"),
        );
    }
    let run = format!(
        "name = \"wire\"\ntask = \"digits\"\nrounds = {ROUNDS}\nseed = 1\n[cohort]\nmin = {CLIENTS}\ntarget = {CLIENTS}\n\
         [train]\nepochs = 1\nbatch_size = 20\nlearning_rate = 0.1\n{EXACT}"
    );
    fed.plan(&run, "mlp", 1);
    let (server_side, client_side) = net.sides();
    assert_eq!(
        (server_side.links, client_side.links),
        (Counters::default(), Counters::default()),
        "nothing moves before the run"
    );

    let (sender, lines) = channel();
    let mut server = Process::start(net.server.inside(&fed.serve(&[])), SERVER, 1, &sender);
    wait_for(&lines, SERVER, "serving `wire` on");
    let start = |(k, namespace): (usize, &Namespace)| {
        let mut client = fed.client(&format!("client{k}"));
        client.args([
            "--log-format",
            "json",
            "--server",
            &format!("{}:{port}", net.address(k)),
        ]);
        Process::start(namespace.inside(&client), 1 + k, 1, &sender)
    };
    let mut clients: Vec<_> = net.clients.iter().enumerate().map(start).collect();
    let ended: Vec<_> = clients.iter_mut().map(Process::end).collect();
    net.server.settle();
    net.clients.iter().for_each(Namespace::settle);
    server.terminate();
    let stopped = server.end();
    let clients = own_books(&lines);
    assert!(
        ended.iter().all(|status| status.success()) && stopped.success(),
        "{ended:?} {stopped}"
    );

    let (server_side, client_side) = net.sides();
    let report = done(fed.sim(&["server", "report", "fed", "--format", "json"]));
    Figures {
        ledger: ledger(&report),
        clients,
        server_side,
        client_side,
    }
}

/// `bytes` on a link minus `payload` and the headers of `packets`.
fn unexplained(what: &str, bytes: u64, packets: u64, connections: u64, payload: u64) -> i64 {
    let (headers, options) = (packets * HEADERS, connections * SYN);
    let difference = bytes as i64 - (payload + headers + options) as i64;
    println!(
        "{what:<28} {bytes:>9} = payload {payload:>9} + headers {headers:>7} ({packets} packets) + options {options} \
         ({connections} SYN) {difference:+}"
    );
    difference
}

/// Balance at both ends of each direction: the unexplained bytes of sender and receiver, up and down.
fn equations(figures: &Figures) -> [i64; 4] {
    let Figures {
        ledger,
        clients,
        server_side,
        client_side,
    } = figures;
    println!(
        "ledger up {} down {}; clients' own sockets: sent {} received {}",
        ledger.up, ledger.down, clients.up, clients.down
    );
    for (who, side) in [("server", server_side), ("clients", client_side)] {
        println!(
            "{who}: {} connections, {} segments sent, {} of them again, {} resets",
            side.connections, side.out_segments, side.again, side.resets
        );
    }
    let at = |what, bytes, packets, side: &Side, payload| unexplained(what, bytes, packets, side.connections, payload);
    let (c, s) = (client_side.links, server_side.links);
    [
        at(
            "up, leaving the clients",
            c.tx_bytes,
            c.tx_packets,
            client_side,
            ledger.up,
        ),
        at(
            "up, reaching the server",
            s.rx_bytes,
            s.rx_packets,
            server_side,
            ledger.up,
        ),
        at(
            "down, leaving the server",
            s.tx_bytes,
            s.tx_packets,
            server_side,
            ledger.down,
        ),
        at(
            "down, reaching the clients",
            c.rx_bytes,
            c.rx_packets,
            client_side,
            ledger.down,
        ),
    ]
}

#[test]
#[ignore = "needs root and iproute2: cargo namespaces"]
fn the_ledger_is_what_the_interfaces_counted_less_the_headers_in_namespaces() {
    let net = Net::direct();
    let figures = federation(&net);
    for side in [&figures.server_side, &figures.client_side] {
        assert_eq!(side.links.tx_packets, side.out_segments + side.again, "{side:?}");
    }
    let left = equations(&figures);
    assert_eq!(figures.clients, figures.ledger, "{figures:?}");
    let (server, clients) = (&figures.server_side, &figures.client_side);
    let again = server.again + clients.again;
    if again == 0 {
        assert_eq!(left, [0; 4], "{figures:?}");
        println!("exact: nothing was sent again, and every byte on the links is explained");
    } else {
        println!("{again} segments were sent again on a loaded machine: the equations are bounds");
        bounds(&figures, left);
    }
}

/// Unexplained bytes are at most the retransmitted bytes, and not negative.
fn bounds(figures: &Figures, left: [i64; 4]) {
    let (server, clients) = (&figures.server_side, &figures.client_side);
    let (up, down) = ((clients.again * SEGMENT) as i64, (server.again * SEGMENT) as i64);
    let bare = |side: &Side| (side.resets * BARE) as i64;
    assert!((-bare(clients)..=up).contains(&left[0]), "{left:?} {figures:?}");
    assert!(
        (-bare(clients)..=left[0] + bare(clients)).contains(&left[1]),
        "{left:?} {figures:?}"
    );
    assert!((-bare(server)..=down).contains(&left[2]), "{left:?} {figures:?}");
    assert!(
        (-bare(server)..=left[2] + bare(server)).contains(&left[3]),
        "{left:?} {figures:?}"
    );
}

#[test]
#[ignore = "needs root and iproute2: cargo namespaces"]
fn on_a_link_that_loses_packets_the_rest_is_what_was_sent_again_in_namespaces() {
    let net = Net::shaped("20mbit", 12_000);
    let figures = federation(&net);
    let left = equations(&figures);
    assert_eq!(figures.clients, figures.ledger, "{figures:?}");
    let (up, down) = net.drops();
    let (server, clients) = (&figures.server_side, &figures.client_side);
    println!("dropped by the router: {up} packets up, {down} down");
    assert!(up > 0 && down > 0, "the link loses packets");
    assert_eq!(clients.links.tx_packets - server.links.rx_packets, up);
    assert_eq!(server.links.tx_packets - clients.links.rx_packets, down);
    assert!(clients.again >= 1 && server.again >= 1);
    bounds(&figures, left);
}
