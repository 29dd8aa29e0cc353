//! Access to the admin address. On a loopback address, every user of this machine has access, but not pages of other
//! sites in a browser. On any other address, requests need the token.

use axum::http::{HeaderMap, HeaderName, header};

/// Domain separation of the session's hash.
const SESSION: &str = "fl-server 2026 admin session";
const COOKIE: &str = "fl_session";
/// Lifetime of a session in seconds.
const LASTS: u32 = 24 * 3600;
pub(crate) const LEAST: usize = 32;

#[derive(Debug, Clone)]
pub(crate) enum AuthGuard {
    /// The request's host must be this machine.
    Loopback,
    /// The request must carry the token, or the session cookie.
    Token { token: blake3::Hash, session: blake3::Hash },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    Allowed,
    Login,
    Foreign,
}

impl AuthGuard {
    /// A guard that requires `token`.
    pub(crate) fn with_token(token: &str) -> Self {
        Self::Token {
            token: blake3::hash(token.as_bytes()),
            session: blake3::Hash::from(blake3::derive_key(SESSION, token.as_bytes())),
        }
    }

    pub(crate) fn entry(&self, headers: &HeaderMap) -> Entry {
        match self {
            Self::Loopback => {
                let named_once = headers.get_all(header::HOST).iter().count() == 1;
                if named_once && text(headers, &header::HOST).is_some_and(is_loopback) {
                    Entry::Allowed
                } else {
                    Entry::Foreign
                }
            }
            Self::Token { session, .. } => {
                let bearer = text(headers, &header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
                let mut cookies = text(headers, &header::COOKIE).unwrap_or_default().split("; ");
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

    pub(crate) fn is_token(&self, shown: &str) -> bool {
        match self {
            Self::Loopback => false,
            Self::Token { token, .. } => blake3::hash(shown.trim().as_bytes()) == *token,
        }
    }

    /// The session cookie for a client that has sent the token.
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

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Whether a `Host` header is a loopback name: another site's DNS name is refused (DNS rebinding).
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest
            .split_once(']')
            .filter(|(_, after)| after.is_empty() || after.starts_with(':')),
        None => Some(host.split_once(':').unwrap_or((host, ""))),
    };
    let name = name.map_or("", |(name, _)| name);
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
            "[::1]evil.example",
            "[::1",
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
