//! `fl-client request`: makes a key and a signing request, for a device that cannot reach the enrollment port.

use std::path::PathBuf;

use fl_cli::out;
use fl_proto::ClientId;

use crate::enrollment::ClientFolder;
use crate::error::Error;

/// Make this device's key and a request that `fl-server sign` signs elsewhere.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Folder for the key and the request; created if it is missing.
    #[arg(long, default_value = ".")]
    to: PathBuf,
    /// A name in the request, for the person who signs it.
    #[arg(long)]
    name: Option<ClientId>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let folder = ClientFolder::new(&args.to, None, false);
    if folder.issued()?.is_some() {
        let folder = args.to.display();
        return Err(Error::Config(format!(
            "{folder} is enrolled already: it has a certificate; choose another folder"
        ))
        .into());
    }
    let (path, words) = folder.request(args.name.as_ref())?;
    out::line(format_args!("{}", path.display()))?;
    let name = args.name.as_ref().map_or("NAME", ClientId::as_str);
    out::note(format_args!(
        "key {words}\nnext: carry {} to the authority's key, then there\n      fl-server sign {} --name {name}",
        path.display(),
        path.file_name().map_or_else(
            || path.display().to_string(),
            |name| name.to_string_lossy().into_owned()
        )
    ));
    Ok(())
}
