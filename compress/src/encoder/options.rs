//! How one update is encoded: what accompanies it, and what its frame may take.

use crate::encoder::task::{ByteLimit, FrameLimits};
use crate::error::Error;
use crate::frame::header::{FrameHeader, FrameKind};
use crate::frame::view::Frame;
use crate::layout::Layout;
use crate::rounded::ModelRounding;
use crate::spec::budget::Budget;
use crate::weights::expect_squares;

/// What may accompany an update, and limits of its frame.
#[derive(Debug, Clone, Copy, Default)]
pub struct EncodeOptions<'a> {
    /// The decoded predictor (see [`Encoder::encode_against`](crate::Encoder::encode_against)).
    pub predictor: Option<&'a Frame<'a>>,
    /// The buffers to which those of the update are added, for a spec that rounds them: `[layout.buffers().len()]`. Without them
    /// the frame has buffers that are exact.
    pub buffers: Option<&'a [f32]>,
    /// Mean over the steps of a training of the squared gradient of each trained value, for rules that choose by them:
    /// `[layout.trained().len()]`, finite and not negative. Rules take the magnitude alone without them.
    pub squared_gradients: Option<&'a [f32]>,
    /// Rate of the link over which the frame goes, in millionths of the median of the client's cohort, for rules that choose by
    /// it. Such rules take the median without it.
    pub bandwidth: Option<u32>,
    /// Bytes of this frame, those of buffers and counters included, in place of the spec's budget and its limit of the
    /// error. A budget that an agent chooses holds where it is smaller. A frame that cannot be so small is as small as it can be.
    pub budget: Option<u64>,
    /// Largest size of this frame. It takes precedence over every budget and over a budget's limit of the error, with the
    /// same exception.
    pub most: Option<u64>,
    /// How receivers round the model to which they add this model update (see [`Frame::apply`]). The frame says so; what the
    /// rounding removes is for [`Encoder::keep_back`](crate::Encoder::keep_back).
    pub rounding: Option<ModelRounding>,
}

impl EncodeOptions<'_> {
    /// Succeeds if an update of `delta` with this header may be encoded for `layout`.
    ///
    /// # Errors
    /// `Usage` for a snapshot, a rounding of anything but a model update, lengths that are not those of the layout, or a squared
    /// gradient that is NaN, infinite or negative, naming the tensor and the index within it.
    pub(super) fn check(&self, layout: &Layout, delta: &[f32], header: FrameHeader) -> Result<(), Error> {
        layout.expect_len(delta)?;
        if header.kind == FrameKind::Snapshot {
            return Err(Error::Usage("a snapshot is not an update".to_owned()));
        }
        if self.rounding.is_some() && header.kind != FrameKind::ModelUpdate {
            return Err(Error::Usage("only a model update rounds the model".to_owned()));
        }
        if let Some(squared) = self.squared_gradients {
            let trained = layout.trained();
            if squared.len() != trained.len() {
                let lens = format!(
                    "{} squared gradients for {} trained values",
                    squared.len(),
                    trained.len()
                );
                return Err(Error::Usage(lens));
            }
            for tensor in layout.tensors().iter().filter(|tensor| tensor.offset < trained.end) {
                expect_squares(tensor, &squared[tensor.offset..tensor.offset + tensor.len])?;
            }
        }
        Ok(())
    }

    /// Target size of a frame whose spec asks for `of_spec` bytes.
    pub(super) fn asked(&self, of_spec: Option<u64>) -> Option<u64> {
        let asked = self.budget.or(of_spec);
        asked.into_iter().chain(self.most).min()
    }

    /// What the sections of a frame of `round` with `head` other bytes may take: by its budget, and at most. `values`:
    /// trained ones.
    pub(super) fn limits(&self, of_spec: Option<Budget>, values: usize, head: usize, round: u64) -> FrameLimits {
        let of_frame = |bytes: u64| ByteLimit {
            bytes: bytes.saturating_sub(head as u64),
            counts_aside: true,
            is_firm: false,
            error: None,
        };
        let of_spec = of_spec.map(|budget| {
            let is_firm = matches!(budget, Budget::Bytes(_));
            ByteLimit {
                bytes: budget.bytes(values).saturating_sub(head as u64),
                counts_aside: is_firm,
                is_firm,
                error: budget.error().map(|error| error.at(round)),
            }
        });
        FrameLimits {
            budget: self.budget.map(of_frame).or(of_spec),
            most: self.most.map(of_frame),
        }
    }
}
