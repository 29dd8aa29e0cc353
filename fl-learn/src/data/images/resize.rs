//! Resizes images: bilinear, averaging over the whole area of a target pixel when the image shrinks.

use super::image::Image;

/// The image stretched to `size`, height and width. The filter is a triangle, one source pixel to each side, or one target pixel if
/// that is larger: what Pillow and `torchvision.transforms.Resize` (with antialias) call bilinear.
pub(super) fn resize(image: &Image, [height, width]: [usize; 2]) -> Image {
    if [image.height, image.width] == [height, width] {
        return image.clone();
    }
    let channels = image.channels;
    let columns = taps(image.width, width);
    // Rows shrink first: `[image.height * width * channels]`.
    let mut narrow = Vec::with_capacity(image.height * width * channels);
    for row in image.pixels.chunks_exact(image.width * channels) {
        for Tap { first, weights } in &columns {
            for channel in 0..channels {
                let pixels = row[first * channels + channel..].iter().step_by(channels);
                narrow.push(
                    pixels
                        .zip(weights)
                        .map(|(&pixel, weight)| f32::from(pixel) * weight)
                        .sum::<f32>(),
                );
            }
        }
    }
    let len = width * channels;
    let mut pixels = Vec::with_capacity(height * len);
    let mut sums = vec![0.0f32; len];
    for Tap { first, weights } in taps(image.height, height) {
        sums.fill(0.0);
        for (row, weight) in narrow[first * len..].chunks_exact(len).zip(&weights) {
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value * weight);
        }
        // The weights sum to 1 within rounding; the conversion saturates.
        pixels.extend(sums.iter().map(|sum| (sum + 0.5) as u8));
    }
    Image {
        height,
        width,
        channels,
        pixels,
    }
}

/// The source pixels of one target pixel.
struct Tap {
    first: usize,
    /// Sum to 1.
    weights: Vec<f32>,
}

/// For each of `to` target pixels, its source pixels out of `from`.
fn taps(from: usize, to: usize) -> Vec<Tap> {
    let scale = from as f64 / to as f64;
    let reach = scale.max(1.0);
    (0..to)
        .map(|at| {
            let center = (at as f64 + 0.5) * scale;
            let first = (center - reach + 0.5).max(0.0) as usize;
            let end = ((center + reach + 0.5) as usize).min(from).max(first + 1);
            let weight = |source: usize| (1.0 - ((source as f64 + 0.5 - center) / reach).abs()).max(0.0);
            let sum: f64 = (first..end).map(weight).sum();
            Tap {
                first,
                weights: (first..end).map(|source| (weight(source) / sum) as f32).collect(),
            }
        })
        .collect()
}
