//! The client's certificate and key: valid, for nobody else to read, and in a folder where a renewal can write.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fl_cli::findings::Line;
use fl_cli::folder::{after, private, try_write};
use fl_proto::{Role, certificates_of, peer_lifetime, peer_name};
use time::{Duration, OffsetDateTime};

use super::subject::Subject;
use crate::config::ClientConfig;
use crate::identity::{IdentityFiles, own_fault};

pub(super) fn lines(subject: &Subject<'_>) -> Vec<Line> {
    let config = &subject.file.config;
    let mut lines = vec![certificate(config, subject.now)];
    if let Some(files) = &config.identity {
        lines.push(private("key", &files.key));
        lines.push(renewal(files));
    }
    lines
}

fn certificate(config: &ClientConfig, now: OffsetDateTime) -> Line {
    const CHECK: &str = "certificate";
    if let Err(error) = crate::check_certificates(config) {
        return Line::failed(CHECK, error.to_string());
    }
    let der = certificates_of(&config.own.certificate).unwrap_or_default();
    let own = der
        .first()
        .and_then(|der| Some((peer_name(der).ok()?, peer_lifetime(der).ok()?)));
    let Some((name, (issued, expires))) = own else {
        return Line::wrong(
            CHECK,
            "it names no client",
            "`certificate` is the client.pem of this device: enroll it again (`fl-client enroll LINE --again`)",
        );
    };
    if now < issued - Duration::DAY {
        let text = format!(
            "this device's clock says {}, and the certificate was issued on {}",
            now.date(),
            issued.date()
        );
        return Line::wrong(CHECK, text, "set the clock (`timedatectl set-ntp true`)");
    }
    if let Some(fault) = own_fault(&config.own, &config.authority, now) {
        return match expires < now {
            true => Line::wrong(
                CHECK,
                format!(
                    "this device's clock says {}, and the certificate expired on {}",
                    now.date(),
                    expires.date()
                ),
                format!("if the date is wrong, set the clock (`timedatectl set-ntp true`). If it is right: {fault}"),
            ),
            false => Line::failed(CHECK, fault),
        };
    }
    if let Err(error) = fl_proto::client_tls(&config.authority, &config.own) {
        return Line::wrong(
            CHECK,
            format!("`certificate` and `key`: {error}"),
            "both must be of the same enrollment: restore the one that was replaced, or enroll this device again",
        );
    }
    let due: OffsetDateTime = issued + (expires - issued) * 2 / 3;
    if config.role() == Role::Operator {
        let valid = format!("of operator `{name}`, good until {}", expires.date());
        let again = "ask for a line (`fl-server enroll NAME --role operator --again`), then type `fl-client enroll LINE --again`";
        return match now > due {
            true => Line::warning(CHECK, format!("{valid}; nothing renews it"), again),
            false => Line::good(
                CHECK,
                format!("{valid}; nothing renews it: the operator enrolls again before"),
            ),
        };
    }
    let valid = format!("of client `{name}`, good until {}", expires.date());
    match now > due + Duration::DAY {
        true => Line::warning(
            CHECK,
            format!("{valid}; it should have been renewed on {}", due.date()),
            "start the client (`fl-client run`), which renews it, and look at its log",
        ),
        false => Line::good(CHECK, format!("{valid}; the client renews it from {} on", due.date())),
    }
}

/// Whether a renewal could write beside the files.
fn renewal(files: &IdentityFiles) -> Line {
    for file in [&files.certificate, &files.key] {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let shown = folder.display();
        if let Err(error) = try_write(folder) {
            return Line::warning(
                "renewal",
                format!("nothing can be written in {shown}: {error}; the certificate cannot be renewed there"),
                after(
                    folder,
                    &error,
                    format!("the user that runs the client must own {shown}, on a disk that can be written"),
                ),
            );
        }
        let mode = folder.metadata().map_or(0, |about| about.permissions().mode());
        if mode & 0o002 != 0 && mode & 0o1000 == 0 {
            return Line::warning(
                "renewal",
                format!(
                    "{shown} has mode {:04o}: every user may replace the certificate and the key",
                    mode & 0o777
                ),
                format!("chmod 700 {shown}"),
            );
        }
    }
    Line::good("renewal", "a new certificate and key can be written")
}

#[cfg(test)]
mod tests {
    use fl_cli::findings::Level;
    use fl_proto::{Authority, Issued, NewKey, SigningRequest, certificate_pem};

    use super::*;

    fn begin() -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap()
    }

    #[test]
    fn a_certificate_is_judged_by_the_given_clock() {
        let (authority, root) = Authority::create("fed", begin(), Duration::days(9999)).unwrap();
        let own = authority.issue_client(&"anna".parse().unwrap(), begin(), Duration::days(30));
        let config = ClientConfig::new("a:1", root.certificate.clone(), own.unwrap(), "state");
        let at = |days: i64| certificate(&config, begin() + Duration::days(days));
        for (days, level, part) in [
            (
                0,
                Level::Good,
                "of client `anna`, good until 2027-02-14; the client renews it from 2027-02-04 on",
            ),
            (20, Level::Good, "renews it from"),
            (22, Level::Warning, "should have been renewed on 2027-02-04"),
            (31, Level::Wrong, "expired on 2027-02-14"),
            (
                -3653,
                Level::Wrong,
                "clock says 2017-01-14, and the certificate was issued on 2027-01-15",
            ),
        ] {
            let line = at(days);
            assert!(line.level == level && line.text.contains(part), "{days}: {line:?}");
        }
        let other = Authority::create("other", begin(), Duration::days(99)).unwrap().1;
        let config = ClientConfig {
            authority: other.certificate.clone(),
            ..config
        };
        let line = certificate(&config, begin());
        assert!(
            line.level == Level::Wrong && line.text.contains("is of `CN=fed"),
            "{line:?}"
        );
    }

    #[test]
    fn an_operators_certificate_is_renewed_by_nobody() {
        let (authority, root) = Authority::create("fed", begin(), Duration::days(9999)).unwrap();
        let key = NewKey::generate().unwrap();
        let request = SigningRequest::from_der(&key.request(None).unwrap()).unwrap();
        let name = "olga".parse().unwrap();
        let signed = authority.sign(&request, &name, Role::Operator, begin(), Duration::days(30));
        let own = Issued {
            certificate: certificate_pem(&signed.unwrap()),
            key: key.to_pem(),
        };
        let config = ClientConfig::new("a:1", root.certificate.clone(), own, "state");
        for (days, level) in [(0, Level::Good), (19, Level::Good), (21, Level::Warning)] {
            let line = certificate(&config, begin() + Duration::days(days));
            assert!(
                line.level == level
                    && line
                        .text
                        .starts_with("of operator `olga`, good until 2027-02-14; nothing renews it"),
                "{days}: {line:?}"
            );
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_or_that_everybody_may_write_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let files = |folder: &Path| {
            let [a, b, c] = ["authority.pem", "client.pem", "client.key"].map(|name| folder.join(name));
            IdentityFiles::new(a, b, c)
        };
        assert_eq!(renewal(&files(folder.path())).level, Level::Good);
        let line = renewal(&files(Path::new("/proc/self")));
        assert!(
            line.level == Level::Warning && line.text.contains("cannot be renewed there"),
            "{line:?}"
        );
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(renewal(&files(folder.path())).level, Level::Warning);
    }
}
