//! Signs a report with the server's key, for `report --sign`.

use anyhow::Context;
use fl_report::Report;
use fl_report::signed::{Signer, write};

use crate::cli::failure::Failure;
use crate::cli::source::{self, Certificates};
use crate::config::server::ServerConfig;

/// The signed report, by the key and certificates that `config` names.
pub(super) fn signed(config: &ServerConfig, report: &Report) -> Result<String, Failure> {
    let Certificates { authority, own } = source::certificates(config)?;
    let signer = Signer::from_pem(&authority, &own.certificate, &own.key).with_context(|| {
        format!(
            "{} and {} cannot sign a report",
            config.certificate.display(),
            config.key.display()
        )
    });
    let signer = signer.map_err(Failure::usage)?;
    Ok(write(report, &signer)?)
}
