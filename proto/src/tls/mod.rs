//! The federation's own certificate authority, and TLS that trusts nothing else.
//!
//! Every certificate states its purpose: a client's certificate cannot serve, the server's cannot join. The server's
//! certificate carries the fixed name [`SERVER_NAME`], which clients check, so that the server's address may change without a
//! new certificate. Both sides speak TLS 1.3 only, whatever versions the features of a dependency compile in.

mod authority;
mod certificate;
mod lifetime;
mod pair;
mod pinned;
mod role;
mod sides;
mod signing_request;

pub use authority::Authority;
pub(crate) use certificate::{HTTP2, SERVER_NAME};
pub use certificate::{
    Issued, TlsError, certificate_key, certificate_pem, certificates_of, common_name, expiry, issuer_of, peer_expiry,
    peer_lifetime, peer_name, peer_role,
};
pub use lifetime::Lifetime;
pub use pair::{PairFiles, newest_pair, next_path};
pub use pinned::{ForeignAuthority, pinned_client_tls};
pub use role::Role;
pub use sides::{client_tls, enrollment_tls, page_tls, server_tls};
pub use signing_request::{NewKey, RequestError, SigningRequest, is_pair};
