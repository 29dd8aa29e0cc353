//! Enrollment: makes this device's key, has the server sign it, and writes the folder of a client.
//!
//! Every step can be repeated: the key is on disk before it is sent, the server answers the same key with the same certificate,
//! and the certificate is written last.

mod call;
mod folder;
mod signed;

use std::time::Duration;

use fl_proto::{ClientId, Enrolled, EnrollmentLine, approval_words};

use crate::error::Error;
pub(crate) use folder::ClientFolder;
pub(crate) use signed::{Enrollment, checked};

/// What a person is told meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The operator must approve: the six words of this device.
    Held(String),
    /// The connection broke; it is tried again after so long.
    Again(String, Duration),
}

/// Attempts in all, and the delay after the first one; it doubles.
const ATTEMPTS: u32 = 5;
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// Enrolls this device with `line` into `folder`. `name`: the name to ask for, if the line allows several. `settings`: the text of
/// client.toml for a server at `host:port`, written if the folder has none.
pub(crate) async fn enroll(
    line: &EnrollmentLine,
    folder: &ClientFolder,
    name: Option<&ClientId>,
    settings: impl Fn(&str) -> String,
    progress: impl Fn(Progress),
) -> Result<Enrollment, Error> {
    folder.create()?;
    let key = folder.key()?;
    let words = approval_words(&key.key(), &line.authority);
    let mut told = false;
    let mut failed = 0;
    loop {
        let answer = match call::enroll(line, &key, name).await {
            Err(Error::Broken(why)) if failed + 1 < ATTEMPTS => {
                let delay = FIRST_DELAY * 2u32.pow(failed);
                failed += 1;
                progress(Progress::Again(why, delay));
                tokio::time::sleep(delay).await;
                continue;
            }
            Err(Error::Broken(why)) => {
                let text = format!("{why}; type the same command again, the line is not used up");
                return Err(Error::Broken(text));
            }
            answer => answer?,
        };
        match answer {
            Enrolled::Issued { certificate, server } => {
                let done = checked(&certificate, &key, line.authority)?;
                let server = address(&server, &line.address);
                folder.write(&certificate, &settings(&server))?;
                return Ok(done);
            }
            Enrolled::Held { words: theirs, retry } => {
                if theirs != words {
                    return Err(Error::Protocol(format!(
                        "the server shows other words ({theirs}) than this device ({words}): do not approve this device"
                    )));
                }
                if !std::mem::replace(&mut told, true) {
                    progress(Progress::Held(words.clone()));
                }
                tokio::time::sleep(retry.max(Duration::from_millis(100))).await;
            }
        }
    }
}

/// The server's address, which may name only its port: the host is then that of the enrollment line.
fn address(server: &str, enrolled_at: &str) -> String {
    match (server.strip_prefix(':'), enrolled_at.rsplit_once(':')) {
        (Some(port), Some((host, _))) => format!("{host}:{port}"),
        _ => server.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_host_is_where_the_device_enrolled() {
        assert_eq!(address(":7070", "192.168.1.5:7072"), "192.168.1.5:7070");
        assert_eq!(address(":7070", "[2001:db8::1]:7072"), "[2001:db8::1]:7070");
        assert_eq!(address("fl.example.org:443", "192.168.1.5:7072"), "fl.example.org:443");
    }
}
