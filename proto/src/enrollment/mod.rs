//! Enrollment: a device makes its key and gets a certificate for one line that a person types on it.

mod line;
mod messages;
mod secret;
mod words;

pub use line::{EnrollmentLine, LineError};
pub use messages::{Enrolled, SignedCertificate};
pub use secret::Secret;
pub use words::approval_words;
