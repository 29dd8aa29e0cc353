//! The sending side: what is asked, what was left unsent, and the frame that is on its way.

use std::sync::Arc;

use crate::frame::OVERHEAD;
use crate::memory::Residual;
use crate::rng::Draws;
use crate::seal::seal;
use crate::section::{self, all_finite};
use crate::spec::Method;
use crate::{Digest, Error, Frame, FrameHeader, Layout, Memory, Spec};

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Taken by the receiver: what it decoded is no longer owed.
    Accepted,
    /// Not taken (late, lost, round closed): its content is added back to the residual. Without memory it is lost.
    Refused,
    /// Not taken and not wanted later: its content is forgotten. The residual keeps what the frame did not carry.
    Dropped,
}

/// Bytes of one update after each stage.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stages {
    /// Four bytes a value.
    pub fp32: u64,
    /// After reduce: four bytes a kept value and four an index.
    pub reduced: u64,
    /// After quantize, packed at its plain width, scales included; four bytes an index.
    pub quantized: u64,
    /// After entropy coding: the sum of the sections.
    pub coded: u64,
    /// The whole frame.
    pub framed: u64,
    /// Bytes that coding could not go below: order-0 entropy of each entropy-coded plane, the logarithm of the number of
    /// supports of the same size for indices, the size itself of planes that are packed as asked.
    pub bound: f64,
}

impl Stages {
    fn add(&mut self, section: &Self) {
        self.fp32 += section.fp32;
        self.reduced += section.reduced;
        self.quantized += section.quantized;
        self.coded += section.coded;
        self.bound += section.bound;
    }
}

/// A frame that was encoded and whose fate is not known yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    /// Fixed part of the frame.
    pub header: FrameHeader,
    /// The encoded update.
    pub frame: Vec<u8>,
    /// Digest of `frame`.
    pub digest: Digest,
    /// Bytes after each stage.
    pub stages: Stages,
}

/// Encodes updates of one layout, one after another, and remembers what compression left unsent.
#[derive(Debug)]
pub struct Encoder {
    layout: Arc<Layout>,
    /// One for each tensor.
    methods: Vec<Method>,
    residual: Option<Residual>,
    pending: Option<Digest>,
}

impl Encoder {
    /// An encoder with empty memory.
    ///
    /// # Errors
    /// `Usage` if the spec cannot be met by the layout.
    pub fn new(layout: Arc<Layout>, spec: &Spec) -> Result<Self, Error> {
        let methods = layout.tensors().iter().map(|tensor| *spec.method(tensor)).collect();
        let residual = match spec.memory {
            Memory::None => None,
            Memory::ErrorFeedback { decay } => Some(Residual::new(layout.len(), decay.get() as f32)),
        };
        Ok(Self {
            layout,
            methods,
            residual,
            pending: None,
        })
    }

    /// Encodes `delta` plus the residual; the residual becomes what the frame does not carry. Deterministic in
    /// (spec, memory, delta, header). Shapes: `delta: [layout.len()]`; overwritten as scratch.
    ///
    /// # Errors
    /// `NotFinite` if `delta` (or its sum with the residual) holds NaN or infinity; `Usage` if another frame is pending,
    /// `delta` has another length or a snapshot is asked for. The memory does not change then.
    pub fn encode(&mut self, delta: &mut [f32], header: FrameHeader) -> Result<Pending, Error> {
        if self.pending.is_some() {
            return Err(Error::Usage("a frame is pending: settle it first".to_owned()));
        }
        if delta.len() != self.layout.len() {
            return Err(Error::Usage(format!(
                "{} values for a layout of {}",
                delta.len(),
                self.layout.len()
            )));
        }
        if header.kind == crate::FrameKind::Snapshot {
            return Err(Error::Usage("a snapshot is not an update".to_owned()));
        }
        let (frame, stages) = match &mut self.residual {
            None => {
                if !all_finite(delta) {
                    return Err(Error::NotFinite("value of the update".to_owned()));
                }
                encode_all(&self.layout, &self.methods, delta, header)
            }
            Some(residual) => {
                residual.absorb(delta)?;
                let (frame, stages) = encode_all(&self.layout, &self.methods, &residual.values, header);
                residual.add(-1.0, &Frame::parse(&frame, &self.layout)?)?;
                (frame, stages)
            }
        };
        let digest = Digest::of(&frame);
        self.pending = Some(digest);
        Ok(Pending {
            header,
            frame,
            digest,
            stages,
        })
    }

    /// Tells the memory what became of the pending frame.
    ///
    /// # Errors
    /// `Usage` if `pending` is not the frame that this encoder has pending.
    pub fn settle(&mut self, pending: &Pending, verdict: Verdict) -> Result<(), Error> {
        if !self.is_pending(pending) {
            return Err(Error::Usage(format!("frame {} is not pending", pending.digest)));
        }
        if let (Some(residual), Verdict::Refused) = (&mut self.residual, verdict) {
            residual.add(1.0, &Frame::parse(&pending.frame, &self.layout)?)?;
        }
        self.pending = None;
        Ok(())
    }

    /// Residual by value index: what compression has left unsent; `None` if the spec keeps no memory.
    pub fn residual(&self) -> Option<&[f32]> {
        self.residual.as_ref().map(|residual| residual.values.as_slice())
    }

    pub(crate) fn residual_mut(&mut self) -> Option<&mut [f32]> {
        self.residual.as_mut().map(|residual| residual.values.as_mut_slice())
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn is_pending(&self, pending: &Pending) -> bool {
        self.pending == Some(pending.digest)
    }

    pub(crate) fn restore_pending(&mut self, pending: Option<&Pending>) {
        self.pending = pending.map(|pending| pending.digest);
    }
}

fn encode_all(layout: &Layout, methods: &[Method], values: &[f32], header: FrameHeader) -> (Vec<u8>, Stages) {
    let mut stages = Stages::default();
    let mut frame = Vec::with_capacity(OVERHEAD);
    header.write(layout, &mut frame);
    for (at, (tensor, method)) in layout.tensors().iter().zip(methods).enumerate() {
        let values = &values[tensor.offset..tensor.offset + tensor.len];
        stages.add(&section::encode(
            values,
            tensor.matrix(),
            method,
            Draws::new(header.seed, at),
            &mut frame,
        ));
    }
    seal(0, &mut frame);
    stages.framed = frame.len() as u64;
    (frame, stages)
}
