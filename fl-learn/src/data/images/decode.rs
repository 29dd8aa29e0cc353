//! Decodes PNG and JPEG files. The bytes are not trusted: the size is checked before the pixels are allocated.

use std::io::Cursor;

use png::{ColorType, Transformations};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::image::Image;

const MAX_PIXELS: u64 = 1 << 26;
/// Most pixels for each byte of a PNG file: deflate makes at most 1,032 bytes of one, each of 8 pixels of 1 bit.
const PNG_PIXELS: u64 = 1032 * 8;
/// Most pixels for each byte of a JPEG file: every block of 64 pixels takes at least one bit.
const JPEG_PIXELS: u64 = 512;
const MAX_SIDE: usize = 65_535;

/// Decodes `file`. Alpha is dropped, 16 bits a channel become 8, palettes and CMYK become colors. `size`: height and width
/// that the image must have. The text of an error begins with a verb.
pub(super) fn decode(file: &[u8], size: Option<[usize; 2]>) -> Result<Image, String> {
    if file.starts_with(b"\x89PNG\r\n\x1a\n") {
        return decode_png(file, size);
    }
    if file.starts_with(&[0xff, 0xd8, 0xff]) {
        return decode_jpeg(file, size);
    }
    let start = &file[..file.len().min(8)];
    Err(format!("is neither PNG nor JPEG: it begins with {start:02x?}"))
}

fn damaged(why: impl std::fmt::Display) -> String {
    format!("is cut short or damaged ({why})")
}

fn decode_png(file: &[u8], size: Option<[usize; 2]>) -> Result<Image, String> {
    let mut decoder = png::Decoder::new(Cursor::new(file));
    decoder.set_ignore_text_chunk(true);
    decoder.set_transformations(Transformations::normalize_to_color8());
    let header = decoder.read_header_info().map_err(damaged)?;
    let height = header.height as usize;
    let width = header.width as usize;
    check_size(height, width, size, file.len(), PNG_PIXELS)?;
    let mut reader = decoder.read_info().map_err(damaged)?;
    let len = reader.output_buffer_size().ok_or("is too large")?;
    let mut pixels = vec![0; len];
    let frame = reader.next_frame(&mut pixels).map_err(damaged)?;
    if (frame.height as usize, frame.width as usize) != (height, width) {
        return Err("is an animation whose first frame does not fill it".to_owned());
    }
    let (channels, kept) = match frame.color_type {
        ColorType::Grayscale => (1, 1),
        ColorType::GrayscaleAlpha => (2, 1),
        ColorType::Rgb => (3, 3),
        ColorType::Rgba => (4, 3),
        // The transformation has expanded palettes.
        ColorType::Indexed => return Err("has a palette that cannot be read".to_owned()),
    };
    if channels != kept {
        pixels = pixels
            .chunks_exact(channels)
            .flat_map(|pixel| &pixel[..kept])
            .copied()
            .collect();
    }
    complete(height, width, kept, pixels)
}

fn decode_jpeg(file: &[u8], size: Option<[usize; 2]>) -> Result<Image, String> {
    if !is_complete(file) {
        return Err("is cut short or damaged: its end is missing".to_owned());
    }
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(MAX_SIDE)
        .set_max_height(MAX_SIDE);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    decoder.decode_headers().map_err(damaged)?;
    let (width, height) = decoder.dimensions().ok_or("has no size")?;
    check_size(height, width, size, file.len(), JPEG_PIXELS)?;
    let (channels, space) = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => (1, ColorSpace::Luma),
        _ => (3, ColorSpace::RGB),
    };
    decoder.set_options(options.jpeg_set_out_colorspace(space));
    let pixels = decoder.decode().map_err(damaged)?;
    complete(height, width, channels, pixels)
}

/// Whether a JPEG file has an end after the beginning of its first scan. The decoder fills up what is missing. No value in a scan looks
/// like the marker of the end, but a thumbnail before the first scan has its own.
fn is_complete(file: &[u8]) -> bool {
    let mut rest = &file[2..];
    while let &[0xff, marker, high, low, ..] = rest {
        if marker == 0xda {
            return rest.windows(2).any(|bytes| bytes == [0xff, 0xd9]);
        }
        // Fill bytes before a marker, and markers without content.
        let skip = match marker {
            0xff => 1,
            0x01 | 0xd0..=0xd8 => 2,
            _ => 2 + usize::from(u16::from_be_bytes([high, low])),
        };
        rest = rest.get(skip..).unwrap_or_default();
    }
    false
}

fn complete(height: usize, width: usize, channels: usize, pixels: Vec<u8>) -> Result<Image, String> {
    if pixels.len() != height * width * channels {
        return Err(format!(
            "is damaged: {} values for {height}x{width} pixels",
            pixels.len()
        ));
    }
    Ok(Image {
        height,
        width,
        channels,
        pixels,
    })
}

/// Succeeds if an image of `file` bytes may be decoded: it has the `wanted` height and width, and no more pixels than such a file
/// can hold, at most `per_byte` for each byte.
fn check_size(
    height: usize,
    width: usize,
    wanted: Option<[usize; 2]>,
    file: usize,
    per_byte: u64,
) -> Result<(), String> {
    if let Some([high, wide]) = wanted.filter(|&wanted| wanted != [height, width]) {
        return Err(format!(
            "is {height}x{width} (height x width), but the images before it are {high}x{wide}; set `resize` = [height, width]"
        ));
    }
    let pixels = (height as u64).saturating_mul(width as u64);
    if pixels == 0 || pixels > MAX_PIXELS {
        return Err(format!(
            "is {height}x{width}; an image must have 1 to {MAX_PIXELS} pixels"
        ));
    }
    if pixels > per_byte.saturating_mul(file as u64) {
        return Err(format!(
            "is cut short or damaged: {file} bytes cannot hold {height}x{width} pixels"
        ));
    }
    Ok(())
}
