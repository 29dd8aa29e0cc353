//! Network namespaces, made with iproute2 and taken down when dropped, and what the kernel counts in them.

use std::collections::BTreeMap;
use std::process::Command;

/// A namespace with IPv6 and selective acknowledgements off, so that nothing but TCP moves on its links and every TCP
/// header after the first has one size.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

/// What one interface has carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub rx_bytes: u64,
    pub rx_packets: u64,
    pub tx_bytes: u64,
    pub tx_packets: u64,
}

impl Counters {
    pub fn add(self, other: Self) -> Self {
        Self {
            rx_bytes: self.rx_bytes + other.rx_bytes,
            rx_packets: self.rx_packets + other.rx_packets,
            tx_bytes: self.tx_bytes + other.tx_bytes,
            tx_packets: self.tx_packets + other.tx_packets,
        }
    }
}

impl Namespace {
    /// Makes `fl-PID-LABEL`. Panics with what to do where the machine does not let it.
    pub fn add(label: &str) -> Self {
        let name = format!("fl-{}-{label}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).output();
        let made = made.unwrap_or_else(|e| panic!("needs iproute2 (Debian: apt-get install iproute2): `ip`: {e}"));
        assert!(
            made.status.success(),
            "needs root and a kernel with network namespaces: `ip netns add {name}` says: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        let namespace = Self { name };
        for setting in [
            "net.ipv6.conf.all.disable_ipv6=1",
            "net.ipv6.conf.default.disable_ipv6=1",
            "net.ipv4.tcp_sack=0",
            "net.ipv4.tcp_timestamps=1",
            "net.ipv4.tcp_congestion_control=reno",
            "net.ipv4.ip_forward=1",
        ] {
            namespace.set(setting);
        }
        namespace
    }

    /// `KEY=VALUE` of sysctl. A kernel without IPv6 has no such key, and needs none.
    fn set(&self, setting: &str) {
        let (key, value) = setting.split_once('=').unwrap();
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        let absent = key.starts_with("net.ipv6") && !std::path::Path::new("/proc/sys/net/ipv6").exists();
        if !absent {
            self.run("sh", &["-c", &format!("echo {value} > {path}")]);
        }
    }

    /// Joins `interface` here with `peer` of `other`. Each end: name, address with prefix length, and the last byte of its
    /// hardware address. Packets leave one by one, as on a wire, and no end ever asks who the other is.
    pub fn join(&self, here: (&str, &str, u8), other: &Self, there: (&str, &str, u8)) {
        let mac = |last: u8| format!("02:00:00:00:00:{last:02x}");
        let (own, peer) = (mac(here.2), mac(there.2));
        self.ip(&format!(
            "link add {} address {own} type veth peer name {} address {peer} netns {}",
            here.0, there.0, other.name
        ));
        for (namespace, (name, address, _), (_, beyond, last)) in [(self, here, there), (other, there, here)] {
            let beyond = beyond.split('/').next().unwrap();
            namespace.ip(&format!("link set {name} gso_max_segs 1 multicast off"));
            namespace.ip(&format!("addr add {address} dev {name}"));
            namespace.ip(&format!("link set {name} up"));
            namespace.ip(&format!(
                "neigh add {beyond} lladdr {} nud permanent dev {name}",
                mac(last)
            ));
        }
    }

    /// `ip ARGS` in the namespace.
    pub fn ip(&self, args: &str) {
        let args: Vec<&str> = ["-n", &self.name].into_iter().chain(args.split(' ')).collect();
        succeed(Command::new("ip").args(args));
    }

    /// Runs a program in the namespace to its end; returns its stdout.
    pub fn run(&self, program: &str, args: &[&str]) -> String {
        let mut command = Command::new("ip");
        succeed(command.args(["netns", "exec", &self.name, program]).args(args))
    }

    /// `command`, to be run in the namespace. The process that is started is the program itself.
    pub fn inside(&self, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.name]).arg(command.get_program());
        inside.args(command.get_args()).env_remove("RUST_LOG");
        if let Some(dir) = command.get_current_dir() {
            inside.current_dir(dir);
        }
        inside
    }

    /// What `interface` has carried.
    pub fn counters(&self, interface: &str) -> Counters {
        let names = ["rx_bytes", "rx_packets", "tx_bytes", "tx_packets"];
        let paths = names.map(|name| format!("/sys/class/net/{interface}/statistics/{name}"));
        let text = self.run("cat", &paths.each_ref().map(String::as_str));
        let mut numbers = text.lines().map(|line| line.trim().parse().unwrap());
        let mut next = || numbers.next().unwrap();
        Counters {
            rx_bytes: next(),
            rx_packets: next(),
            tx_bytes: next(),
            tx_packets: next(),
        }
    }

    /// Everything that `/proc/net/snmp` and `/proc/net/netstat` count, as `Tcp.OutSegs` and `TcpExt.TCPSynRetrans`.
    pub fn snmp(&self) -> BTreeMap<String, i64> {
        let text = self.run("cat", &["/proc/net/snmp", "/proc/net/netstat"]);
        let lines: Vec<&str> = text.lines().collect();
        let mut all = BTreeMap::new();
        for pair in lines.chunks(2) {
            let (group, names) = pair[0].split_once(": ").unwrap();
            let (_, values) = pair[1].split_once(": ").unwrap();
            for (name, value) in names.split(' ').zip(values.split(' ')) {
                all.insert(format!("{group}.{name}"), value.trim().parse().unwrap());
            }
        }
        all
    }

    /// Waits until no connection is open, and none is closing that may still send anything.
    pub fn settle(&self) {
        let begun = std::time::Instant::now();
        loop {
            let sockets = self.run("cat", &["/proc/net/tcp"]);
            let states = sockets
                .lines()
                .skip(1)
                .filter_map(|line| line.split_whitespace().nth(3));
            // 06: waits for nothing but old segments; 0A: listens.
            let open = states.filter(|state| !["06", "0A"].contains(state)).count();
            if open == 0 {
                return;
            }
            assert!(
                begun.elapsed() < super::process::PATIENCE,
                "connections stay open:\n{sockets}"
            );
            std::thread::yield_now();
        }
    }

    /// Limits what leaves by `interface`; a queue of `limit` bytes overflows, and what overflows is lost.
    pub fn shape(&self, interface: &str, rate: &str, limit: u32) {
        let args = format!("qdisc add dev {interface} root tbf rate {rate} burst 3200 limit {limit}");
        self.run("tc", &args.split(' ').collect::<Vec<_>>());
    }

    /// Packets that the queue of `interface` has dropped.
    pub fn drops(&self, interface: &str) -> u64 {
        let text = self.run("tc", &["-s", "-j", "qdisc", "show", "dev", interface]);
        let queues: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&queues[0]["kind"], &queues[0]["qlen"]),
            (&"tbf".into(), &0.into()),
            "{text}"
        );
        queues[0]["drops"].as_u64().unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Its links go with it. A failure leaves an empty namespace behind, which its name tells.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}
