//! `fl-server verify --report FILE`: whether a signed report is what a server signed. Needs no federation and no network.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use fl_report::signed::{Verified, verify};
use time::OffsetDateTime;

use super::{CORRUPT, Failure, Outcome, USAGE, out};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A report that `fl-server report --sign` wrote.
    #[arg(long)]
    report: PathBuf,
    /// The authority.pem of the federation. Without it, that in the report is taken, which proves integrity and not who
    /// signed.
    #[arg(long)]
    authority: Option<PathBuf>,
}

/// Bytes that a signed report may have: some three million lines.
const MAX_BYTES: u64 = 2 << 30;
/// Bytes that a certificate's file may have.
const MAX_PEM: u64 = 1 << 20;

pub(super) fn run(args: &Args) -> Outcome {
    let name = args.report.display();
    let authority = args.authority.as_deref().map(|path| {
        let bytes = read(path, MAX_PEM)?;
        String::from_utf8(bytes).map_err(|_| Failure::usage(anyhow!("{} is not a certificate in PEM", path.display())))
    });
    let authority = authority.transpose()?;
    let file = read(&args.report, MAX_BYTES)?;
    let now = OffsetDateTime::now_utc().unix_timestamp();
    let verified = verify(&file, authority.as_deref(), now).map_err(|error| Failure {
        code: if error.is_corruption() { CORRUPT } else { USAGE },
        error: anyhow::Error::from(error).context(name.to_string()),
    })?;
    out::text(format_args!("{name}: {}", text(&verified)))?;
    let differences = &verified.differences;
    if differences.is_empty() {
        return Ok(());
    }
    let count = differences.found.len() + differences.more;
    Err(Failure {
        code: CORRUPT,
        error: anyhow!("{name}: it is what was signed, and {count} of its figures do not agree with others"),
    })
}

fn read(path: &Path, max: u64) -> Result<Vec<u8>, Failure> {
    let read = || {
        ensure!(path.is_file(), "it is not a file");
        let mut bytes = Vec::new();
        File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
        ensure!(bytes.len() as u64 <= max, "it is larger than {max} bytes");
        Ok(bytes)
    };
    read()
        .with_context(|| format!("cannot read {}", path.display()))
        .map_err(Failure::usage)
}

fn text(verified: &Verified) -> String {
    let Verified {
        run,
        state,
        lines,
        chain,
        signer,
        fingerprint,
        authority,
        authority_fingerprint,
        trusted,
        warnings,
        differences,
    } = verified;
    let (run, state, chain) = (run.escape_debug(), state.escape_debug(), chain.escape_debug());
    let whose = if *trusted {
        "issued by the one given"
    } else {
        "from the file itself"
    };
    let mut out = format!("intact, {lines} lines signed by `{signer}`\n");
    let _ = writeln!(out, "  run          `{run}`, {state}");
    let _ = writeln!(out, "  chain        {chain}");
    let _ = writeln!(out, "  certificate  SHA-256 {fingerprint}");
    let _ = writeln!(
        out,
        "  authority    `{authority}`, {whose}, SHA-256 {authority_fingerprint}"
    );
    if !trusted {
        out.push_str(
            "  note: this proves that nothing was changed since it was signed, and not who signed it; for that give \
             the federation's own authority.pem with --authority\n",
        );
    }
    for warning in warnings {
        let _ = writeln!(out, "  warning: {warning}");
    }
    if differences.is_empty() {
        out.push_str("  figures      agree with each other\n");
    }
    for difference in &differences.found {
        let _ = writeln!(out, "  difference: {difference}");
    }
    if differences.more > 0 {
        let _ = writeln!(out, "  and {} more differences", differences.more);
    }
    out
}
