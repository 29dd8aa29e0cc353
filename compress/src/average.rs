//! The mean of the last versions of a model, from the newest version and the model updates between them.
//!
//! With `w_v` the newest version and `u_k` the model update that made version k, version v - j is `w_v - u_v - .. - u_(v-j+1)`.
//! So a mean of versions is `w_v` less the model updates, each with a coefficient, and whoever holds the same frames computes
//! it to the same bits. Version 0, which nobody trained, never counts.
//!
//! Sources: Polyak and Juditsky, "Acceleration of stochastic approximation by averaging" (SIAM J. Control Optim. 1992);
//! Izmailov et al., "Averaging weights leads to wider optima and better generalization" (UAI 2018).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::frame::header::FrameKind;
use crate::frame::view::Frame;
use crate::layout::Layout;

/// Most versions in a mean.
pub const MAX_AVERAGED: u32 = 100;
// Largest decay of a moving average: 0.95^134 is the last power above `LEAST_COEFFICIENT`, so an average takes at most
// 134 model updates.
const MAX_DECAY: f64 = 0.95;
// A moving average leaves out the model updates whose coefficient is below this.
const LEAST_COEFFICIENT: f64 = 1e-3;

/// Which mean of the last versions. In TOML: `{ last = 5 }` or `{ ema = 0.8 }`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Raw", into = "Raw")]
pub enum Average {
    /// The plain mean of this many versions, 2 to [`MAX_AVERAGED`]; of fewer while there are not so many.
    Last(u32),
    /// The exponential moving average `a_v = decay * a_(v-1) + (1 - decay) * w_v` from `a_1 = w_1`, without the model updates
    /// that would count for less than 0.1 %. The decay is above 0 and at most 0.95.
    Ema(f64),
}

/// As written: exactly one of the keys.
#[derive(Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an average: { last = 5 }, a number of versions, or { ema = 0.8 }, a decay"
)]
struct Raw {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ema: Option<f64>,
}

impl From<Average> for Raw {
    fn from(average: Average) -> Self {
        let (last, ema) = match average {
            Average::Last(versions) => (Some(versions), None),
            Average::Ema(decay) => (None, Some(decay)),
        };
        Self { last, ema }
    }
}

impl TryFrom<Raw> for Average {
    type Error = String;

    fn try_from(raw: Raw) -> Result<Self, String> {
        match (raw.last, raw.ema) {
            (Some(versions), None) => Self::last(versions),
            (None, Some(decay)) => Self::ema(decay),
            _ => Err("an average is `{ last = 5 }`, a number of versions, or `{ ema = 0.8 }`, a decay".to_owned()),
        }
    }
}

impl FromStr for Average {
    type Err = String;

    /// Reads `last=5` or `ema=0.8`.
    fn from_str(text: &str) -> Result<Self, String> {
        let other =
            || format!("`{text}` is not an average: give `last=5`, a number of versions, or `ema=0.8`, a decay");
        let (key, value) = text.split_once('=').ok_or_else(other)?;
        match key.trim() {
            "last" => Self::last(value.trim().parse().map_err(|_| other())?),
            "ema" => Self::ema(value.trim().parse().map_err(|_| other())?),
            _ => Err(other()),
        }
    }
}

impl fmt::Display for Average {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last(versions) => write!(f, "last={versions}"),
            Self::Ema(decay) => write!(f, "ema={decay}"),
        }
    }
}

impl Average {
    /// # Errors
    /// If the number is out of range.
    pub fn last(versions: u32) -> Result<Self, String> {
        if (2..=MAX_AVERAGED).contains(&versions) {
            Ok(Self::Last(versions))
        } else {
            Err(format!("`last` is {versions}; it must be 2 to {MAX_AVERAGED} versions"))
        }
    }

    /// # Errors
    /// If the number is out of range.
    pub fn ema(decay: f64) -> Result<Self, String> {
        if decay > 0.0 && decay <= MAX_DECAY {
            Ok(Self::Ema(decay))
        } else {
            Err(format!("`ema` is {decay}; it must be above 0 and at most {MAX_DECAY}"))
        }
    }

    /// Number of model updates that the average of version `version` needs: of the newest ones.
    pub fn updates(&self, version: u64) -> usize {
        let most = match self {
            Self::Last(versions) => *versions as usize - 1,
            Self::Ema(decay) => std::iter::successors(Some(*decay), |power| Some(power * decay))
                .take_while(|power| *power >= LEAST_COEFFICIENT)
                .count(),
        };
        usize::try_from(version.saturating_sub(1)).map_or(most, |before| most.min(before))
    }

    /// Turns the newest version into the average. `updates`: the frames that led to it, the newest first, as many as
    /// [`Average::updates`] says or, where fewer are known, those; their number decides the weights. Counters stay those of
    /// the newest version. Shapes: `model: [layout.len()]`.
    ///
    /// # Errors
    /// Those of [`Frame::parse`]; `Mismatch` if a frame is no model update. `model` is unspecified then.
    pub fn apply(&self, layout: &Layout, updates: &[Vec<u8>], model: &mut [f32]) -> Result<(), Error> {
        let counters = model.get(layout.counters()).map(<[f32]>::to_vec);
        let mut power = 1.0;
        for (at, bytes) in updates.iter().enumerate() {
            let coefficient = match self {
                // Version v - j is without the first j model updates, for j from 0 to their number.
                Self::Last(_) => (updates.len() - at) as f64 / (updates.len() + 1) as f64,
                Self::Ema(decay) => {
                    power *= decay;
                    power
                }
            };
            let frame = Frame::parse(bytes, layout)?;
            if frame.header().kind != FrameKind::ModelUpdate {
                return Err(Error::Mismatch("an average is made of model updates".to_owned()));
            }
            frame.accumulate(-coefficient as f32, model)?;
        }
        if let Some(counters) = counters {
            model[layout.counters()].copy_from_slice(&counters);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::encoder::update::Encoder;
    use crate::frame::header::FrameHeader;
    use crate::layout::{Dtype, Role, TensorSpec};
    use crate::pending::Ack;
    use crate::spec::Spec;

    const TEXT: &str = "a = { last = 5 }\nb = { ema = 0.8 }\n";

    #[test]
    fn averages_are_read_and_written_and_others_refused_by_key() {
        let both: std::collections::BTreeMap<String, Average> = toml::from_str(TEXT).unwrap();
        assert_eq!((both["a"], both["b"]), (Average::Last(5), Average::Ema(0.8)));
        for average in both.into_values() {
            assert_eq!(average.to_string().parse(), Ok(average));
            let json = serde_json::to_string(&average).unwrap();
            assert_eq!(serde_json::from_str::<Average>(&json).unwrap(), average);
        }
        for (text, why) in [
            ("{\"last\":1}", "`last` is 1"),
            ("{\"last\":101}", "`last` is 101"),
            ("{\"ema\":0.0}", "`ema` is 0"),
            ("{\"ema\":0.96}", "`ema` is 0.96"),
            ("{}", "an average is"),
            ("{\"last\":2,\"ema\":0.5}", "an average is"),
        ] {
            let error = serde_json::from_str::<Average>(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        for text in ["", "last", "last=x", "mean=2", "ema=NaN", "last=-1"] {
            assert!(text.parse::<Average>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_average_needs_no_version_0_and_no_update_that_hardly_counts() {
        let needs = |average: Average| [0, 1, 2, 5, 1000].map(|version| average.updates(version));
        assert_eq!(needs(Average::Last(5)), [0, 0, 1, 4, 4]);
        assert_eq!(needs(Average::Ema(0.8)), [0, 0, 1, 4, 30]);
        assert_eq!(Average::Ema(0.95).updates(u64::MAX), 134);
    }

    /// Versions 1 to `n` of a model with a counter, and the exact frames between them, the newest first.
    fn versions(n: usize) -> (Arc<Layout>, Vec<Vec<f32>>, Vec<Vec<u8>>) {
        let spec = |name: &str, dtype, role| TensorSpec::new(name, &[2], dtype, role);
        let layout = Layout::of([
            spec("a", Dtype::F32, Role::Trained),
            spec("b", Dtype::F32, Role::Buffer),
            spec("c", Dtype::I64, Role::Counter),
        ]);
        let layout = Arc::new(layout.unwrap());
        let mut encoder = Encoder::new(Arc::clone(&layout), &Spec::exact()).unwrap();
        let (mut all, mut frames) = (vec![vec![1.0, -2.0, 0.5, 4.0, 7.0, 1.0]], Vec::new());
        for round in 2..=n as u64 {
            let x = round as f32;
            let mut update = vec![x, 0.25 * x, -x, 8.0, 1.0, 2.0];
            let after = all.last().unwrap().iter().zip(&update).map(|(w, u)| w + u).collect();
            all.push(after);
            let header = FrameHeader {
                kind: FrameKind::ModelUpdate,
                round,
                seed: 0,
            };
            let pending = encoder.encode(&mut update, header).unwrap();
            encoder.settle(&pending, Ack::Accepted).unwrap();
            frames.insert(0, pending.frame);
        }
        (layout, all, frames)
    }

    #[test]
    fn the_mean_and_the_moving_average_are_those_of_the_versions() {
        for n in [1, 2, 4, 9] {
            let (layout, all, frames) = versions(n);
            let newest = all.last().unwrap();
            let averaged = |average: Average| {
                let mut model = newest.clone();
                let updates = &frames[..average.updates(n as u64)];
                average.apply(&layout, updates, &mut model).unwrap();
                model
            };
            let mean = |at: usize| {
                let last = &all[all.len().saturating_sub(4)..];
                last.iter().map(|model| model[at]).sum::<f32>() / last.len() as f32
            };
            let moving = |at: usize| all[1..].iter().fold(all[0][at], |a, w| 0.5 * a + 0.5 * w[at]);
            for at in 0..4 {
                assert!((averaged(Average::Last(4))[at] - mean(at)).abs() < 1e-5, "{n} {at}");
                assert!((averaged(Average::Ema(0.5))[at] - moving(at)).abs() < 1e-5, "{n} {at}");
            }
            assert_eq!(
                averaged(Average::Last(4))[4..],
                newest[4..],
                "counters are not averaged"
            );
        }
    }

    #[test]
    fn a_frame_that_is_no_model_update_is_refused() {
        let (layout, all, mut frames) = versions(3);
        let average = Average::Last(3);
        let apply = |frames: &[Vec<u8>]| average.apply(&layout, frames, &mut all[2].clone());
        frames[0].truncate(9);
        assert!(apply(&frames).is_err());
        frames[0] = crate::snapshot(&layout, &all[0], 3).unwrap();
        assert!(apply(&frames).unwrap_err().to_string().contains("model updates"));
    }
}
