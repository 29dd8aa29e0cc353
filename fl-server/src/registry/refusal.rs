//! Why a device gets no certificate.

use fl_proto::{ClientId, RequestError};

use crate::clock::{Millis, minute};
use crate::registry::NamePattern;
use crate::registry::signer::SignError;

/// Why a device gets no certificate, with what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(
        "this server has no enrollment token with this secret: the line is of another server, or its token was forgotten; \
         the operator makes another line with `fl-server enroll`"
    )]
    Unknown,
    #[error("`{name}` used this line on {}; each device needs its own: `fl-server enroll NAME` makes another", minute(*at))]
    Used { name: ClientId, at: Millis },
    #[error("this line expired on {}; the operator makes another with `fl-server enroll`", minute(*.0))]
    Expired(Millis),
    #[error("this line was revoked on {}; the operator makes another with `fl-server enroll`", minute(*.0))]
    Revoked(Millis),
    #[error("this line is for `{names}`, not for `{asked}`; leave out `--name`, or ask the operator for another line")]
    OtherName { asked: ClientId, names: NamePattern },
    #[error(
        "`{0}` is enrolled already; if its device is lost or set up again, the operator makes a line with `fl-server enroll \
         {0} --again`; otherwise choose another name"
    )]
    Taken(ClientId),
    #[error(
        "`{0}` is revoked; the operator makes a line for a new device of this name with `fl-server enroll {0} --again`, or admits \
         the old one again with `fl-server clients restore {0}`"
    )]
    TakenRevoked(ClientId),
    #[error(
        "certificates and lines of `{0}` from before do not count any more; the operator makes a line with `fl-server enroll {0} \
         --again`"
    )]
    Ended(ClientId),
    #[error("no name of `{0}` is free; the operator makes a line for another pattern")]
    NoName(NamePattern),
    #[error("the operator denied this device the name `{0}`; ask the operator")]
    Denied(ClientId),
    #[error(
        "`{0}` was given several certificates that it has not used; it renews again once one of them is used or has expired, or \
         the operator makes a line with `fl-server enroll {0} --again`"
    )]
    Unused(ClientId),
    #[error("{0}")]
    Request(#[from] RequestError),
    #[error("{0}")]
    Signer(#[from] SignError),
    #[error("the server cannot store the certificate: {0}; retry later")]
    Store(String),
}
