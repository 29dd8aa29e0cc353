//! Who may look at the admin address. On a loopback address everyone on this machine may, and pages of other sites that a
//! browser shows may not; anywhere else only who shows the token.

use axum::http::{HeaderMap, header};

/// Tells the session's hash from others of the token.
const SESSION: &str = "fl-server 2026 admin session";
/// Name of the session's cookie.
const COOKIE: &str = "fl_session";
/// Seconds that a session lasts.
const LASTS: u32 = 24 * 3600;
/// Least characters of a token.
pub(crate) const LEAST: usize = 32;

/// What lets a request in.
#[derive(Debug, Clone)]
pub(crate) enum AuthGuard {
    /// The request names this machine itself.
    Loopback,
    /// The request shows the token, or the cookie that was given for it.
    Token {
        /// BLAKE3 of the token.
        token: blake3::Hash,
        /// What the cookie holds.
        session: blake3::Hash,
    },
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It is answered.
    Allowed,
    /// Whoever asks must show the token first.
    Login,
    /// It was sent to another name than this machine's.
    Foreign,
}

impl AuthGuard {
    /// A gate that asks for `token`.
    pub(crate) fn with_token(token: &str) -> Self {
        Self::Token {
            token: blake3::hash(token.as_bytes()),
            session: blake3::Hash::from(blake3::derive_key(SESSION, token.as_bytes())),
        }
    }

    /// Whether a request with these headers is let in.
    pub(crate) fn entry(&self, headers: &HeaderMap) -> Entry {
        let text = |name| {
            headers
                .get(name)
                .and_then(|value: &header::HeaderValue| value.to_str().ok())
        };
        match self {
            Self::Loopback => {
                let named_once = headers.get_all(header::HOST).iter().count() == 1;
                if named_once && text(header::HOST).is_some_and(is_loopback) {
                    Entry::Allowed
                } else {
                    Entry::Foreign
                }
            }
            Self::Token { session, .. } => {
                let bearer = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
                let mut cookies = text(header::COOKIE).unwrap_or_default().split("; ");
                let cookie = cookies.find_map(|cookie| cookie.strip_prefix(COOKIE)?.strip_prefix('='));
                // Hashes are compared in constant time.
                let shown = cookie.and_then(|cookie| blake3::Hash::from_hex(cookie).ok());
                if bearer.is_some_and(|token| self.is_token(token)) || shown.is_some_and(|shown| shown == *session) {
                    Entry::Allowed
                } else {
                    Entry::Login
                }
            }
        }
    }

    /// Whether this is the token.
    pub(crate) fn is_token(&self, shown: &str) -> bool {
        match self {
            Self::Loopback => false,
            Self::Token { token, .. } => blake3::hash(shown.trim().as_bytes()) == *token,
        }
    }

    /// The cookie of who has shown the token.
    pub(crate) fn cookie(&self) -> Option<String> {
        match self {
            Self::Loopback => None,
            Self::Token { session, .. } => Some(format!(
                "{COOKIE}={}; Path=/; Max-Age={LASTS}; HttpOnly; Secure; SameSite=Strict",
                session.to_hex()
            )),
        }
    }
}

/// Whether a `Host` header names this machine as only this machine can.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn a_loopback_address_answers_only_to_its_own_names() {
        let entry = |host| AuthGuard::Loopback.entry(&headers(&[("host", host)]));
        for host in ["localhost:7071", "LOCALHOST", "127.0.0.1", "127.0.0.1:1", "[::1]:7071"] {
            assert_eq!(entry(host), Entry::Allowed, "{host}");
        }
        for host in [
            "evil.example:7071",
            "localhost.evil.example",
            "10.0.0.1",
            "[2001:db8::1]:1",
            "",
        ] {
            assert_eq!(entry(host), Entry::Foreign, "{host}");
        }
        assert_eq!(AuthGuard::Loopback.entry(&HeaderMap::new()), Entry::Foreign);
        let mut twice = headers(&[("host", "localhost")]);
        twice.append("host", "evil.example".parse().unwrap());
        assert_eq!(AuthGuard::Loopback.entry(&twice), Entry::Foreign);
    }

    #[test]
    fn elsewhere_token_or_cookie_lets_in_and_nothing_else() {
        let token = "0123456789abcdef0123456789abcdef";
        let gate = AuthGuard::with_token(token);
        let entry = |name, value: &str| gate.entry(&headers(&[("host", "localhost"), (name, value)]));
        assert_eq!(entry("authorization", &format!("Bearer {token}")), Entry::Allowed);
        let cookie = gate.cookie().unwrap();
        let pair = cookie.split(';').next().unwrap();
        assert!(!cookie.contains(token));
        assert_eq!(entry("cookie", &format!("a=b; {pair}")), Entry::Allowed);
        assert_eq!(entry("authorization", "Bearer nearly"), Entry::Login);
        assert_eq!(entry("authorization", token), Entry::Login);
        assert_eq!(entry("cookie", &format!("fl_session={token}")), Entry::Login);
        assert_eq!(entry("cookie", "fl_session="), Entry::Login);
        let other = AuthGuard::with_token("another token of thirty-two bytes");
        assert_eq!(other.entry(&headers(&[("cookie", pair)])), Entry::Login);
    }
}
