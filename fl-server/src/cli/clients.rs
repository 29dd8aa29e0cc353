//! `fl-server clients`: the clients of a federation.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _, Write as _, stderr, stdin};
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use fl_cli::{Format, out};
use fl_proto::Fingerprint;
use fl_report::size;
use serde::Serialize;

use crate::admin::socket::{Answer, Ask};
use crate::cli::failure::{Failure, Outcome};
use crate::cli::source;
use crate::clock::minute;
use crate::config::server::ServerConfig;
use crate::registry::ask::{ClientLine, RegistryAnswer, RegistryAsk, RevokeTarget};

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
    /// Lists clients, and devices that wait for approval.
    List {
        /// Only clients with this tag.
        #[arg(long)]
        tag: Option<String>,
        /// Format of the result.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Shows one client: its certificates, its device, its rounds and bytes.
    Show {
        name: String,
        /// Format of the result.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Revokes a client, or one certificate by its fingerprint (`sha256:..`). Its connections end within a second.
    Revoke {
        /// The client's name, or a fingerprint.
        what: String,
        /// The reason, which the client is told.
        #[arg(long, default_value = "")]
        why: String,
    },
    /// Admits a revoked client, or certificate, again.
    Restore {
        /// The client's name, or a fingerprint.
        what: String,
    },
    /// Adds tags to a client, or removes them.
    Tag {
        name: String,
        /// Tags to add.
        tags: Vec<String>,
        /// A tag to remove; may be repeated.
        #[arg(long)]
        remove: Vec<String>,
    },
    /// Forgets a client. Its name is free for another device.
    Forget { name: String },
    /// Approves a device that waits, after a comparison of the six words that both sides show.
    Approve {
        name: String,
        /// The digest of the device's key, as `clients list --format json` shows it: where several devices wait for one name.
        #[arg(long)]
        key: Option<Fingerprint>,
        /// Approve without asking.
        #[arg(long)]
        yes: bool,
    },
    /// Denies a device that waits.
    Deny {
        name: String,
        /// The digest of the device's key, where several devices wait for one name.
        #[arg(long)]
        key: Option<Fingerprint>,
    },
}

/// A client, with what the runs of the store say of it.
#[derive(Debug, Serialize)]
struct Known {
    #[serde(flatten)]
    line: ClientLine,
    updates: u64,
    bytes_up: u64,
    bytes_down: u64,
}

pub(super) fn run(args: &Args) -> Outcome {
    let config = source::config(&args.fed)?;
    let ask = match &args.command {
        Command::List { tag, format } => {
            let mut known = known(&config)?;
            known.retain(|one| tag.as_ref().is_none_or(|tag| one.line.record.tags.contains(tag)));
            return Ok(out::result(&known, *format, list)?);
        }
        Command::Show { name, format } => {
            let one = known(&config)?.into_iter().find(|one| one.line.name == *name);
            let one = one.ok_or_else(|| anyhow!("there is no client `{name}`; `fl-server clients list` shows them"))?;
            return Ok(out::result(&one, *format, show)?);
        }
        Command::Revoke { what, why } => RegistryAsk::Revoke {
            what: revoked(what)?,
            why: why.clone(),
        },
        Command::Restore { what } => RegistryAsk::Restore { what: revoked(what)? },
        Command::Tag { name, tags, remove } => RegistryAsk::Tag {
            name: name.clone(),
            add: tags.clone(),
            remove: remove.clone(),
        },
        Command::Forget { name } => RegistryAsk::Forget { name: name.clone() },
        // By its key: another device that takes the name meanwhile is not the one whose words were compared.
        Command::Approve { name, key, yes } => {
            let (key, words) = waiting(&config, name, key.as_ref())?;
            if !yes {
                compare_words(name, &key, &words)?;
            }
            RegistryAsk::Approve { key, approve: true }
        }
        Command::Deny { name, key } => RegistryAsk::Approve {
            key: waiting(&config, name, key.as_ref())?.0,
            approve: false,
        },
    };
    let Answer::Registry(RegistryAnswer::Done(done)) = source::ask_registry(&config, &ask)? else {
        return Err(source::unexpected().into());
    };
    out::line(format_args!("{done}"))?;
    Ok(())
}

/// A name, or a fingerprint if it looks like one.
fn revoked(what: &str) -> Result<RevokeTarget, Failure> {
    if what.to_ascii_lowercase().starts_with("sha256:") {
        return Ok(RevokeTarget::Certificate(what.parse().map_err(Failure::usage)?));
    }
    Ok(RevokeTarget::Client(what.parse().map_err(Failure::usage)?))
}

fn known(config: &ServerConfig) -> Result<Vec<Known>, Failure> {
    let clients = source::clients(config)?;
    let Answer::Status(status) = source::ask(config, &Ask::Status)? else {
        return Err(source::unexpected().into());
    };
    let mut taken: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
    for run in status.runs {
        for client in source::report(config, Some(&run.run))?.clients {
            let sums = taken.entry(client.client).or_default();
            sums.0 += client.updates;
            sums.1 += client.flow.socket_up;
            sums.2 += client.flow.socket_down;
        }
    }
    Ok(clients
        .into_iter()
        .map(|line| {
            let (updates, bytes_up, bytes_down) = taken.get(&line.name).copied().unwrap_or_default();
            Known {
                line,
                updates,
                bytes_up,
                bytes_down,
            }
        })
        .collect())
}

fn list(known: &Vec<Known>) -> String {
    if known.is_empty() {
        return "no clients; `fl-server enroll NAME` prints a line that enrolls one\n".to_owned();
    }
    let wide = known.iter().map(|one| one.line.name.len()).max().unwrap_or(0).max(8) + 2;
    let mut out = format!(
        "{:<wide$}{:<10}{:<19}{:<12}{:>8}{:>11}{:>11}  {}\n",
        "client", "state", "last seen", "expires", "updates", "up", "down", "tags, last rejection"
    );
    for one in known {
        let line = &one.line;
        let record = &line.record;
        let seen = record.last_seen.map_or_else(|| "-".to_owned(), minute);
        let tags: Vec<_> = record.tags.iter().map(String::as_str).collect();
        let mut notes = tags.join(", ");
        if let (Some(words), Some(address)) = (&line.words, record.address) {
            notes = format!("from {address}: {words}");
        }
        if let Some(rejected) = &record.rejected {
            let _ = write!(notes, "{}{}", if notes.is_empty() { "" } else { "; " }, rejected.why);
        }
        let state = if line.words.is_some() {
            "held"
        } else {
            line.state.as_str()
        };
        let _ = writeln!(
            out,
            "{:<wide$}{state:<10}{seen:<19}{:<12}{:>8}{:>11}{:>11}  {notes}",
            line.name,
            day(newest_end(line)),
            one.updates,
            size(one.bytes_up),
            size(one.bytes_down),
        );
    }
    out
}

fn newest_end(line: &ClientLine) -> Option<u64> {
    line.record.certificates.iter().map(|one| one.expires).max()
}

fn day(at: Option<u64>) -> String {
    at.map_or_else(
        || "-".to_owned(),
        |at| minute(at).split(' ').next().unwrap_or_default().to_owned(),
    )
}

fn show(one: &Known) -> String {
    let line = &one.line;
    let record = &line.record;
    let mut out = format!("{}: {}, role {}\n", line.name, line.state, record.role);
    let mut row = |what: &str, text: String| {
        if !text.is_empty() {
            out += &format!("  {what:<14}{text}\n");
        }
    };
    if let Some(revoked) = &record.revoked {
        row("revoked", format!("{}  {}", minute(revoked.at), revoked.why));
    }
    row("words", line.words.clone().unwrap_or_default());
    row("tags", record.tags.iter().cloned().collect::<Vec<_>>().join(", "));
    row("enrolled", record.enrolled.map_or_else(String::new, minute));
    row("first seen", record.first_seen.map_or_else(String::new, minute));
    row("last seen", record.last_seen.map_or_else(String::new, minute));
    row("address", record.address.map_or_else(String::new, |at| at.to_string()));
    row("version", record.software.clone());
    row("device", record.device.clone());
    let up = size(one.bytes_up);
    let down = size(one.bytes_down);
    row("updates", format!("{} accepted, {up} up, {down} down", one.updates));
    if let Some(rejected) = &record.rejected {
        row("rejected", format!("{}  {}", minute(rejected.at), rejected.why));
    }
    for certificate in &record.certificates {
        let state = match certificate {
            one if one.revoked.is_some() => "revoked",
            one if one.replaced.is_some() => "replaced",
            one if one.used.is_none() => "not used yet",
            _ => "in use",
        };
        let until = minute(certificate.expires);
        row(
            "certificate",
            format!("{}  until {until}, {state}", certificate.fingerprint),
        );
    }
    out
}

/// The key and the words of the device that waits for a name: the one with `key`, or the only one.
fn waiting(config: &ServerConfig, name: &str, key: Option<&Fingerprint>) -> Result<(Fingerprint, String), Failure> {
    let clients = source::clients(config)?;
    let named = clients.into_iter().filter(|one| one.name == name);
    let mut all: Vec<_> = named
        .filter_map(|one| Some((one.key?.parse::<Fingerprint>().ok()?, one.words?)))
        .filter(|(of, _)| key.is_none_or(|key| key == of))
        .collect();
    match all.len() {
        1 => Ok(all.remove(0)),
        0 => Err(
            anyhow!("no such device waits for the name `{name}`; `fl-server clients list` shows those that do").into(),
        ),
        many => {
            let mut text = format!("{many} devices wait for the name `{name}`; say which one, by `--key`:");
            for (key, words) in all {
                let _ = write!(text, "\n  --key {key}  {words}");
            }
            Err(Failure::usage(anyhow!(text)))
        }
    }
}

/// Asks whether the device shows the same words.
fn compare_words(name: &str, key: &Fingerprint, words: &str) -> Outcome {
    if !stdin().is_terminal() {
        return Err(Failure::usage(anyhow!(
            "compare these words with those of the device, then add `--key {key} --yes`: {words}"
        )));
    }
    let mut err = stderr();
    let _ = write!(
        err,
        "words of `{name}`: {words}\nDoes the device show the same words? [y/N] "
    );
    let _ = err.flush();
    let mut answer = String::new();
    stdin()
        .lock()
        .read_line(&mut answer)
        .context("cannot read the answer")?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(anyhow!("not approved; `fl-server clients deny {name}` turns the device away").into()),
    }
}
