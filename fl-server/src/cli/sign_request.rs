//! `fl-server sign REQUEST --name NAME`: signs the request of a device that cannot reach the enrollment port.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use fl_cli::out;
use fl_proto::{ClientId, Fingerprint, Role, SigningRequest, certificate_pem};
use time::{Duration, OffsetDateTime};

use crate::cli::failure::{Failure, Outcome};
use crate::cli::init::write_new;
use crate::cli::issued::IssuedList;
use crate::cli::source;
use crate::clock;
use crate::identity::PUBLIC;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The request that `fl-client request` wrote on the device.
    request: PathBuf,
    /// The client's name: letters, digits, `-`, `_` and `.`.
    #[arg(long)]
    name: ClientId,
    /// The federation's folder with the authority's key, or its server.toml.
    #[arg(long, default_value = ".")]
    fed: PathBuf,
    /// Days that the certificate is valid; default: `certificate_days` in server.toml.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: Option<u16>,
    /// client: trains and evaluates; evaluator: only evaluates; operator: takes no part in runs.
    #[arg(long, default_value_t = Role::Client)]
    role: Role,
    /// Sign another certificate for a client that has one. The earlier one stays valid until it expires or is revoked.
    #[arg(long)]
    again: bool,
    /// File to write: the certificate and the authorities, PEM. It must not exist yet; default: NAME.pem.
    #[arg(short, long)]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let (folder, config) = source::federation(&args.fed)?;
    let text = source::text(&args.request)?;
    let request = SigningRequest::from_pem(&text)
        .with_context(|| args.request.display().to_string())
        .map_err(Failure::usage)?;
    let list = IssuedList::of(&folder);
    if let (Some(last), false) = (list.fingerprints(&args.name)?.last(), args.again) {
        return Err(Failure::usage(anyhow!(
            "`{}` has a certificate already, {last}; `--again` signs another, and the earlier one stays valid until it expires or is \
             revoked",
            args.name
        )));
    }
    let signer = source::signer(&config);
    let days = args.days.unwrap_or(config.certificate_days);
    let now = clock::system();
    let lifetime = u64::from(days) * 24 * 3_600_000;
    let signed = signer.sign(&request, &args.name, args.role, now, lifetime)?;
    let mut pem = certificate_pem(&signed.certificate.certificate);
    pem.extend(signed.certificate.authorities.iter().map(|der| certificate_pem(der)));
    let output = args
        .output
        .clone()
        .unwrap_or_else(|| format!("{}.pem", args.name).into());
    let name = output.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Failure::usage(anyhow!("{} is not a file name", output.display())))?;
    write_new(output.parent().unwrap_or_else(|| "".as_ref()), &[(name, &pem, PUBLIC)])?;
    let fingerprint = Fingerprint::of(&signed.certificate.certificate);
    list.add(
        &args.name,
        &fingerprint,
        OffsetDateTime::now_utc() + Duration::days(days.into()),
    )?;
    let output = output.display();
    out::line(format_args!(
        "signed `{}`, valid for {days} days, in {output}",
        args.name
    ))?;
    out::line(format_args!("certificate {fingerprint}"))?;
    out::note(format_args!(
        "next: carry {output} to the device, then there\n      fl-client install {output} --server HOST:PORT"
    ));
    Ok(())
}
