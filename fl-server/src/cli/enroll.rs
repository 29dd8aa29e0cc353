//! `fl-server enroll NAME`: opens a token and prints the line that enrolls a device.

use std::io::IsTerminal as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use fl_cli::{Format, out};
use fl_proto::{EnrollmentLine, Role, Secret};
use serde::Serialize;

use crate::admin::socket::Answer;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::issued::IssuedList;
use crate::cli::source::{self, Certificates};
use crate::config::server::ServerConfig;
use crate::registry::NamePattern;
use crate::registry::ask::{NewToken, RegistryAsk};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The client's name: letters, digits, `-`, `_` and `.`. A name that ends in `*` is a pattern: `camera-*` gives camera-00,
    /// camera-01 and so on, or the name that a device asks for with --name.
    name: NamePattern,
    /// The federation's folder, or its server.toml.
    #[arg(long, default_value = ".")]
    fed: PathBuf,
    /// How long the line can be used, such as 15min or 24h.
    #[arg(long, default_value = "1h", value_parser = ttl)]
    ttl: u64,
    /// Number of devices that the line enrolls.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    uses: u32,
    /// Days that the first certificate is valid; default: `certificate_days` in server.toml.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: Option<u16>,
    /// Validity of the first certificate instead of days, such as 60s, for tests.
    #[arg(long, hide = true, conflicts_with = "days", value_parser = ttl)]
    lifetime: Option<u64>,
    /// client: trains and evaluates; evaluator: only evaluates; operator: takes no part in runs.
    #[arg(long, default_value_t = Role::Client)]
    role: Role,
    /// Hold each request until `fl-server clients approve NAME`; the device and the server show the same six words.
    #[arg(long)]
    approve: bool,
    /// Enroll a device under a name that is enrolled already: one that was lost or set up again.
    #[arg(long)]
    again: bool,
    /// Host, or host:port, at which the device reaches the enrollment port; default: `address` in server.toml, or this machine's
    /// own address.
    #[arg(long)]
    server: Option<String>,
    /// Also print the line as a QR code.
    #[arg(long)]
    qr: bool,
    /// Format of the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct OpenToken<'a> {
    line: &'a str,
    token: &'a str,
    /// Where the device connects.
    address: &'a str,
    /// Why devices cannot enroll at the moment.
    problem: Option<&'a str>,
}

/// As [`run`] with its defaults, by a server that is about to serve.
pub(super) fn before_serving(server: &Path, name: &NamePattern, uses: u32) -> Outcome {
    let args = Args {
        name: name.clone(),
        fed: server.to_owned(),
        ttl: HOUR,
        uses,
        days: None,
        lifetime: None,
        role: Role::Client,
        approve: false,
        again: false,
        server: None,
        qr: false,
        format: Format::Text,
    };
    open(&args, true)
}

pub(super) fn run(args: &Args) -> Outcome {
    open(args, false)
}

/// `serves`: whether this process is about to serve.
fn open(args: &Args, serves: bool) -> Outcome {
    let (folder, config) = source::federation(&args.fed)?;
    if let (NamePattern::One(name), false) = (&args.name, args.again) {
        let issued = IssuedList::of(&folder).fingerprints(name)?;
        if let Some(fingerprint) = issued.last() {
            return Err(Failure::usage(anyhow!(
                "`{name}` has a certificate already, {fingerprint}; `--again` enrolls a device under this name all the same"
            )));
        }
    }
    let Certificates { authority, own } = source::certificates(&config)?;
    // During a rotation there are two: a device must trust the one of this server.
    let authority = source::issuer(&authority, &own.certificate)?;
    drop(own);
    let secret = Secret::generate().map_err(|e| anyhow!("the system has no random bytes: {e}"))?;
    let days = args.days.unwrap_or(config.certificate_days);
    let new = NewToken {
        secret: secret.digest(),
        names: args.name.clone(),
        role: args.role,
        uses: args.uses,
        ttl: args.ttl,
        lifetime: args.lifetime.unwrap_or(u64::from(days) * DAY),
        approve: args.approve,
        again: args.again,
    };
    // Before the token is opened: a line that fits nowhere opens none.
    let listen = config.enroll.map_or_else(String::new, |listen| listen.to_string());
    let address = address(&config, args.server.as_deref(), &listen)?;
    EnrollmentLine::new(address, authority, secret.clone()).map_err(Failure::usage)?;
    let Answer::Opened { id, listen, problem } = source::ask_registry(&config, &RegistryAsk::Open(new))? else {
        return Err(source::unexpected().into());
    };
    let address = self::address(&config, args.server.as_deref(), listen.as_deref().unwrap_or_default())?;
    let line = EnrollmentLine::new(address.clone(), authority, secret).map_err(Failure::usage)?;
    let problem = problem.filter(|_| !serves || config.enroll.is_none());
    print(args, &line.to_string(), &id, &address, problem.as_deref())
}

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

fn print(args: &Args, line: &str, id: &str, address: &str, problem: Option<&str>) -> Outcome {
    let opened = OpenToken {
        line,
        token: id,
        address,
        problem,
    };
    if args.format == Format::Json {
        return Ok(out::json(&opened)?);
    }
    // Only the line on stdout, so that a script can pass it on.
    out::line(format_args!("fl-client enroll {line}"))?;
    if args.qr {
        out::text(format_args!("{}", qr_code(line)?))?;
    }
    let devices = match args.uses {
        1 => "one device".to_owned(),
        uses => format!("{uses} devices"),
    };
    let time = match args.ttl {
        ttl if ttl.is_multiple_of(60_000) => format!("{} minutes", ttl / 60_000),
        ttl => format!("{} seconds", ttl.div_ceil(1_000)),
    };
    out::note(format_args!(
        "type this on the device, which connects to {address}; it enrolls {devices} as {} within {time} (token {id})",
        args.name
    ));
    if args.approve {
        out::note(format_args!(
            "each device waits until you type: fl-server clients approve NAME"
        ));
    }
    if let Some(problem) = problem {
        out::note(format_args!("WARNING: {problem}"));
    }
    if address.starts_with("127.") && std::io::stderr().is_terminal() {
        out::note(format_args!(
            "only devices on this machine reach {address}: for others, set `listen` and `enroll` in server.toml to 0.0.0.0 with their ports"
        ));
    }
    Ok(())
}

/// A duration of a second to a year, in milliseconds.
pub(super) fn ttl(text: &str) -> Result<u64, String> {
    let millis = fl_compress::duration::millis(text).filter(|millis| (1_000..=366 * DAY).contains(millis));
    millis.ok_or_else(|| "must be a duration of 1s to 8784h, such as \"15min\" or \"24h\"".to_owned())
}

/// Where a device connects to enroll. `listen`: the address of the enrollment port; empty if it is not known.
fn address(config: &ServerConfig, asked: Option<&str>, listen: &str) -> Result<String, Failure> {
    let listen: Option<SocketAddr> = listen.parse().ok().or(config.enroll);
    let port = listen.map_or(7072, |listen| listen.port());
    let host = match asked {
        Some(asked) if has_port(asked) => return Ok(asked.to_owned()),
        Some(host) => host.to_owned(),
        None if !config.address.is_empty() => {
            let with_port = has_port(&config.address);
            let host = config.address.rsplit_once(':').filter(|_| with_port);
            host.map_or(config.address.as_str(), |(host, _)| host).to_owned()
        }
        None => match listen.map(|listen| listen.ip()) {
            Some(ip) if ip.is_unspecified() => return Ok(SocketAddr::new(own_address(ip), port).to_string()),
            Some(ip) => return Ok(SocketAddr::new(ip, port).to_string()),
            None => "127.0.0.1".to_owned(),
        },
    };
    if host.is_empty() || host.contains(['/', ' ']) {
        return Err(Failure::usage(anyhow!(
            "`--server {host}` must be a host or host:port, such as fl.example.org"
        )));
    }
    Ok(format!("{host}:{port}"))
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || (host.starts_with('[') && host.ends_with(']')))
    })
}

/// The address from which this machine reaches others; loopback if it reaches none. Sends nothing: a UDP socket that connects only
/// chooses its route.
fn own_address(unspecified: IpAddr) -> IpAddr {
    // Documentation addresses (RFC 5737, RFC 3849).
    let chosen = UdpSocket::bind(SocketAddr::new(unspecified, 0)).and_then(|socket| {
        socket.connect(match unspecified {
            IpAddr::V4(_) => "192.0.2.1:9",
            IpAddr::V6(_) => "[2001:db8::1]:9",
        })?;
        Ok(socket.local_addr()?.ip())
    });
    chosen.unwrap_or(match unspecified {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    })
}

/// The line as a QR code of half blocks, for terminals.
fn qr_code(line: &str) -> anyhow::Result<String> {
    let code =
        qrcode::QrCode::with_error_correction_level(line, qrcode::EcLevel::L).context("the line fits no QR code")?;
    let image = code
        .render::<qrcode::render::unicode::Dense1x2>()
        .quiet_zone(true)
        .build();
    Ok(image + "\n")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> ServerConfig {
        ServerConfig::from_toml(text, Path::new("")).unwrap()
    }

    #[test]
    fn a_device_connects_where_the_operator_says_or_the_port_is() {
        let of = |text: &str, asked: Option<&str>, listen: &str| address(&config(text), asked, listen).unwrap();
        assert_eq!(of("", None, "127.0.0.1:4000"), "127.0.0.1:4000");
        assert_eq!(of("", None, ""), "127.0.0.1:7072");
        assert_eq!(
            of("address = \"fl.example.org\"", None, "0.0.0.0:7072"),
            "fl.example.org:7072"
        );
        assert_eq!(
            of("address = \"fl.example.org:443\"", None, "0.0.0.0:7072"),
            "fl.example.org:7072"
        );
        assert_eq!(of("", Some("gate:99"), "0.0.0.0:7072"), "gate:99");
        assert_eq!(of("", Some("gate"), "0.0.0.0:7072"), "gate:7072");
        assert_eq!(of("", Some("[2001:db8::1]:99"), ""), "[2001:db8::1]:99");
        let own = of("enroll = \"0.0.0.0:7072\"", None, "");
        assert!(own.ends_with(":7072") && !own.starts_with("0."), "{own}");
        assert!(address(&config(""), Some("a b"), "").is_err());
    }

    #[test]
    fn a_line_is_a_qr_code() {
        let code = qr_code(&"fl1:".repeat(50)).unwrap();
        assert!(code.lines().count() > 20 && code.contains('█'), "{code}");
    }

    #[test]
    fn how_long_a_line_lasts_is_in_range() {
        assert_eq!(ttl("1h"), Ok(3_600_000));
        for bad in ["0s", "1ms", "9000h", "soon"] {
            assert!(ttl(bad).is_err(), "{bad}");
        }
    }
}
