//! `fl-server tokens`: lists and revokes enrollment tokens.

use std::path::PathBuf;

use fl_cli::{Format, out};

use crate::admin::socket::Answer;
use crate::cli::failure::Outcome;
use crate::cli::source;
use crate::clock::minute;
use crate::registry::ask::{RegistryAnswer, RegistryAsk, TokenLine};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Lists tokens, the newest first.
    List {
        /// The federation's folder, or its server.toml.
        #[arg(long, default_value = ".")]
        fed: PathBuf,
        /// Format of the result.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Revokes a token: it enrolls no further device.
    Revoke {
        /// The token's number, as `list` shows it.
        id: String,
        /// The federation's folder, or its server.toml.
        #[arg(long, default_value = ".")]
        fed: PathBuf,
    },
}

pub(super) fn run(args: &Args) -> Outcome {
    let (fed, ask) = match &args.command {
        Command::List { fed, .. } => (fed, RegistryAsk::Tokens),
        Command::Revoke { id, fed } => (fed, RegistryAsk::RevokeToken { id: id.clone() }),
    };
    let config = source::config(fed)?;
    match (source::ask_registry(&config, &ask)?, &args.command) {
        (Answer::Registry(RegistryAnswer::Tokens(tokens)), Command::List { format, .. }) => {
            Ok(out::result(&tokens, *format, |tokens| text(tokens))?)
        }
        (Answer::Registry(RegistryAnswer::Done(done)), _) => {
            out::line(format_args!("{done}"))?;
            Ok(())
        }
        _ => Err(source::unexpected().into()),
    }
}

fn text(tokens: &[TokenLine]) -> String {
    if tokens.is_empty() {
        return "no tokens; `fl-server enroll NAME` opens one\n".to_owned();
    }
    let mut out = format!(
        "{:<10}{:<10}{:>10}  {:<20}{:<11}{}\n",
        "token", "state", "used", "expires", "role", "names"
    );
    for token in tokens {
        let used = format!("{} of {}", token.used, token.uses);
        let approve = if token.approve { ", to be approved" } else { "" };
        out += &format!(
            "{:<10}{:<10}{used:>10}  {:<20}{:<11}{}{approve}\n",
            token.id,
            token.state,
            minute(token.expires_ms),
            token.role.as_str(),
            token.names,
        );
    }
    out
}
