//! Certificates and keys of a server.

use std::path::PathBuf;

use fl_cli::findings::Line;
use fl_cli::folder::private;
use fl_proto::Lifetime;
use time::OffsetDateTime;

use crate::cli::source::{self, Certificates};
use crate::config::server::ServerConfig;
use crate::identity::{Kind, Ownership, advice, ends_soon};

/// The certificates and keys that do not exist yet.
pub(super) fn missing(config: &ServerConfig) -> Vec<PathBuf> {
    let files = [&config.authority, &config.certificate, &config.key];
    files.into_iter().filter(|path| !path.exists()).cloned().collect()
}

/// Whether the certificates can be used together, and how long.
pub(super) fn certificates(config: &ServerConfig) -> Vec<Line> {
    let missing = missing(config);
    let is_pair = missing.len() == 2 && !missing.contains(&config.authority);
    let is_made = is_pair && Ownership::of(&config.authority_key) == Ownership::Server;
    let mut lines: Vec<Line> = missing
        .iter()
        .map(|path| {
            let todo = match is_made {
                true => "the server makes certificate and key when it starts",
                false => "`fl-server init` writes it; restore it if there was one",
            };
            Line::warning("certificates", format!("{} is not there yet", path.display()), todo)
        })
        .collect();
    if missing.is_empty() {
        lines.push(match source::certificates(config) {
            Err(failure) => Line::failed("certificates", fl_cli::exit::chain(failure.error())),
            Ok(Certificates { authority, own }) => {
                let who = Ownership::of(&config.authority_key);
                lifetimes(&authority, &own.certificate, who, OffsetDateTime::now_utc())
            }
        });
    }
    if let Some(address) = config.admin
        && let Err(failure) = source::page(config, address)
    {
        lines.push(Line::failed("admin", fl_cli::exit::chain(failure.error())));
    }
    lines
}

/// A line about the certificate that needs attention first.
fn lifetimes(authority: &str, own: &str, who: Ownership, now: OffsetDateTime) -> Line {
    const CHECK: &str = "certificates";
    let (Ok(root), Ok(own)) = (Lifetime::of_pem(authority), Lifetime::of_pem(own)) else {
        return Line::failed(CHECK, "their lifetimes cannot be read");
    };
    let rotate =
        "`fl-server authority rotate`, and `fl-server authority finish` when all clients have renewed, make new ones";
    let ends = root.expires.date();
    if root.expires <= now {
        return Line::wrong(CHECK, format!("the authority's expired on {ends}"), rotate);
    }
    // A server that is started renews its certificate first.
    if let Some((text, todo, refused)) = advice(&own, now, who) {
        return match refused && who == Ownership::Person {
            true => Line::wrong(CHECK, text, todo),
            false => Line::warning(CHECK, text, todo),
        };
    }
    if ends_soon(Kind::Authority, &root, now) {
        return Line::warning(CHECK, format!("the authority's expires on {ends}"), rotate);
    }
    let renews = match who {
        Ownership::Server => "the server renews its own by itself",
        Ownership::Person => "the authority's key is not here, so the server's is renewed by hand",
    };
    let until = own.expires.date();
    Line::good(
        CHECK,
        format!(
            "belong together; the server's is valid until {until}, and {renews} from {} on",
            own.renewal().date()
        ),
    )
}

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
    use time::Duration;

    use super::*;

    #[test]
    fn the_certificate_that_needs_attention_first_is_named() {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let (authority, root) = Authority::create("fed", now, Duration::days(200)).unwrap();
        let own = |at: i64, days| {
            let at = now + Duration::days(at);
            let own = authority.issue_server(at, Duration::days(days)).unwrap();
            own.certificate.clone()
        };
        for (from, day, who, level, text) in [
            (
                0,
                0,
                Ownership::Server,
                Level::Good,
                "until 2027-04-15, and the server renews its own by itself from 2027-03-16 on",
            ),
            (
                0,
                0,
                Ownership::Person,
                Level::Good,
                "renewed by hand from 2027-03-16 on",
            ),
            (
                0,
                60,
                Ownership::Person,
                Level::Warning,
                "is to be renewed since 2027-03-16",
            ),
            (0, 91, Ownership::Server, Level::Warning, "expired on 2027-04-15"),
            (0, 91, Ownership::Person, Level::Wrong, "expired on 2027-04-15"),
            (
                130,
                145,
                Ownership::Server,
                Level::Warning,
                "the authority's expires on 2027-08-03",
            ),
            (
                130,
                201,
                Ownership::Server,
                Level::Wrong,
                "the authority's expired on 2027-08-03",
            ),
        ] {
            let line = lifetimes(&root.certificate, &own(from, 90), who, now + Duration::days(day));
            assert!(line.level == level && line.text.contains(text), "{line:?}");
        }
        let line = lifetimes(&root.certificate, &own(0, 3650), Ownership::Server, now);
        assert!(
            line.level == Level::Warning && line.text.contains("3650 days"),
            "{line:?}"
        );
    }
}
