//! `fl-client data get` of a program that is built without the feature `download`.

use std::path::Path;

use indicatif::ProgressBar;

pub(super) fn run(_: &str, _: &Path, _: &ProgressBar) -> anyhow::Result<()> {
    anyhow::bail!("this program was built without downloads; build it with `--features download`")
}
