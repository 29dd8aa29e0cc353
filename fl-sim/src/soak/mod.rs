//! The soak test: a federation of real processes on loopback, for minutes, among strangers, a malicious client, a broken
//! client, kills, and a clock that jumps. At its end every invariant that can be checked from outside is checked.
//!
//! Server and honest clients are processes of their own, so that they can be killed as SIGKILL kills. All that happens is
//! bounded in number and drawn from the seed; nothing but loopback is used.

mod command;
mod dice;
mod hostile;
mod outcome;
mod process;
mod server;
mod stage;

pub use command::Soak;
pub use outcome::Soaked;
pub use server::SoakServer;
