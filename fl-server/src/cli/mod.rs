//! The command line of the server: a file for each subcommand.

mod authority;
mod change;
mod check;
mod clients;
mod enroll;
mod exclude;
mod export;
mod failure;
mod health;
mod init;
mod issue;
mod issued;
mod logging;
mod new;
mod program;
mod report;
mod rollback;
mod serve;
mod sign_request;
mod source;
mod status;
mod tokens;
mod verify;
mod what_if;
mod write;

pub use program::main;
