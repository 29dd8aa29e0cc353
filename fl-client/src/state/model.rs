//! `model`: a model version that saves a download. Optional: a missing or broken one is fetched again.
//!
//! ```text
//! "FLMD" | major u8 | minor u8 | [`Head`] | values, f32 each
//! ```

use fl_compress::wire::{Reader, Writer};
use fl_compress::{Digest, Layout};
use serde::{Deserialize, Serialize};

use super::disk::Disk;
use super::run_state::RunState;
use crate::error::Error;

const MAGIC: &[u8; 4] = b"FLMD";
const VERSION: [u8; 2] = [1, 0];
/// Most bytes before the values: a number takes at most 10.
const FRONT: usize = 4 + 2 + 10 + 32;

#[derive(Serialize, Deserialize)]
struct Head {
    version: u64,
    /// Of the values.
    digest: Digest,
}

/// A model version with a verified digest.
#[derive(Debug, PartialEq)]
pub(crate) struct KeptModel {
    pub(crate) version: u64,
    pub(crate) digest: Digest,
    pub(crate) values: Vec<f32>,
}

impl RunState {
    /// The kept model, if it is complete and of this layout.
    pub(crate) fn load_model(&self, layout: &Layout) -> Option<KeptModel> {
        let max = (FRONT + 4 * layout.len()) as u64;
        let consequence = "kept model is unusable and will be fetched again";
        self.optional(&self.path("model"), max, consequence, |bytes| {
            parse(&bytes, layout.len()).map(Some)
        })
    }

    /// Keeps a model in place of the one before. Not synced to the medium, and a crash in between leaves none: it can be
    /// fetched again.
    pub(crate) fn save_model(&self, version: u64, digest: Digest, values: &[f32]) -> Result<(), Error> {
        let mut out = Vec::with_capacity(FRONT + 4 * values.len());
        let mut writer = Writer::new(&mut out);
        writer.head(MAGIC, VERSION);
        writer.value(&Head { version, digest });
        writer.f32s(values);
        let path = self.path("model");
        // When a file replaces another, ext4 starts to write it to the medium, and the caller waits.
        let _ = std::fs::remove_file(&path);
        Disk { sync: false }.replace(&path, &[&out])
    }
}

fn parse(bytes: &[u8], len: usize) -> Result<KeptModel, fl_compress::Error> {
    let mut reader = Reader::new(bytes);
    reader.head(MAGIC, VERSION)?;
    let Head { version, digest } = reader.value("head")?;
    let values: Vec<f32> = reader.f32s(len, "values")?.collect();
    reader.finish("bytes after the values")?;
    if Digest::of_f32(&values) != digest {
        return Err(reader.corrupt("digest"));
    }
    Ok(KeptModel {
        version,
        digest,
        values,
    })
}
