//! The enrollment port: devices without a certificate ask for one. It is closed unless a token is open.

mod calls;
mod lease;
mod listener;

pub(crate) use listener::{EnrollmentPort, Listening};
