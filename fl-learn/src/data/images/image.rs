//! A decoded image.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::data::error::Error;

const MAX_FILE: u64 = 1 << 26;

/// An image of 8 bits a channel.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Image {
    pub(super) height: usize,
    pub(super) width: usize,
    /// 1 (gray) or 3 (red, green, blue).
    pub(super) channels: usize,
    /// `[height * width * channels]`.
    pub(super) pixels: Vec<u8>,
}

impl Image {
    /// The same image in gray or in color. Gray is the luma of ITU-R BT.601, 0.299 red + 0.587 green + 0.114 blue.
    pub(super) fn with_channels(self, channels: usize) -> Self {
        let pixels = match (self.channels, channels) {
            (3, 1) => {
                self.pixels
                    .as_chunks::<3>()
                    .0
                    .iter()
                    .map(|&[red, green, blue]| {
                        // In units of 2^-16, rounded to the nearest.
                        let sum = 19_595 * u32::from(red) + 38_470 * u32::from(green) + 7_471 * u32::from(blue);
                        ((sum + 0x8000) >> 16) as u8
                    })
                    .collect()
            }
            (1, 3) => self.pixels.iter().flat_map(|&gray| [gray; 3]).collect(),
            _ => return self,
        };
        Self {
            channels,
            pixels,
            ..self
        }
    }

    /// Appends the pixels channel by channel. Shapes: adds `[channels * height * width]`.
    pub(super) fn append_planes(&self, out: &mut Vec<u8>) {
        for channel in 0..self.channels {
            out.extend(self.pixels.iter().skip(channel).step_by(self.channels));
        }
    }
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let io = |error: std::io::Error| Error::io(path, &error);
    let file = File::open(path).map_err(io)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(Error::malformed(path, format!("has more than {MAX_FILE} bytes")));
    }
    Ok(bytes)
}
