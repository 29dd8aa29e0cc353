//! The values of a set's examples.

use std::ops::Range;

use super::error::Error;
use super::input::{Input, Target};
use super::tokens::{Tokens, gathered};

/// The values of all examples, one after another, row-major.
#[derive(Debug, Clone, PartialEq)]
pub enum Features {
    /// Bytes as in the file; a model sees `(byte / 255 - mean) / std`, per channel.
    Bytes {
        /// `[examples * channels * height * width]`.
        values: Vec<u8>,
        /// Mean of each channel on the scale 0 to 1.
        mean: Vec<f32>,
        /// Standard deviation of each channel on the scale 0 to 1, above 0.
        std: Vec<f32>,
    },
    /// Numbers a model sees as they are. Shape: `[examples * channels * height * width]`.
    Floats(Vec<f32>),
    /// Stretches of one long recording, which may overlap; a model sees each channel times its scale.
    Windows {
        /// `[samples * channels]`, one sample of all channels after another.
        signals: Vec<i16>,
        /// First sample of each example.
        starts: Vec<u32>,
        /// Scale of each channel.
        scale: Vec<f32>,
    },
    /// A text, cut into examples; a model sees the tokens before those that it is to predict.
    Text {
        /// The whole text.
        tokens: Tokens,
        /// For each example the tokens to predict: at least one, none before the second of the text.
        pieces: Vec<Range<u32>>,
    },
}

impl Features {
    pub(super) fn values(&self, input: Input) -> Result<usize, Error> {
        match self {
            Self::Bytes { values, mean, std } => {
                if mean.len() != input.shape[0]
                    || std.len() != input.shape[0]
                    || !std.iter().all(|s| s.is_finite() && *s > 0.0)
                {
                    let why = "need one mean and one positive deviation a channel";
                    return Err(Error::config("features", why));
                }
                Ok(values.len())
            }
            Self::Floats(values) => Ok(values.len()),
            Self::Windows { signals, starts, scale } => {
                let [channels, height, samples] = input.shape;
                let rows = signals.len() / scale.len().max(1);
                if scale.len() != channels || height != 1 || starts.iter().any(|&s| s as usize + samples > rows) {
                    let why = "need windows within the signals and a scale a channel";
                    return Err(Error::config("features", why));
                }
                Ok(starts.len() * input.len())
            }
            Self::Text { tokens, pieces } => {
                if input.target != Target::NextToken
                    || tokens.vocabulary() != input.classes
                    || !pieces.iter().all(|piece| {
                        piece.start >= 1
                            && !piece.is_empty()
                            && piece.end as usize <= tokens.len()
                            && piece.len() <= input.len()
                    })
                {
                    let why = "need pieces of the text, each of 1 token to the length of an example";
                    return Err(Error::config("features", why));
                }
                Ok(pieces.len() * input.len())
            }
        }
    }

    /// The values of the examples at `indices`, in that order. What windows and pieces share is kept once.
    pub(super) fn only(&self, indices: &[u32], input: Input) -> Self {
        let len = input.len();
        let ranges = || -> Vec<Range<usize>> {
            indices
                .iter()
                .map(|&index| index as usize * len..(index as usize + 1) * len)
                .collect()
        };
        match self {
            Self::Bytes { values, mean, std } => Self::Bytes {
                values: gathered(values, &ranges()),
                mean: mean.clone(),
                std: std.clone(),
            },
            Self::Floats(values) => Self::Floats(gathered(values, &ranges())),
            Self::Windows { signals, starts, scale } => {
                let channels = scale.len();
                let samples = input.shape[2];
                let own = Stretches::of(
                    indices
                        .iter()
                        .map(|&index| starts[index as usize] as usize..starts[index as usize] as usize + samples),
                );
                Self::Windows {
                    signals: gathered(signals, &own.scaled(channels)),
                    starts: indices
                        .iter()
                        .map(|index| own.moved(starts[*index as usize] as usize) as u32)
                        .collect(),
                    scale: scale.clone(),
                }
            }
            Self::Text { tokens, pieces } => {
                // With the token before the first that is predicted.
                let covered =
                    |&index: &u32| pieces[index as usize].start as usize - 1..pieces[index as usize].end as usize;
                let own = Stretches::of(indices.iter().map(covered));
                Self::Text {
                    tokens: tokens.only(&own.scaled(1)),
                    pieces: indices
                        .iter()
                        .map(|index| {
                            let piece = &pieces[*index as usize];
                            let start = own.moved(piece.start as usize - 1) as u32 + 1;
                            start..start + piece.len() as u32
                        })
                        .collect(),
                }
            }
        }
    }

    /// Appends the numbers of example `index`, as a model sees them, to `out`. Shapes: adds `[input.len()]`; a text has none.
    pub(super) fn append(&self, index: usize, input: Input, out: &mut Vec<f32>) {
        let len = input.len();
        let range = index * len..(index + 1) * len;
        match self {
            Self::Floats(values) => out.extend_from_slice(&values[range]),
            Self::Bytes { values, mean, std } => {
                let plane = len / input.shape[0].max(1);
                for (bytes, (mean, std)) in values[range].chunks_exact(plane.max(1)).zip(mean.iter().zip(std)) {
                    let scale = 1.0 / (255.0 * std);
                    let shift = -mean / std;
                    out.extend(bytes.iter().map(|&b| f32::from(b) * scale + shift));
                }
            }
            Self::Windows { signals, starts, scale } => {
                let first = starts[index] as usize * scale.len();
                let samples = signals[first..first + len].chunks_exact(scale.len());
                for (channel, scale) in scale.iter().enumerate() {
                    out.extend(samples.clone().map(|sample| f32::from(sample[channel]) * scale));
                }
            }
            Self::Text { .. } => {}
        }
    }
}

/// Disjoint stretches of a recording, in order, and where each begins once the others are dropped.
struct Stretches {
    kept: Vec<Range<usize>>,
    firsts: Vec<usize>,
}

impl Stretches {
    /// What `ranges`, which may overlap, cover.
    fn of(ranges: impl Iterator<Item = Range<usize>>) -> Self {
        let mut ranges: Vec<Range<usize>> = ranges.collect();
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        let mut kept: Vec<Range<usize>> = Vec::new();
        for range in ranges {
            match kept.last_mut().filter(|last| range.start <= last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None => kept.push(range),
            }
        }
        let firsts = kept
            .iter()
            .scan(0, |sum, range| Some(std::mem::replace(sum, *sum + range.len())));
        Self {
            firsts: firsts.collect(),
            kept,
        }
    }

    /// The stretches in units of which each position has `width`.
    fn scaled(&self, width: usize) -> Vec<Range<usize>> {
        self.kept
            .iter()
            .map(|range| range.start * width..range.end * width)
            .collect()
    }

    /// New place of `position`, which is in a stretch.
    fn moved(&self, position: usize) -> usize {
        let at = self.kept.partition_point(|range| range.start <= position) - 1;
        self.firsts[at] + position - self.kept[at].start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_windows_are_kept_once() {
        let windows = [10usize, 0, 2, 14, 30, 10].map(|start| start..start + 4);
        let own = Stretches::of(windows.into_iter());
        assert_eq!(own.kept, [0..6, 10..18, 30..34]);
        assert_eq!([0, 5, 10, 14, 33].map(|at| own.moved(at)), [0, 5, 6, 10, 17]);
    }
}
