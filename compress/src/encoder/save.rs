//! Saves and loads the state of an encoder: memory, learned state and pending frame survive a crash.

use std::sync::Arc;

use crate::digest::Digest;
use crate::encoder::bits::BitsController;
use crate::encoder::budget_agent::BudgetAgent;
use crate::encoder::group::GroupState;
use crate::encoder::update::Encoder;
use crate::error::Error;
use crate::fidelity::Fidelity;
use crate::finite::all_finite;
use crate::frame::view::Frame;
use crate::layout::Layout;
use crate::memory::METHODS;
use crate::pending::Pending;
use crate::rules;
use crate::rules::rule_state::RuleState;
use crate::spec::Spec;
use crate::stages::Stages;
use crate::wire::{Reader, Writer, seal, unseal};

const MAGIC: &[u8; 4] = b"FLCS";
const VERSION: [u8; 2] = [1, 0];
const HAS_MEMORY: u8 = 1;
const HAS_PENDING: u8 = 2;
const HAS_BITS: u8 = 4;
const HAS_BUDGET: u8 = 8;
/// More than a state has beside vectors, factors, what it has of each section, and the frame: a network, an agent.
const MOST_FIXED: u64 = 64 * 1024;
/// More than a state has of each section beside its factors: a bandit is the longest.
const MOST_OF_SECTION: u64 = 16 * 1024;

impl Encoder {
    /// A bound on the bytes that [`Encoder::save`] appends, whatever the spec, with a pending frame of at most `frame` bytes: a
    /// longer file is not a state, and is not worth reading.
    pub fn most_saved(layout: &Layout, frame: u64) -> u64 {
        let (values, tensors) = (layout.len() as u64, layout.tensors().len() as u64);
        let vectors = METHODS.iter().map(|entry| entry.vectors as u64).max().unwrap_or(0);
        // Factors of low rank are no longer than their tensors.
        4 * (vectors + 1) * values + frame + MOST_OF_SECTION * (tensors + 1) + MOST_FIXED
    }

    /// Appends memory and pending frame to `out`: magic, version, layout fingerprint, vectors of the memory, what was learned
    /// of each section, the frame with its fidelity, checksum. `pending` must be the pending frame of this encoder; any other is
    /// omitted. Without it, the loaded encoder has no pending frame, as after [`crate::Ack::Dropped`].
    pub fn save(&self, pending: Option<&Pending>, out: &mut Vec<u8>) {
        let start = out.len();
        let pending = pending.filter(|pending| self.is_pending(pending));
        let kind = self.memory().entry().kind.unwrap_or(0);
        let vectors = self.memory().vectors();
        let flag = |flag, set: bool| if set { flag } else { 0 };
        let mut writer = Writer::new(out);
        writer.head(MAGIC, VERSION);
        writer.u8(flag(HAS_MEMORY, !vectors.is_empty())
            | flag(HAS_PENDING, pending.is_some())
            | flag(HAS_BITS, self.bits().is_some())
            | flag(HAS_BUDGET, self.agent().is_some()));
        writer.u8(kind);
        writer.u64(self.layout().fingerprint());
        vectors.into_iter().for_each(|vector| writer.f32s(vector));
        writer.varint(self.groups().len() as u64);
        self.groups().iter().for_each(|group| group.write(&mut writer));
        if let Some(pending) = pending {
            let stages = &pending.stages;
            let counts = [
                stages.fp32,
                stages.reduced,
                stages.quantized,
                stages.coded,
                stages.entropy_bound.to_bits(),
            ];
            counts.into_iter().for_each(|count| writer.u64(count));
            writer.u64(pending.frame.len() as u64);
            writer.bytes(&pending.frame);
            pending.fidelity.iter().for_each(|section| section.write(&mut writer));
        }
        self.bits().into_iter().for_each(|bits| bits.write(&mut writer));
        self.agent().into_iter().for_each(|agent| agent.write(&mut writer));
        seal(start, out);
    }

    /// Reads the output of [`Encoder::save`]. The state is kept if the spec has changed, unless the new spec has no
    /// memory.
    ///
    /// # Errors
    /// `Truncated`, `Corrupt`, `NotFinite`; `Mismatch` for another layout, version or kind of memory; `Usage` as
    /// [`Encoder::new`].
    pub fn load(layout: Arc<Layout>, spec: &Spec, bytes: &[u8]) -> Result<(Self, Option<Pending>), Error> {
        let mut reader = unseal(bytes, MAGIC, VERSION)?;
        let flags = reader.u8("flags")?;
        let kind = reader.u8("kind of memory")?;
        let saved_by = METHODS.iter().find(|entry| entry.kind == Some(kind));
        let saved_by = saved_by.ok_or_else(|| reader.corrupt("kind of memory"))?;
        if flags > HAS_MEMORY | HAS_PENDING | HAS_BITS | HAS_BUDGET {
            return Err(reader.corrupt("flags"));
        }
        if reader.u64("layout fingerprint")? != layout.fingerprint() {
            return Err(Error::Mismatch("the state belongs to another layout".to_owned()));
        }
        let mut encoder = Self::new(layout, spec)?;
        if flags & HAS_MEMORY != 0 {
            let wanted = encoder.memory().entry();
            if wanted.kind.is_some_and(|wanted| wanted != kind) {
                return Err(Error::Mismatch(format!(
                    "the state has the memory `{}`, but the spec requires `{}`; start with a new state",
                    saved_by.info.name, wanted.info.name
                )));
            }
            let len = encoder.layout().len();
            let mut kept = encoder.memory_mut().vectors_mut().into_iter();
            for _ in 0..saved_by.vectors {
                let values = reader.f32s(len, "memory")?;
                if let Some(vector) = kept.next() {
                    fill(vector, values)?;
                }
            }
        }
        read_learned(&mut reader, encoder.groups_mut())?;
        let mut pending = match flags & HAS_PENDING {
            0 => None,
            _ => Some(read_pending(&mut reader, &encoder)?),
        };
        if flags & HAS_BITS != 0 {
            BitsController::read(&mut reader, encoder.bits_mut())?;
        }
        if flags & HAS_BUDGET != 0 {
            BudgetAgent::read(&mut reader, encoder.agent_mut())?;
            let asked = encoder.asked();
            pending = pending.map(|pending| Pending { asked, ..pending });
        }
        for group in encoder.groups() {
            group.method.reduce.method().accepts(&group.rule_state)?;
        }
        reader.finish("bytes after the state")?;
        encoder.restore_pending(pending.as_ref());
        Ok((encoder, pending))
    }
}

fn fill(vector: &mut [f32], values: impl Iterator<Item = f32>) -> Result<(), Error> {
    vector.iter_mut().zip(values).for_each(|(place, value)| *place = value);
    if all_finite(vector) {
        return Ok(());
    }
    Err(Error::NotFinite("memory".to_owned()))
}

impl GroupState {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.f64(self.ratio);
        self.rule_state.write(writer);
        let warm = self.warm.as_deref().unwrap_or_default();
        writer.varint(warm.len() as u64);
        writer.f32s(warm);
        writer.varint(self.silent.into());
    }
}

/// Ignores the learned state of a spec with other sections.
fn read_learned(reader: &mut Reader<'_>, groups: &mut [GroupState]) -> Result<(), Error> {
    let count = reader.varint("number of sections")?;
    let fits = count == groups.len() as u64;
    for at in 0..count {
        let ratio = reader.f64("ratio of a budget")?;
        if !(0.01..=100.0).contains(&ratio) {
            return Err(reader.corrupt("ratio of a budget"));
        }
        let rule_state = RuleState::read(reader, rules::is_kind)?;
        let len = reader.varint("length of a factor")?;
        let len = usize::try_from(len).ok().filter(|&len| len <= u32::MAX as usize);
        let len = len.ok_or_else(|| reader.corrupt("length of a factor"))?;
        let values = reader.f32s(len, "factor")?;
        let silent = read_age(reader)?;
        let group = groups.get_mut(at as usize).filter(|_| fits);
        let Some(group) = group else { continue };
        (group.ratio, group.rule_state, group.silent) = (ratio, rule_state, silent);
        group.warm = None;
        if len > 0 && len % group.group.shape.cols == 0 && len <= group.group.shape.len() {
            let mut warm = vec![0.0; len];
            fill(&mut warm, values)?;
            group.warm = Some(warm);
        }
    }
    Ok(())
}

fn read_pending(reader: &mut Reader<'_>, encoder: &Encoder) -> Result<Pending, Error> {
    let mut count = || reader.u64("stages");
    let mut stages = Stages {
        fp32: count()?,
        reduced: count()?,
        quantized: count()?,
        coded: count()?,
        entropy_bound: f64::from_bits(count()?),
        framed: 0,
    };
    if !(stages.entropy_bound.is_finite() && stages.entropy_bound >= 0.0) {
        return Err(reader.corrupt("stages"));
    }
    stages.framed = reader.u64("frame length")?;
    let len = usize::try_from(stages.framed).map_err(|_| reader.corrupt("frame length"))?;
    let bytes = reader.take(len, "pending frame")?;
    let frame = Frame::parse(bytes, encoder.layout())?;
    frame.verify()?;
    let len = |places: &[usize]| {
        let tensors = encoder.layout().tensors();
        places.iter().map(|&at| tensors[at].len as u64).sum()
    };
    let fidelity = frame.places().map(|places| Fidelity::read(reader, len(places)));
    Ok(Pending {
        header: frame.header(),
        frame: bytes.to_vec(),
        digest: Digest::of(bytes),
        stages,
        asked: encoder.asked(),
        fidelity: fidelity.collect::<Result<_, _>>()?,
    })
}

impl Fidelity {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.f32s(&[self.cosine, self.kept]);
        writer.varint(self.nonzeros);
        writer.varint(self.age.into());
    }

    fn read(reader: &mut Reader<'_>, len: u64) -> Result<Self, Error> {
        let fidelity = Self {
            cosine: reader.f32("cosine")?,
            kept: reader.f32("energy kept")?,
            nonzeros: reader.varint("number of values that are not zero")?,
            age: read_age(reader)?,
        };
        let valid = fidelity.is_valid(len).then_some(fidelity);
        valid.ok_or_else(|| reader.corrupt("fidelity of a section"))
    }
}

fn read_age(reader: &mut Reader<'_>) -> Result<u32, Error> {
    let age = reader.varint("age of a residual")?;
    u32::try_from(age).map_err(|_| reader.corrupt("age of a residual"))
}
