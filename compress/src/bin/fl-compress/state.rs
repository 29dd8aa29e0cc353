//! The file of `--state`: how many updates were encoded, and the memory of the encoder that encoded them.
//!
//! ```text
//! "FLCT" | 1, 0 | u64 next round | state of the encoder (docs/reference/format.md, "State file") | CRC-32C of all before it
//! ```

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use fl_compress::{Encoder, Layout, Spec};

use crate::failure::Failure;
use crate::write;

const MAGIC: &[u8; 4] = b"FLCT";
const MAJOR: u8 = 1;
const MINOR: u8 = 0;
/// Magic, version and round.
const HEAD: usize = 14;
const CHECKSUM: usize = 4;

/// An encoder between two updates.
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

    /// What the file at `path` holds; a new state if there is none.
    pub(crate) fn load(path: &Path, layout: Arc<Layout>, spec: &Spec) -> Result<Self, Failure> {
        let bytes = match std::fs::read(path) {
            Err(why) if why.kind() == ErrorKind::NotFound => return Self::new(layout, spec),
            bytes => bytes.map_err(|why| Failure::input(path, why))?,
        };
        if !bytes.starts_with(MAGIC) {
            return Err(Failure::input(path, "not a state file of this tool"));
        }
        let Some((body, checksum)) = bytes
            .split_last_chunk::<CHECKSUM>()
            .filter(|(body, _)| body.len() >= HEAD)
        else {
            return Err(Failure::corrupt(path, format!("truncated at byte {}", bytes.len())));
        };
        if body[4] != MAJOR {
            let version = format!("format version {}.{}; only version {MAJOR} is known", body[4], body[5]);
            return Err(Failure::input(path, version));
        }
        if u32::from_le_bytes(*checksum) != crc32c::crc32c(body) {
            return Err(Failure::corrupt(
                path,
                format!("corrupt at byte {}: checksum", body.len()),
            ));
        }
        let mut round = [0; 8];
        round.copy_from_slice(&body[6..HEAD]);
        let loaded = Encoder::load(layout, spec, &body[HEAD..]);
        let (encoder, _) = loaded.map_err(|why| Failure::payload(path, &why))?;
        Ok(Self {
            round: u64::from_le_bytes(round),
            encoder,
        })
    }

    /// Replaces the file at `path`, whole or not at all.
    pub(crate) fn save(&self, path: &Path) -> Result<(), Failure> {
        let mut bytes = [MAGIC, &[MAJOR, MINOR][..], &self.round.to_le_bytes()].concat();
        self.encoder.save(None, &mut bytes);
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        write::file(path, &bytes)
    }
}
