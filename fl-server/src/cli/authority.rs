//! `fl-server authority`: rotates the federation's authority, with an overlap in which both are trusted.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use fl_cli::out;
use fl_proto::{Authority, Fingerprint, Issued, Lifetime, certificate_pem, certificates_of, next_path};
use time::{Duration, OffsetDateTime};

use crate::admin::socket::{Answer, Ask};
use crate::cli::failure::{Failure, Outcome};
use crate::cli::init::AUTHORITY_DAYS;
use crate::cli::source::{self, Certificates};
use crate::clock;
use crate::config::server::ServerConfig;
use crate::identity::{self, LIFETIME_DAYS, PRIVATE, PUBLIC};
use crate::registry::ask::ClientLine;
use crate::registry::signer::old_path;
use crate::storage::disk::Disk;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The federation's folder, or its server.toml.
    #[arg(long, default_value = ".", global = true)]
    fed: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Shows the authorities, and how many clients have a certificate of each.
    Show,
    /// Gives the server a new certificate and key now. A running server does so by itself where the authority's key is beside it; type
    /// this where the key is elsewhere, and carry server.pem and server.key to the server.
    Renew {
        /// Days that the certificate is valid.
        #[arg(long, default_value_t = LIFETIME_DAYS, value_parser = clap::value_parser!(u16).range(1..=3650))]
        days: u16,
    },
    /// Begins a rotation: makes a new authority beside the old one. Clients get a certificate of it when they renew.
    Rotate,
    /// Ends a rotation: the server's certificate becomes one of the new authority, and the old one is not trusted any more.
    Finish {
        /// Also while clients have only a certificate of the old authority: they must be enrolled again.
        #[arg(long)]
        force: bool,
    },
}

pub(super) fn run(args: &Args) -> Outcome {
    let config = source::config(&args.fed)?;
    match &args.command {
        Command::Show => show(&config),
        Command::Renew { days } => renew(&config, *days),
        Command::Rotate => rotate(&config),
        Command::Finish { force } => finish(&config, *force),
    }
}

/// Clients by the authority of the certificate with which they would join now.
pub(super) fn clients(config: &ServerConfig) -> Result<BTreeMap<Option<Fingerprint>, Vec<String>>, Failure> {
    let mut by = BTreeMap::<_, Vec<String>>::new();
    let now = clock::system();
    for ClientLine { name, record, .. } in source::clients(config)? {
        if let Some(next) = record.next(now) {
            by.entry(next.authority).or_default().push(name);
        }
    }
    Ok(by)
}

fn show(config: &ServerConfig) -> Outcome {
    let Certificates { authority, own } = source::certificates(config)?;
    let server = source::issuer(&authority, &own.certificate)?;
    let clients = clients(config)?;
    for der in certificates_of(&authority)? {
        let fingerprint = Fingerprint::of(&der);
        let ends = fl_proto::peer_expiry(&der)?.date();
        let count = clients.get(&Some(fingerprint)).map_or(0, Vec::len);
        let server = if fingerprint == server { ", the server's" } else { "" };
        out::line(format_args!("{fingerprint}  until {ends}, {count} clients{server}"))?;
    }
    if let Some(unknown) = clients.get(&None) {
        out::line(format_args!(
            "{} clients of an authority that is not known here",
            unknown.len()
        ))?;
    }
    Ok(())
}

fn renew(config: &ServerConfig, days: u16) -> Outcome {
    let own = source::certificates(config)?.own;
    let renewer = source::renewer(config, days);
    if !renewer.has_key() {
        return Err(Failure::usage(anyhow!(
            "{} is missing: type this in the federation's folder where the authority's key is, copy server.pem and server.key from \
             there to the server, and send the server SIGHUP",
            config.authority_key.display()
        )));
    }
    let new = renewer.renew(&own, clock::system()).map_err(anyhow::Error::from)?;
    let ends = Lifetime::of_pem(&new.certificate)?.expires.date();
    out::line(format_args!(
        "{} and {} are new, valid until {ends}",
        config.certificate.display(),
        config.key.display()
    ))?;
    reload(config)
}

/// Makes a new authority. Typed again after a crash, it continues.
fn rotate(config: &ServerConfig) -> Outcome {
    let before = source::certificates(config)?.authority;
    let all = certificates_of(&before)?;
    let next_key = next_path(&config.authority_key);
    if all.len() > 1 && !next_key.exists() {
        return Err(Failure::usage(anyhow!(
            "{} holds {} authorities: a rotation is in progress; `fl-server authority show` says how far it is, and `authority \
             finish` ends it",
            config.authority.display(),
            all.len()
        )));
    }
    if !config.authority_key.exists() && !next_key.exists() {
        return Err(Failure::usage(anyhow!(
            "{} is missing: rotate where the authority's key is, then copy authority.pem and server.pem to the server",
            config.authority_key.display()
        )));
    }
    if all.len() == 1 {
        let name = fl_proto::common_name(&all[0])?;
        let name = name.strip_suffix(" authority").unwrap_or(&name).to_owned();
        let present = Authority::from_pem(&Issued {
            certificate: certificate_pem(&all[0]),
            key: source::text(&config.authority_key)?,
        })?;
        let new = present.successor(&name, OffsetDateTime::now_utc(), Duration::days(AUTHORITY_DAYS))?;
        let disk = Disk::default();
        identity::write(&disk, &next_key, &next_key, PRIVATE, &new.key)?;
        let both = before + &new.certificate;
        identity::write(&disk, &config.authority, &config.authority, PUBLIC, &both)?;
    }
    // Before the new key signs: a running server must trust what it signs.
    reload(config)?;
    // The old key signs nothing more. The server's certificate stays as it is until the end.
    let old_key = old_path(&config.authority_key);
    if !old_key.exists() {
        let kept = std::fs::hard_link(&config.authority_key, &old_key);
        kept.with_context(|| {
            format!(
                "cannot keep {} as {}",
                config.authority_key.display(),
                old_key.display()
            )
        })?;
    }
    let key = &config.authority_key;
    std::fs::rename(&next_key, key)
        .with_context(|| format!("cannot rename {} to {}", next_key.display(), key.display()))?;
    out::note(format_args!(
        "both authorities are trusted; clients get a certificate of the new one when they renew. `fl-server authority show` counts \
         them, `fl-server authority finish` ends the rotation"
    ));
    show(config)
}

fn finish(config: &ServerConfig, force: bool) -> Outcome {
    // Not the server's own pair: a crash in this command may have left two files that do not fit.
    let authorities = source::text(&config.authority)?;
    let key = source::text(&config.authority_key)?;
    let all = certificates_of(&authorities)?;
    let new = all.iter().find(|der| {
        fl_proto::is_pair(&Issued {
            certificate: certificate_pem(der),
            key: key.clone(),
        })
    });
    let new = new.ok_or_else(|| {
        Failure::usage(anyhow!(
            "{} is not the key of an authority in {}",
            config.authority_key.display(),
            config.authority.display()
        ))
    })?;
    if all.len() == 1 {
        return Err(Failure::usage(anyhow!(
            "no rotation is in progress; `fl-server authority rotate` begins one"
        )));
    }
    let fingerprint = Fingerprint::of(new);
    let clients = clients(config)?;
    let old: Vec<&String> = clients
        .iter()
        .filter(|(of, _)| **of != Some(fingerprint))
        .flat_map(|(_, names)| names)
        .collect();
    if !old.is_empty() && !force {
        let named: Vec<&str> = old.iter().take(5).map(|name| name.as_str()).collect();
        return Err(anyhow!(
            "{} clients have a certificate of the old authority: {}{}; wait until they have renewed it, or add `--force` and enroll \
             them again",
            old.len(),
            named.join(", "),
            if old.len() > 5 { ", .." } else { "" }
        )
        .into());
    }
    let certificate = certificate_pem(new);
    let issued = Issued {
        certificate: certificate.clone(),
        key,
    };
    let days = Duration::days(LIFETIME_DAYS.into());
    let own = Authority::from_pem(&issued)?.issue_server(OffsetDateTime::now_utc(), days)?;
    let disk = Disk::default();
    source::own_files(config).replace(&disk, &own)?;
    identity::write(&disk, &config.authority, &config.authority, PUBLIC, &certificate)?;
    let _ = std::fs::remove_file(old_path(&config.authority_key));
    reload(config)?;
    show(config)
}

fn reload(config: &ServerConfig) -> Outcome {
    let asked = crate::admin::socket::ask_server(&config.data, &Ask::Reload);
    match asked.context("the server does not answer on its admin socket; send it SIGHUP")? {
        None => Ok(()),
        Some(Answer::Changed(done)) => {
            out::note(format_args!("{done}"));
            Ok(())
        }
        Some(Answer::Failed { why, .. }) => {
            Err(anyhow!("the running server did not read its certificates again: {why}").into())
        }
        Some(_) => Err(source::unexpected().into()),
    }
}
