//! A federation of real processes, set up as the README says.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use fl_server::report::Report;
use tempfile::TempDir;

use super::process::{done, sim};

/// A federation's folder, and one folder for each of its clients beside it.
#[derive(Debug)]
pub struct Fed {
    dir: TempDir,
    /// Where its server listens, whenever it runs.
    pub address: String,
}

impl Fed {
    /// `server init`.
    pub fn found() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let fed = Self { dir, address };
        done(fed.sim(&["server", "init", "fed", "--listen", &fed.address, "--admin", "off"]));
        fed
    }

    /// A path in the federation's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `fl-sim ARGS` in the federation's folder.
    pub fn sim(&self, args: &[&str]) -> Command {
        let mut command = sim(args);
        command.current_dir(self.dir.path());
        command
    }

    /// `server issue`, and a task for the client. `task`: the body of the table.
    pub fn issue(&self, name: &str, task: &str) {
        done(self.sim(&["server", "issue", name, "--fed", "fed", "--out", name]));
        let path = self.path(name).join("client.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("sync = false\n{text}\n{task}\n")).unwrap();
    }

    /// Writes `run.toml` beside its first weights, which `client init` makes.
    pub fn plan(&self, run: &str, learner: &str, seed: u64) {
        let seed = seed.to_string();
        done(self.sim(&[
            "client",
            "init",
            "--learner",
            learner,
            "--seed",
            &seed,
            "-o",
            "init.safetensors",
        ]));
        std::fs::write(self.path("run.toml"), format!("model = \"init.safetensors\"\n{run}")).unwrap();
    }

    /// `server serve`.
    pub fn serve(&self, more: &[&str]) -> Command {
        let serve = ["server", "serve", "fed/server.toml", "--run", "run.toml"];
        self.sim(&[&serve, more].concat())
    }

    /// `client run` until the run is over.
    pub fn client(&self, name: &str) -> Command {
        let config = format!("{name}/client.toml");
        self.sim(&["client", "run", &config, "--device", "cpu", "--exit-when-done"])
    }

    /// `server report --format json`.
    pub fn report(&self) -> Report {
        serde_json::from_str(&done(self.sim(&["server", "report", "fed", "--format", "json"]))).unwrap()
    }
}

/// A port of this process that nothing listens on. Below the ports that systems hand out for outgoing connections, as a
/// client that knocks at such a port while its server is dead may be connected to itself.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() % 400) as u16 * 30;
    loop {
        let port = 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
