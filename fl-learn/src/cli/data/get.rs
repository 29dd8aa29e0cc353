//! `fl-client data get`.

use std::io::IsTerminal;
use std::path::Path;

use fl_cli::out;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::data::{FetchOutcome, Public, fetch};

pub(super) fn run(name: &str, to: &Path, bar: &ProgressBar) -> anyhow::Result<()> {
    let set = Public::named(name)?;
    if std::io::stderr().is_terminal() {
        let style = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
    let fetched = fetch(&set, to, &mut |file, done, total| {
        bar.set_message(file.name.clone());
        bar.set_length(total.unwrap_or(done));
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    for (file, fetched) in set.files.iter().zip(fetched) {
        let path = to.join(&file.name);
        match fetched {
            FetchOutcome::Present if !path.exists() => {
                out::line(format_args!("{}: not needed, what it holds is there", path.display()))?;
            }
            FetchOutcome::Present => out::line(format_args!("{}: there already", path.display()))?,
            FetchOutcome::Downloaded(bytes) => out::line(format_args!("{}: {bytes} bytes", path.display()))?,
        }
        for member in &file.holds {
            let path = to.join(member.name());
            out::line(format_args!("{}: {} bytes", path.display(), member.bytes))?;
        }
    }
    Ok(())
}
