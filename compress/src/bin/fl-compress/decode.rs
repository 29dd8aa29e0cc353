//! `decode`: decodes an archive to safetensors.

use std::path::PathBuf;

use fl_compress::weights::{self, Envelope};

use crate::failure::Failure;
use crate::limit::Limit;
use crate::{progress, read, write};

/// Decompress a .flz into safetensors.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    limit: Limit,
    /// Archive to decompress.
    #[arg(value_name = "OUT.flz")]
    input: PathBuf,
    /// Output file.
    #[arg(value_name = "BACK.safetensors")]
    output: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    write::apart(&args.input, &args.output)?;
    let _busy = progress::start(format!("decoding {}", args.input.display()));
    let bytes = read::bytes(&args.input)?;
    let archive = read::archive(&args.input, &bytes, &args.limit)?;
    let frame = read::frame(&args.input, &archive)?;
    let around = Envelope::new(&archive.layout, &archive.integers, &weights::Notes::new());
    let around = around.map_err(|why| Failure::output(&args.output, why))?;
    write::stream(&args.output, |out| {
        out.bytes(&around.head)?;
        let decoded = frame.decode_each(|_, values| out.values(values).map_err(read::StopReason::Output));
        decoded.map_err(|why| match why {
            read::StopReason::Output(failure) => failure,
            read::StopReason::Input(why) => read::payload(&args.input, &archive, Some(&frame), why),
        })?;
        out.bytes(&around.tail)
    })
}
