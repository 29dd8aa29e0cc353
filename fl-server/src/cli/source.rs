//! What the subcommands read: a federation's folder, and answers of the running server or its store.

use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use fl_proto::{
    Fingerprint, Issued, certificates_of, issuer_of, make_private_folder, next_path, open_regular, server_tls,
};
use fl_report::Report;

use crate::admin::page::listener::{Live, LiveError};
use crate::admin::socket::{self as admin, Answer, Ask};
use crate::cli::failure::Failure;
use crate::clock;
use crate::config::plan::RunPlan;
use crate::config::server::ServerConfig;
use crate::identity::{OwnFiles, Renewer};
use crate::registry::Registry;
use crate::registry::ask::{ClientLine, PAGE, RegistryAnswer, RegistryAsk};
use crate::registry::signer::Signer;
use crate::storage::disk::Disk;
use crate::storage::store::Store;

/// Text of a configuration file. An empty file is an error.
pub(super) fn read(file: &Path) -> Result<String, Failure> {
    let text = text(file)?;
    if text.trim().is_empty() {
        let why = format!(
            "{} is empty; configs/ has a server.toml and a run.toml to begin with",
            file.display()
        );
        return Err(Failure::usage(anyhow!(why)));
    }
    Ok(text)
}

/// The folder that the paths in a configuration file are relative to.
pub(super) fn base(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

const MAX_BYTES: u64 = 1 << 20;

/// Text of a file that may be empty.
///
/// # Errors
/// If the file is not a regular one, is too large or is not UTF-8.
pub(super) fn text(file: &Path) -> Result<String, Failure> {
    open_regular(File::options().read(true), file)
        .and_then(|file| fl_compress::text::read(file, MAX_BYTES))
        .with_context(|| format!("cannot read {}", file.display()))
        .map_err(Failure::usage)
}

/// Content of a file of at most `max` bytes.
///
/// # Errors
/// If the file is not a regular one or is too large.
pub(super) fn bytes(file: &Path, max: u64) -> Result<Vec<u8>, Failure> {
    content(file, max)
        .with_context(|| format!("cannot read {}", file.display()))
        .map_err(Failure::usage)
}

fn content(file: &Path, max: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open_regular(File::options().read(true), file)?;
    file.take(max + 1).read_to_end(&mut bytes)?;
    anyhow::ensure!(bytes.len() as u64 <= max, "larger than {max} bytes");
    Ok(bytes)
}

pub(super) fn plan(file: &Path) -> Result<RunPlan, Failure> {
    RunPlan::load(&read(file)?, base(file))
        .with_context(|| file.display().to_string())
        .map_err(Failure::usage)
}

/// The certificates of a server, PEM.
pub(super) struct Certificates {
    pub(super) authority: String,
    /// Its own, with the key.
    pub(super) own: Issued,
}

///
/// # Errors
/// If a file cannot be read or they cannot be used together; the text names them.
pub(super) fn certificates(config: &ServerConfig) -> Result<Certificates, Failure> {
    let authority = text(&config.authority)?;
    let own = own_files(config).read(text)?;
    server_tls(&authority, &own)
        .with_context(|| {
            format!(
                "{}, {} and {} cannot be used",
                config.certificate.display(),
                config.key.display(),
                config.authority.display()
            )
        })
        .map_err(Failure::usage)?;
    issuer(&authority, &own.certificate)
        .with_context(|| {
            format!(
                "{0} does not lead to an authority of {1}, so no client would accept this server; use the files of one federation, and \
                 append the certificates of the authorities in between to {0}",
                config.certificate.display(),
                config.authority.display()
            )
        })
        .map_err(Failure::usage)?;
    Ok(Certificates { authority, own })
}

pub(super) fn own_files(config: &ServerConfig) -> OwnFiles {
    OwnFiles {
        certificate: config.certificate.clone(),
        key: config.key.clone(),
    }
}

/// What renews the server's certificate, for so many days.
pub(super) fn renewer(config: &ServerConfig, days: u16) -> Renewer {
    Renewer {
        files: own_files(config),
        signer: signer(config),
        lifetime: u64::from(days) * 24 * 3_600_000,
        disk: Disk::default(),
    }
}

pub(super) fn signer(config: &ServerConfig) -> Signer {
    Signer {
        authority: config.authority.clone(),
        key: config.authority_key.clone(),
    }
}

/// Fingerprint of the authority in `authorities` that issued a certificate, all PEM.
pub(super) fn issuer(authorities: &str, certificate: &str) -> anyhow::Result<Fingerprint> {
    Ok(Fingerprint::of(issuer_of(certificate, &certificates_of(authorities)?)?))
}

/// Token, certificate and key of the page of a run at `address`, checked together. A page on loopback needs none.
///
/// # Errors
/// If a file is needed and cannot be read, or they cannot be used together; the text names them and their key.
pub(super) fn page(config: &ServerConfig, address: SocketAddr) -> Result<(Option<String>, Issued), Failure> {
    if address.ip().is_loopback() {
        let none = Issued {
            certificate: String::new(),
            key: String::new(),
        };
        return Ok((None, none));
    }
    let needed = |path: &Path, key: &str| {
        text(path).map_err(|failure| {
            let why = format!("`admin` = \"{address}\" can be reached from other machines and needs `{key}`");
            Failure::usage(anyhow!("{why}: {}", fl_cli::exit::chain(failure.error())))
        })
    };
    let token = needed(&config.admin_token, "admin_token")?;
    let files = OwnFiles {
        certificate: config.admin_certificate.clone(),
        key: config.admin_key.clone(),
    };
    let own = files.read(|path| {
        let is_key = [&config.admin_key, &next_path(&config.admin_key)].contains(&&path.to_owned());
        needed(path, if is_key { "admin_key" } else { "admin_certificate" })
    })?;
    Live::check(address, Some(&token), &own).map_err(|error| page_failure(config, error))?;
    Ok((Some(token), own))
}

/// Adds the files that an error of the page comes from.
pub(super) fn page_failure(config: &ServerConfig, error: LiveError) -> Failure {
    let context = match &error {
        LiveError::Address { .. } => return error.into(),
        LiveError::Token(_) => format!("{} (`admin_token`)", config.admin_token.display()),
        LiveError::Certificate(_) => format!(
            "{} (`admin_certificate`) and {} (`admin_key`)",
            config.admin_certificate.display(),
            config.admin_key.display()
        ),
    };
    Failure::usage(anyhow::Error::from(error).context(context))
}

/// `path`, or the server.toml in it if it is a folder.
pub(super) fn server_toml(path: &Path) -> Result<PathBuf, Failure> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let file = path.join("server.toml");
    expect(&file).map(|()| file)
}

fn expect(file: &Path) -> Result<(), Failure> {
    let is_there = file
        .try_exists()
        .with_context(|| format!("cannot look at {}", file.display()))?;
    is_there.then_some(()).ok_or_else(|| no_federation(file))
}

fn no_federation(file: &Path) -> Failure {
    Failure::usage(anyhow!(
        "{} does not exist; create a federation with `fl-server init DIR`",
        file.display()
    ))
}

/// The configuration of a federation, from its folder or its server.toml.
pub(super) fn config(path: &Path) -> Result<ServerConfig, Failure> {
    Ok(federation(path)?.1)
}

/// As [`config`], with the federation's folder.
pub(super) fn federation(path: &Path) -> Result<(PathBuf, ServerConfig), Failure> {
    let file = server_toml(path)?;
    expect(&file)?;
    let config = ServerConfig::from_toml(&read(&file)?, base(&file)).with_context(|| file.display().to_string());
    Ok((base(&file).to_owned(), config.map_err(Failure::usage)?))
}

/// Asks the running server, or the store if there is none.
pub(super) fn ask(config: &ServerConfig, ask: &Ask) -> Result<Answer, Failure> {
    let live = admin::ask_server(&config.data, ask).context("the server does not answer on its admin socket")?;
    let answer = match live {
        Some(answer) => answer,
        None if !Store::is_at(&config.data)? => match ask {
            Ask::Status => Answer::Status(admin::Status {
                serving: None,
                runs: Vec::new(),
            }),
            _ => return Err(anyhow!("{} holds no run yet", config.data.display()).into()),
        },
        None => {
            let store = Store::open(&config.data, Disk::default())?;
            admin::answer(&store, ask, None)
        }
    };
    match answer {
        Answer::Failed { why, corrupt: true } => Err(Failure::corrupt(anyhow!(why))),
        Answer::Failed { why, corrupt: false } => Err(anyhow!(why).into()),
        answer => Ok(answer),
    }
}

/// Asks the registry of tokens and clients: the running server's, or that in the store if there is no server.
pub(super) fn ask_registry(config: &ServerConfig, ask: &RegistryAsk) -> Result<Answer, Failure> {
    let at = clock::system();
    let asked = Ask::Registry { ask: ask.clone(), at };
    let live = admin::ask_server(&config.data, &asked).context("the server does not answer on its admin socket")?;
    match live {
        Some(Answer::Failed { why, .. }) => Err(anyhow!(why).into()),
        Some(answer) => Ok(answer),
        None => {
            make_private_folder(&config.data)
                .with_context(|| format!("cannot create folder {}", config.data.display()))?;
            let mut registry = Registry::open(Store::open(&config.data, Disk::default())?)?;
            let signer = signer(config);
            let opens = matches!(ask, RegistryAsk::Open(_));
            match registry.answer(ask, &signer, at).map_err(|why| anyhow!(why))? {
                RegistryAnswer::Done(id) if opens => Ok(Answer::Opened {
                    id,
                    listen: config.enroll.map(|address| address.to_string()),
                    problem: match config.enroll {
                        Some(_) => Some("no server runs yet; devices can enroll once it does".to_owned()),
                        None => Some("`enroll` is \"off\" in server.toml: set it, and start the server".to_owned()),
                    },
                }),
                answer => Ok(Answer::Registry(answer)),
            }
        }
    }
}

/// All clients, after the devices that wait for approval.
pub(super) fn clients(config: &ServerConfig) -> Result<Vec<ClientLine>, Failure> {
    let mut all = Vec::<ClientLine>::new();
    loop {
        let last = all.last().filter(|line| line.key.is_none());
        let after = last.map_or_else(String::new, |line| line.name.clone());
        let Answer::Registry(RegistryAnswer::Clients(page)) = ask_registry(config, &RegistryAsk::Clients { after })?
        else {
            return Err(unexpected().into());
        };
        let is_last = page.iter().filter(|line| line.key.is_none()).count() < PAGE;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

/// The error for an answer to another question.
pub(super) fn unexpected() -> anyhow::Error {
    anyhow!("the server answered another question; is it of another version?")
}

pub(super) fn report(config: &ServerConfig, run: Option<&String>) -> Result<Report, Failure> {
    match ask(config, &Ask::Report { run: run.cloned() })? {
        Answer::Report(report) => Ok(*report),
        _ => Err(unexpected().into()),
    }
}
