//! `fl-server init DIR`: creates a federation.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use fl_cli::out;
use fl_compress::Digest;
use fl_proto::Authority;
use time::{Duration, OffsetDateTime};

use crate::cli::failure::{Failure, Outcome};
use crate::config::server::ServerConfig;
use crate::identity::{LIFETIME_DAYS, PRIVATE, PUBLIC};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Folder of the federation; created if it is missing.
    dir: PathBuf,
    /// Name of the federation; default: the folder's name.
    #[arg(long)]
    name: Option<String>,
    /// Address and port to listen on.
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// Address and port of the page of the run, or `off`.
    #[arg(long)]
    admin: Option<String>,
    /// Folder of the store, if not `data` in the federation's folder.
    #[arg(long)]
    data: Option<String>,
    /// Folder of the server's certificate and key, if not the federation's: one where the server can write. It makes them there when
    /// it starts, and renews them.
    #[arg(long, value_name = "DIR")]
    identity: Option<String>,
    /// Keep every client's update, for complete audits by `verify` and for `report --what-if`.
    #[arg(long)]
    audit: bool,
}

/// Validity of the authority: longer than the life of a device.
pub(super) const AUTHORITY_DAYS: i64 = 3650;
/// Port at which devices enroll, on the address that the server listens on.
const ENROLL_PORT: u16 = 7072;
/// The commented configuration, every key at its default.
const TEMPLATE: &str = include_str!("../../../configs/server.toml");

pub(super) fn run(args: &Args) -> Outcome {
    let folder_name = args.dir.file_name().and_then(|name| name.to_str());
    let name = args.name.as_deref().or(folder_name).unwrap_or("federation");
    let mut config = TEMPLATE.to_owned();
    if let Some(listen) = args.listen {
        let enroll = SocketAddr::new(listen.ip(), ENROLL_PORT);
        config = config
            .replace("#listen = \"127.0.0.1:7070\"", &format!("listen = \"{listen}\""))
            .replace("#enroll = \"127.0.0.1:7072\"", &format!("enroll = \"{enroll}\""));
    }
    if let Some(admin) = &args.admin {
        config = config.replace("#admin = \"127.0.0.1:7071\"", &format!("admin = {admin:?}"));
    }
    if let Some(data) = &args.data {
        config = config.replace("#data = \"data\"", &format!("data = {data:?}"));
    }
    if let Some(identity) = &args.identity {
        let folder = identity.trim_end_matches('/');
        for (name, file) in [
            ("certificate", "server.pem"),
            ("key", "server.key"),
            ("admin_certificate", "server.pem"),
            ("admin_key", "server.key"),
        ] {
            let path = format!("{folder}/{file}");
            config = config.replace(&format!("#{name} = \"{file}\""), &format!("{name} = {path:?}"));
        }
    }
    if args.audit {
        config = config.replace("#keep_updates = false", "keep_updates = true");
    }
    ServerConfig::from_toml(&config, &args.dir).map_err(Failure::usage)?;
    let mut token = [0; 32];
    getrandom::fill(&mut token).map_err(|e| anyhow::anyhow!("the system has no random bytes: {e}"))?;
    let token = format!("{}\n", Digest(token));

    let now = OffsetDateTime::now_utc();
    let (authority, root) = Authority::create(name, now, Duration::days(AUTHORITY_DAYS))?;
    let server = authority.issue_server(now, Duration::days(LIFETIME_DAYS.into()))?;
    let mut files = vec![
        ("authority.pem", root.certificate.as_str(), PUBLIC),
        ("authority.key", &root.key, PRIVATE),
        ("admin.token", &token, PRIVATE),
        ("server.toml", &config, PUBLIC),
    ];
    if args.identity.is_none() {
        files.extend([
            ("server.pem", server.certificate.as_str(), PUBLIC),
            ("server.key", &server.key, PRIVATE),
        ]);
    }
    write_new(&args.dir, &files)?;
    let dir = args.dir.display();
    let server = args.dir.join("server.toml");
    out::text(format_args!(
        "created federation `{name}` in {dir}\n  \
         authority.key signs every certificate: keep it safe. Beside the server it renews the server's certificate, valid for\n  \
         {LIFETIME_DAYS} days, and those of clients; elsewhere you renew them by hand (`fl-server authority renew`)\n\
         next: fl-server enroll NAME --fed {dir}                 # a line to type on each device\n      \
         fl-client init --learner NAME -o init.safetensors   # first weights: mlp, cnn, resnet8, ..\n      \
         fl-server new NAME --task TASK -o run.toml          # the experiment\n      \
         fl-server check run.toml\n      \
         fl-server serve {} --run run.toml\n",
        server.display()
    ))?;
    Ok(())
}

/// Refuses a folder that has a file with one of these names.
pub(super) fn expect_new(dir: &Path, names: &[&str]) -> Outcome {
    for name in names {
        let path = dir.join(name);
        if path.symlink_metadata().is_ok() {
            let text = format!(
                "{} exists already and is never overwritten; remove it, or choose another folder",
                path.display()
            );
            return Err(anyhow::anyhow!(text).into());
        }
    }
    Ok(())
}

/// Writes files (name, content, mode) into `dir`. Nothing is written if one of them exists.
pub(super) fn write_new(dir: &Path, files: &[(&str, &str, u32)]) -> Outcome {
    use std::io::Write;
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};

    let names: Vec<&str> = files.iter().map(|(name, _, _)| *name).collect();
    expect_new(dir, &names)?;
    let dir = if dir.as_os_str().is_empty() {
        Path::new(".")
    } else {
        dir
    };
    // Whatever the umask: nobody else may replace what is in it.
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(dir);
    made.with_context(|| format!("cannot create folder {}", dir.display()))?;
    for (name, content, mode) in files {
        let path = dir.join(name);
        let open = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(*mode)
            .open(&path);
        open.and_then(|mut file| file.write_all(content.as_bytes()).and_then(|()| file.sync_all()))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let synced = std::fs::File::open(dir).and_then(|dir| dir.sync_all());
    Ok(synced.with_context(|| format!("cannot write {}", dir.display()))?)
}
