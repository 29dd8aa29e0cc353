//! `fl-server issue NAME --out DIR`: creates the certificate and the folder of a client.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context;
use fl_cli::out;
use fl_cli::task::table;
use fl_proto::{Authority, ClientId, Fingerprint};
use time::{Duration, OffsetDateTime};

use crate::cli::failure::{Failure, Outcome};
use crate::cli::init::{expect_new, write_new};
use crate::cli::issued::IssuedList;
use crate::cli::source;
use crate::identity::{PRIVATE, PUBLIC};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The client's name: letters, digits, `-`, `_` and `.`. With --count, the prefix of the names.
    name: String,
    /// Folder for the client's files, created if it is missing; default: NAME/. With --count, the parent of the
    /// clients' folders; default: `.`.
    #[arg(long)]
    out: Option<PathBuf>,
    /// The federation's folder.
    #[arg(long, default_value = ".")]
    fed: PathBuf,
    /// Days that the certificate is valid.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: u16,
    /// Issue another certificate to a client that has one. The earlier one stays valid until it expires or its
    /// fingerprint is listed in `revoked`.
    #[arg(long)]
    again: bool,
    /// `host:port` of the server as the client reaches it; default: as in server.toml.
    #[arg(long)]
    server: Option<String>,
    /// Number of clients: NAME-00, NAME-01 and so on, each with a folder of its name.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: Option<u32>,
    /// A task to bind in client.toml; `task` in run.toml.
    #[arg(long, requires = "learner")]
    task: Option<String>,
    /// The learner of the task, such as mlp or '{ name = "transformer", layers = 6 }' (`fl-client init --help` lists them), or a
    /// script of your own: '{ command = ["python3", "train.py", "{i}"] }'.
    #[arg(long, requires = "task")]
    learner: Option<String>,
    /// The data of a built-in learner, as in client.toml; a script has its own. `{i}`, here and in --learner, becomes the client's number, from 0:
    /// '{ builtin = { client = {i} } }'.
    #[arg(long, requires = "task")]
    data: Option<String>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let clients = clients(args)?;
    let (folder, config) = source::federation(&args.fed)?;
    let list = IssuedList::of(&folder);
    let revoked = config.revoked.display();
    for Client { name, .. } in &clients {
        let before = list.fingerprints(name)?;
        if let (Some(last), false) = (before.last(), args.again) {
            let text = format!(
                "`{name}` has a certificate already, {last}; `--again` issues another, and the earlier one stays \
                 valid until it expires or its fingerprint is listed in {revoked}"
            );
            return Err(Failure::usage(anyhow::anyhow!(text)));
        }
    }
    let certificate = read(&config.authority)?;
    let key = read(&config.authority.with_extension("key"))?;
    let authority = Authority::from_pem(&fl_proto::Issued {
        certificate: certificate.clone(),
        key,
    })
    .with_context(|| format!("the authority in {} cannot be used", folder.display()))?;
    let server = args
        .server
        .clone()
        .unwrap_or_else(|| reachable(config.listen).to_string());
    // Checked for all clients before the first is created.
    for client in &clients {
        expect_new(&client.folder, &FILES)?;
    }
    let mut renewed = false;
    for client in &clients {
        let before = list.fingerprints(&client.name)?;
        let (fingerprint, until) = issue(client, args.days, &authority, &certificate, &server)?;
        list.add(&client.name, &fingerprint, until)?;
        out::line(format_args!(
            "issued `{}`, valid for {} days, in {}",
            client.name,
            args.days,
            client.folder.display()
        ))?;
        out::line(format_args!("certificate {fingerprint}"))?;
        for before in &before {
            out::line(format_args!("still valid {before}"))?;
        }
        renewed |= !before.is_empty();
    }
    if renewed {
        out::line(format_args!("to revoke one of them, add it as a line to {revoked}"))?;
    }
    next(args, &clients)
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Client {
    name: ClientId,
    folder: PathBuf,
    /// The table of its task in client.toml.
    task: Option<String>,
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| {
        format!(
            "cannot read {}; was `fl-server init` run in this folder?",
            path.display()
        )
    })
}

/// The clients to create, with names and task checked.
fn clients(args: &Args) -> Result<Vec<Client>, Failure> {
    let width = args.count.map_or(0, |count| (count - 1).to_string().len().max(2));
    let mut clients = Vec::new();
    for at in 0..args.count.unwrap_or(1) {
        let name = match args.count {
            None => args.name.clone(),
            Some(_) => format!("{}-{at:0width$}", args.name),
        };
        clients.push(Client {
            name: name.parse().map_err(Failure::usage)?,
            folder: match (&args.out, args.count) {
                (None, _) => name.into(),
                (Some(out), None) => out.clone(),
                (Some(out), Some(_)) => out.join(name),
            },
            task: task(args, at)?,
        });
    }
    Ok(clients)
}

/// The table that binds a task for client number `at`.
fn task(args: &Args, at: u32) -> Result<Option<String>, Failure> {
    let (Some(task), Some(learner)) = (&args.task, &args.learner) else {
        return Ok(None);
    };
    let numbered = |text: &str| text.replace("{i}", &at.to_string());
    let table = table(task, &numbered(learner), args.data.as_deref().map(numbered).as_deref());
    table.map(Some).map_err(|why| Failure::usage(anyhow::anyhow!(why)))
}

const FILES: [&str; 4] = ["authority.pem", "client.pem", "client.key", "client.toml"];

/// Creates the folder of one client. Returns the fingerprint and the end of its certificate.
fn issue(
    client: &Client,
    days: u16,
    authority: &Authority,
    certificate: &str,
    server: &str,
) -> Result<(Fingerprint, OffsetDateTime), Failure> {
    let now = OffsetDateTime::now_utc();
    let valid = Duration::days(days.into());
    let issued = authority.issue_client(&client.name, now, valid)?;
    let fingerprint = Fingerprint::of_pem(&issued.certificate)?;
    let name = client.name.as_str();
    let mut toml = TEMPLATE.replace("SERVER", server).replace("CLIENT", name);
    if let Some(task) = &client.task {
        let example = toml.find("#[tasks.").unwrap_or(toml.len());
        toml.truncate(example);
        toml.push_str(task);
    }
    let contents = [
        (certificate, PUBLIC),
        (issued.certificate.as_str(), PUBLIC),
        (issued.key.as_str(), PRIVATE),
        (toml.as_str(), PUBLIC),
    ];
    let files: Vec<_> = FILES
        .iter()
        .zip(contents)
        .map(|(name, (text, mode))| (*name, text, mode))
        .collect();
    write_new(&client.folder, &files)?;
    Ok((fingerprint, now + valid))
}

fn next(args: &Args, clients: &[Client]) -> Outcome {
    let Some(first) = clients.first() else { return Ok(()) };
    let dir = first.folder.display();
    let config = first.folder.join("client.toml");
    let config = config.display();
    let copy = match clients {
        [_] => format!("copy {dir} to the client"),
        _ => "copy each folder to its client".to_owned(),
    };
    let bind = match args.task {
        Some(_) => String::new(),
        None => format!(", bind a task in {config}"),
    };
    out::text(format_args!(
        "next: {copy}{bind}, then there\n      fl-client check {config}\n      fl-client run {config}\n"
    ))?;
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
const TEMPLATE: &str = r##"# client.toml of CLIENT. Paths are relative to this file. `fl-client check client.toml` checks it.

# `host:port` of the server.
server = "SERVER"

# The federation's authority, and this client's own certificate and key, all PEM.
authority   = "authority.pem"
certificate = "client.pem"
key         = "client.key"

# Folder of the client's state: the residual of compression, and the update in flight.
#state = "state"

# Where to train: "auto", "cpu" or "cuda:0".
#device = "auto"

# One table for each task that this client has a model and data for; the server's run.toml names the task. Learners:
# mlp, cnn, lenet, har, resnet8, lstm, transformer and others. configs/client.toml lists every key and every kind of data.
#[tasks.mlp]
#learner = "mlp"
#data = { idx = { dir = "data/fashion-mnist", client = 0, clients = 10 } }
"##;

#[cfg(test)]
mod tests {
    use super::*;

    fn args(name: &str) -> Args {
        Args {
            name: name.to_owned(),
            out: None,
            fed: PathBuf::from("."),
            days: 1,
            again: false,
            server: None,
            count: None,
            task: None,
            learner: None,
            data: None,
        }
    }

    #[test]
    fn names_are_numbered_and_have_a_folder_each() {
        let named = |args: &Args| -> Vec<(String, PathBuf)> {
            let clients = clients(args).unwrap();
            clients
                .into_iter()
                .map(|client| (client.name.to_string(), client.folder))
                .collect()
        };
        let of = |name: &str, folder: &str| (name.to_owned(), Path::new(folder).to_owned());
        assert_eq!(named(&args("anna")), [of("anna", "anna")]);
        let mut many = args("camera");
        many.count = Some(3);
        let expected = [
            of("camera-00", "camera-00"),
            of("camera-01", "camera-01"),
            of("camera-02", "camera-02"),
        ];
        assert_eq!(named(&many), expected);
        (many.count, many.out) = (Some(101), Some(PathBuf::from("clients")));
        assert_eq!(named(&many)[7], of("camera-007", "clients/camera-007"));
        assert!(clients(&args("../anna")).is_err());
    }

    #[test]
    fn a_task_is_bound_with_the_number_of_the_client() {
        let bind = |data: &str| {
            let mut args = args("anna");
            (args.task, args.learner) = (Some("digits of all".to_owned()), Some("mlp".to_owned()));
            args.data = Some(data.to_owned());
            task(&args, 7)
        };
        let table: toml::Table = bind("{ builtin = { client = {i} } }")
            .unwrap()
            .unwrap()
            .parse()
            .unwrap();
        let task = &table["tasks"]["digits of all"];
        assert_eq!(task["learner"].as_str(), Some("mlp"));
        assert_eq!(task["data"]["builtin"]["client"].as_integer(), Some(7));
        let mut args = args("anna");
        args.task = Some("plays".to_owned());
        args.data = Some("{ builtin = {} }".to_owned());
        args.learner = Some("{ name = \"lstm\", layers = 3 }".to_owned());
        let table: toml::Table = super::task(&args, 7).unwrap().unwrap().parse().unwrap();
        assert_eq!(table["tasks"]["plays"]["learner"]["layers"].as_integer(), Some(3));
        args.learner = Some("{ name = ".to_owned());
        assert!(
            super::task(&args, 7)
                .unwrap_err()
                .error()
                .to_string()
                .contains("--learner")
        );
        args.learner = Some("{ command = ['python3', 'train.py', '{i}'] }".to_owned());
        args.data = None;
        let table: toml::Table = super::task(&args, 7).unwrap().unwrap().parse().unwrap();
        assert_eq!(table["tasks"]["plays"]["learner"]["command"][2].as_str(), Some("7"));
        for wrong in ["{ builtin = ", "7", "{}\nlearner = \"cnn\""] {
            let failure = bind(wrong).unwrap_err();
            assert!(matches!(failure, Failure::Usage(_)), "{wrong}");
            assert!(failure.error().to_string().contains("--data"), "{wrong}");
        }
    }
}
