//! Whether the ports of a server are free, and how many connections this machine allows.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use fl_cli::findings::Line;
use fl_proto::{open_files, raise_open_files};

use super::holder::holder;
use crate::cli::health;
use crate::config::server::ServerConfig;
use crate::rpc::door::Room;

/// How long a running server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn lines(config: &ServerConfig) -> Vec<Line> {
    let running = health::ask(&config.data, ANSWER_TIMEOUT).ok();
    let optional = [("enroll", config.enroll), ("admin", config.admin)];
    let optional = optional.into_iter().filter_map(|(key, address)| Some((key, address?)));
    let ports = std::iter::once(("listen", config.listen)).chain(optional);
    let mut lines: Vec<_> = match running {
        Some(running) => vec![Line::good(
            "listen",
            format!("the server of this folder runs on {} and has its ports", running.listen),
        )],
        None => ports.map(|(key, address)| port(key, address)).collect(),
    };
    raise_open_files();
    lines.push(files(config, open_files()));
    lines
}

/// Whether a port can be listened on. No connection is taken.
fn port(key: &str, address: SocketAddr) -> Line {
    let error = match TcpListener::bind(address) {
        Ok(_) => return Line::good(key, format!("{address} is free")),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::AddrInUse => {
            let by = holder(address.port()).unwrap_or_else(|| "another process".to_owned());
            Line::wrong(
                key,
                format!("{address} is taken: {by} listens there"),
                format!("end it, or choose another port with `{key}`"),
            )
        }
        ErrorKind::AddrNotAvailable => Line::wrong(
            key,
            format!("{address} is no address of this machine"),
            format!(
                "set `{key}` to one of its addresses, or to 0.0.0.0:{} for all",
                address.port()
            ),
        ),
        ErrorKind::PermissionDenied => Line::wrong(
            key,
            format!("{address}: this user may not listen on a port below 1024"),
            format!("choose a higher port with `{key}`, or give the program CAP_NET_BIND_SERVICE"),
        ),
        _ => Line::wrong(
            key,
            format!("{address}: {error}"),
            format!("choose another one with `{key}`"),
        ),
    }
}

/// Whether so many files may be open as `connections` need.
fn files(config: &ServerConfig, limit: Option<u64>) -> Line {
    const CHECK: &str = "open files";
    let room = Room::new(&config.tuning, limit);
    let asked = config.tuning.connections;
    let limit = limit.map_or_else(|| "no limit".to_owned(), |limit| format!("a limit of {limit}"));
    match room.clients < asked {
        true => Line::warning(
            CHECK,
            format!("{limit} leaves {} of `connections` = {asked}", room.clients),
            "raise it (`ulimit -n`, or LimitNOFILE of the systemd unit), or lower `connections`",
        ),
        false => Line::good(CHECK, format!("{limit} is enough for `connections` = {asked}")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpStream};
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use fl_cli::findings::Level;

    use super::*;

    #[test]
    fn a_port_that_is_taken_is_named_with_its_process_and_a_free_one_is_left_free() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let line = port("listen", address);
        assert_eq!(line.level, Level::Wrong);
        if cfg!(target_os = "linux") {
            let own = format!("(process {})", std::process::id());
            assert!(line.text.contains(&own), "{line:?}");
        }
        // A process that another test starts holds a copy of the listener until it executes its program: closing is not enough.
        TcpStream::from(OwnedFd::from(listener)).shutdown(Shutdown::Both).ok();
        assert_eq!(
            port("listen", address),
            Line::good("listen", format!("{address} is free"))
        );
        let foreign = port("admin", "192.0.2.1:7070".parse().unwrap());
        assert!(
            foreign.level == Level::Wrong && foreign.text.contains("no address of this machine"),
            "{foreign:?}"
        );
    }

    #[test]
    fn a_limit_of_open_files_below_the_connections_is_a_warning() {
        let config = ServerConfig::from_toml("", Path::new("")).unwrap();
        assert_eq!(files(&config, Some(1 << 20)).level, Level::Good);
        assert_eq!(files(&config, None).level, Level::Good);
        let line = files(&config, Some(1024));
        assert!(
            line.level == Level::Warning && line.text.contains("of `connections` = 10000"),
            "{line:?}"
        );
    }
}
