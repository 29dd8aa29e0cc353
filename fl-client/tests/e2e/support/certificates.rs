//! The certificates of a federation, generated per test.

use std::sync::Arc;

use fl_proto::{Authority, ClientId, Issued};
use time::{Duration, OffsetDateTime};

#[derive(Clone)]
pub struct Certificates {
    authority_key: Arc<Authority>,
    pub authority: Issued,
    pub server: Issued,
    pub client: Issued,
}

impl Certificates {
    pub fn new(federation: &str) -> Self {
        let now = OffsetDateTime::now_utc();
        let (authority_key, authority) = Authority::create(federation, now, Duration::days(30)).unwrap();
        let server = authority_key.issue_server(now, Duration::days(10)).unwrap();
        let client = authority_key.issue_client(&name(), now, Duration::days(10)).unwrap();
        Self {
            authority_key: Arc::new(authority_key),
            authority,
            server,
            client,
        }
    }

    /// The client's name.
    pub fn name(&self) -> ClientId {
        name()
    }

    /// A certificate of another client.
    pub fn client_of(&self, name: &str) -> Issued {
        let now = OffsetDateTime::now_utc();
        let name = name.parse().unwrap();
        self.authority_key.issue_client(&name, now, Duration::days(10)).unwrap()
    }

    /// A server certificate for two days, the first of which is this many days from now.
    pub fn server_of(&self, day: i64) -> Issued {
        let begin = OffsetDateTime::now_utc() + Duration::days(day);
        self.authority_key.issue_server(begin, Duration::days(2)).unwrap()
    }

    /// A client certificate that expired yesterday.
    pub fn expired_client(&self) -> Issued {
        let past = OffsetDateTime::now_utc() - Duration::days(5);
        self.authority_key
            .issue_client(&name(), past, Duration::days(4))
            .unwrap()
    }
}

fn name() -> ClientId {
    "alpha".parse().unwrap()
}
