//! The server's own certificate and key: their files, and their renewal.

mod certificates;
mod files;
mod renewal;

pub(crate) use certificates::{Certificates, Kind, ends_soon, renewal};
pub(crate) use files::{OwnFiles, PRIVATE, PUBLIC, write};
pub(crate) use renewal::{LIFETIME_DAYS, Ownership, RenewError, Renewer, advice};
