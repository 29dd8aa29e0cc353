//! Certificates and keys of a server.

use std::path::PathBuf;

use fl_cli::findings::Line;
use fl_cli::folder::private;
use fl_proto::expiry;
use time::{Duration, OffsetDateTime};

use crate::cli::source;
use crate::config::server::ServerConfig;

/// Certificates that expire within this time are worth a warning: a rotation takes as long as clients take to renew.
const SOON: Duration = Duration::days(60);

/// The certificates and keys that do not exist yet.
pub(super) fn missing(config: &ServerConfig) -> Vec<PathBuf> {
    let files = [&config.authority, &config.certificate, &config.key];
    files.into_iter().filter(|path| !path.exists()).cloned().collect()
}

/// Whether the certificates can be used together, and how long.
pub(super) fn certificates(config: &ServerConfig) -> Vec<Line> {
    let missing = missing(config);
    let mut lines: Vec<Line> = missing
        .iter()
        .map(|path| {
            let todo = "`fl-server init` writes it; restore it if there was one";
            Line::warning("certificates", format!("{} is not there yet", path.display()), todo)
        })
        .collect();
    if missing.is_empty() {
        lines.push(match source::certificates(config) {
            Err(failure) => Line::failed("certificates", format!("{:#}", failure.error())),
            Ok((authority, own)) => {
                let certificates = [("authority's", authority), ("server's", own.certificate.clone())];
                lifetimes(&certificates, OffsetDateTime::now_utc())
            }
        });
    }
    if let Some(address) = config.admin
        && let Err(failure) = source::page(config, address)
    {
        lines.push(Line::failed("admin", format!("{:#}", failure.error())));
    }
    lines
}

/// A line about the certificate that expires first.
fn lifetimes(certificates: &[(&str, String)], now: OffsetDateTime) -> Line {
    const CHECK: &str = "certificates";
    let ends = certificates
        .iter()
        .filter_map(|(whose, pem)| Some((expiry(pem).ok()?, *whose)));
    let Some((ends, whose)) = ends.min() else {
        return Line::failed(CHECK, "their lifetimes cannot be read");
    };
    let renew =
        "`fl-server authority rotate`, and `fl-server authority finish` when all clients have renewed, make new ones";
    match ends - now {
        left if left.is_negative() => Line::wrong(CHECK, format!("the {whose} expired on {}", ends.date()), renew),
        left if left < SOON => Line::warning(CHECK, format!("the {whose} expires on {}", ends.date()), renew),
        _ => Line::good(
            CHECK,
            format!("belong together; the {whose} expires first, on {}", ends.date()),
        ),
    }
}

/// Whether the keys are for their owner only.
pub(super) fn keys(config: &ServerConfig) -> Vec<Line> {
    let mut keys = vec![("key", &config.key), ("authority_key", &config.authority_key)];
    if config.admin.is_some_and(|address| !address.ip().is_loopback()) {
        keys.extend([("admin_key", &config.admin_key), ("admin_token", &config.admin_token)]);
    }
    keys.dedup_by(|(_, a), (_, b)| a == b);
    // Those that must exist are reported with the certificates; the authority's key may be elsewhere.
    let existing = keys.into_iter().filter(|(_, path)| path.exists());
    existing.map(|(name, path)| private(name, path)).collect()
}

#[cfg(test)]
mod tests {
    use fl_cli::findings::Level;
    use fl_proto::Authority;

    use super::*;

    #[test]
    fn the_certificate_that_expires_first_is_named() {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let (authority, root) = Authority::create("fed", now, Duration::days(1000)).unwrap();
        let own = authority.issue_server(now, Duration::days(100)).unwrap();
        let both = [
            ("authority's", root.certificate.clone()),
            ("server's", own.certificate.clone()),
        ];
        for (days, level, text) in [
            (0, Level::Good, "the server's expires first, on 2027-04-25"),
            (71, Level::Warning, "the server's expires on 2027-04-25"),
            (101, Level::Wrong, "the server's expired on 2027-04-25"),
        ] {
            let line = lifetimes(&both, now + Duration::days(days));
            assert!(line.level == level && line.text.contains(text), "{line:?}");
        }
    }
}
