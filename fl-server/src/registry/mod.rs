//! The federation's clients and enrollment tokens: who may enroll, who is enrolled, and who is admitted.
//!
//! One task owns the registry ([`actor`]). Calls and the admin socket ask it; while no server runs, the command line opens it
//! itself. What it decides is in [`enroll`] and [`renew`]; what operators ask is in [`ask`].

pub(crate) mod actor;
pub(crate) mod ask;
mod book;
pub(crate) mod client;
pub(crate) mod credential;
mod enroll;
mod names;
pub(crate) mod refusal;
mod renew;
pub(crate) mod seen;
pub(crate) mod signer;
pub(crate) mod standing;
#[cfg(test)]
mod tests;
pub(crate) mod token;

pub(crate) use book::Registry;
pub(crate) use enroll::EnrollmentRequest;
pub(crate) use names::NamePattern;
