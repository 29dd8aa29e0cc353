//! The file of `--state`: the next round and the state of the encoder.
//!
//! ```text
//! "FLCT" | 1, 0 | u64 next round | state of the encoder (docs/reference/format.md, "State file") | CRC-32C of all before it
//! ```

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use fl_compress::wire::{Writer, seal, unseal};
use fl_compress::{Encoder, Error, Layout, Spec};

use crate::failure::Failure;
use crate::write;

const MAGIC: &[u8; 4] = b"FLCT";
const VERSION: [u8; 2] = [1, 0];

/// The state between two calls.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) round: u64,
    pub(crate) encoder: Encoder,
}

impl State {
    /// Round 0 and an empty memory.
    pub(crate) fn new(layout: Arc<Layout>, spec: &Spec) -> Result<Self, Failure> {
        let encoder = Encoder::new(layout, spec).map_err(|why| Failure::Usage(why.to_string()))?;
        Ok(Self { round: 0, encoder })
    }

    /// Reads the state file at `path`; a new state if the file does not exist.
    pub(crate) fn load(path: &Path, layout: Arc<Layout>, spec: &Spec) -> Result<Self, Failure> {
        let bytes = match std::fs::read(path) {
            Err(why) if why.kind() == ErrorKind::NotFound => return Self::new(layout, spec),
            bytes => bytes.map_err(|why| Failure::input(path, why))?,
        };
        if !bytes.starts_with(MAGIC) {
            return Err(Failure::input(path, "not an fl-compress state file"));
        }
        Self::read(layout, spec, &bytes).map_err(|why| Failure::payload(path, &why))
    }

    fn read(layout: Arc<Layout>, spec: &Spec, bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = unseal(bytes, MAGIC, VERSION)?;
        let round = reader.u64("round")?;
        let state = reader.take(reader.left(), "state")?;
        let (encoder, _) = Encoder::load(layout, spec, state)?;
        Ok(Self { round, encoder })
    }

    /// Replaces the file at `path` atomically.
    pub(crate) fn save(&self, path: &Path) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.head(MAGIC, VERSION);
        writer.u64(self.round);
        self.encoder.save(None, &mut bytes);
        seal(0, &mut bytes);
        write::file(path, &bytes)
    }
}
