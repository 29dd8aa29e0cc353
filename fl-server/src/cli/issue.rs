//! `fl-server issue NAME --out DIR`: makes what one client needs to take part.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context;
use fl_proto::{Authority, ClientId, Fingerprint};
use time::{Duration, OffsetDateTime};

use super::init::{PUBLIC, SECRET, write_new};
use super::issued::Issued;
use super::{Failure, Outcome, out, source};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The client's name: letters, digits, `-`, `_` and `.`.
    name: String,
    /// Folder for the client's files; made if it is missing.
    #[arg(long)]
    out: PathBuf,
    /// The federation's folder.
    #[arg(long, default_value = ".")]
    fed: PathBuf,
    /// Days that the certificate is valid.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: u16,
    /// Issue another certificate to a client that has one. The one before stays valid until it expires or its fingerprint
    /// is listed in `revoked`.
    #[arg(long)]
    again: bool,
    /// `host:port` at which the client reaches the server; as in server.toml if not given.
    #[arg(long)]
    server: Option<String>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let name: ClientId = args.name.parse().map_err(Failure::usage)?;
    let (folder, config) = source::federation(&args.fed)?;
    let list = Issued::of(&folder);
    let before = list.fingerprints(&name)?;
    if let (Some(last), false) = (before.last(), args.again) {
        let text = format!(
            "`{name}` has a certificate already, {last}; `--again` issues another, and the one before stays valid until it \
             expires or its fingerprint is listed in {}",
            config.revoked.display()
        );
        return Err(Failure::usage(anyhow::anyhow!(text)));
    }
    let read = |path: PathBuf| {
        std::fs::read_to_string(&path).with_context(|| {
            format!(
                "cannot read {}; was `fl-server init` run in this folder?",
                path.display()
            )
        })
    };
    let certificate = read(config.authority.clone())?;
    let key = read(config.authority.with_extension("key"))?;
    let authority = Authority::from_pem(&fl_proto::Issued {
        certificate: certificate.clone(),
        key,
    })
    .with_context(|| format!("the authority in {} is not usable", folder.display()))?;
    let days = Duration::days(args.days.into());
    let now = OffsetDateTime::now_utc();
    let issued = authority.issue_client(&name, now, days)?;
    let fingerprint = Fingerprint::of_pem(&issued.certificate)?;
    let server = args
        .server
        .clone()
        .unwrap_or_else(|| reachable(config.listen).to_string());
    let toml = TEMPLATE.replace("SERVER", &server).replace("CLIENT", name.as_str());
    let files = [
        ("authority.pem", certificate.as_str(), PUBLIC),
        ("client.pem", &issued.certificate, PUBLIC),
        ("client.key", &issued.key, SECRET),
        ("client.toml", &toml, PUBLIC),
    ];
    write_new(&args.out, &files)?;
    list.add(&name, &fingerprint, now + days)?;
    let dir = args.out.display();
    out::line(format_args!("issued `{name}`, valid for {} days, in {dir}", args.days))?;
    out::line(format_args!("certificate {fingerprint}"))?;
    for before in &before {
        out::line(format_args!("still valid {before}"))?;
    }
    if !before.is_empty() {
        let revoked = config.revoked.display();
        out::line(format_args!("to revoke one of them, add it as a line to {revoked}"))?;
    }
    let config = args.out.join("client.toml");
    out::line(format_args!(
        "next: bring {dir} to the client, bind a task in {}, and there",
        config.display()
    ))?;
    out::line(format_args!("      fl-client run {}", config.display()))?;
    Ok(())
}

/// An address that a client on the same machine can connect to.
fn reachable(listen: SocketAddr) -> SocketAddr {
    if listen.ip().is_unspecified() {
        return SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), listen.port());
    }
    listen
}

/// The client's configuration; `SERVER` and `CLIENT` are filled in.
const TEMPLATE: &str = r##"# client.toml of CLIENT. Paths are relative to this file. `fl-client check client.toml` says whether it is right.

# `host:port` of the server.
server = "SERVER"

# The federation's authority, and this client's own certificate and key, all PEM.
authority   = "authority.pem"
certificate = "client.pem"
key         = "client.key"

# Folder of what the client must not lose: what compression left unsent, and the update that is on its way.
#state = "state"

# Where to train: "auto", "cpu" or "cuda:0".
#device = "auto"

# One table for each task that this client has a model and data for; the server's run.toml names the task. Learners:
# mlp, cnn, lenet, har. configs/client.toml lists every key and every kind of data.
#[tasks.mlp]
#learner = "mlp"
#data = { idx = { dir = "data/fashion-mnist", client = 0, clients = 10 } }
"##;
