//! Requests a change from the running server, or makes it in the store of a stopped one, and prints it.

use std::path::Path;

use fl_cli::out;

use crate::admin::socket::{Answer, Ask};
use crate::cli::failure::Outcome;
use crate::cli::source;
use crate::clock;
use crate::coordinator::change::Change;

pub(super) fn ask(fed: &Path, run: Option<&str>, change: Change) -> Outcome {
    let config = source::config(fed)?;
    let ask = Ask::Change {
        run: run.map(str::to_owned),
        change,
        at: clock::system(),
    };
    let Answer::Changed(text) = source::ask(&config, &ask)? else {
        return Err(source::unexpected().into());
    };
    out::line(format_args!("{text}"))?;
    Ok(())
}
