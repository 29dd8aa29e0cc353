//! `decode`: an archive to safetensors.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::{progress, read, write};

/// Decompress a .flz into tensors.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to decompress.
    #[arg(value_name = "OUT.flz")]
    input: PathBuf,
    /// Where to.
    #[arg(value_name = "BACK.safetensors")]
    output: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let _busy = progress::start(format!("decoding {}", args.input.display()));
    let bytes = read::bytes(&args.input)?;
    let archive = read::archive(&args.input, &bytes)?;
    let values = read::decode(&args.input, &archive)?;
    write::values(&args.output, &archive.layout, &values)
}
