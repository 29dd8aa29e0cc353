//! How much of an update each section of its frame carries. The figures are in thousandths, both on the wire and in sums, so
//! that sums are exact and a section takes five bytes.

use fl_compress::Fidelity;

use crate::error::ProtocolError;
use crate::limits::MAX_FIGURES;
use crate::wire;

// One, in thousandths.
const UNIT: i16 = 1000;

/// The figures of one section. The server cannot verify them, so displays use them and decisions do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionFidelity {
    cosine: i16,
    kept: i16,
    age: u32,
}

impl SectionFidelity {
    /// Cosine of the decoded to the raw update (see [`Fidelity::cosine`]), in thousandths: -1000 to 1000.
    pub fn cosine(&self) -> i16 {
        self.cosine
    }

    /// Energy kept (see [`Fidelity::kept`]), in thousandths: -1000 to 1000.
    pub fn kept(&self) -> i16 {
        self.kept
    }

    /// Age of the residual in updates of the sender (see [`Fidelity::age`]).
    pub fn age(&self) -> u32 {
        self.age
    }

    /// The figures of a frame; none if it has more than [`MAX_FIGURES`] sections.
    pub fn of(sections: &[Fidelity]) -> Vec<Self> {
        if sections.len() > MAX_FIGURES {
            return Vec::new();
        }
        sections.iter().map(Self::from).collect()
    }
}

impl From<&Fidelity> for SectionFidelity {
    fn from(section: &Fidelity) -> Self {
        // The encoder clamps them; a NaN would become 0.
        let thousandths = |share: f32| (share * f32::from(UNIT)).round().clamp(-1000.0, 1000.0) as i16;
        Self {
            cosine: thousandths(section.cosine),
            kept: thousandths(section.kept),
            age: section.age,
        }
    }
}

impl wire::Fidelity {
    pub(crate) fn from_sections(sections: &[SectionFidelity]) -> Option<Self> {
        (!sections.is_empty()).then(|| Self {
            cosine: sections.iter().map(|section| section.cosine.into()).collect(),
            kept: sections.iter().map(|section| section.kept.into()).collect(),
            age: sections.iter().map(|section| section.age).collect(),
        })
    }

    /// The figures of each section; empty if there is no message.
    pub(crate) fn sections(message: Option<Self>) -> Result<Vec<SectionFidelity>, ProtocolError> {
        let Self { cosine, kept, age } = message.unwrap_or_default();
        if cosine.len() > MAX_FIGURES || kept.len() != cosine.len() || age.len() != cosine.len() {
            let why = format!(
                "{} cosines, {} energies and {} ages are not one of each for at most {MAX_FIGURES} sections",
                cosine.len(),
                kept.len(),
                age.len()
            );
            return Err(ProtocolError::invalid("fidelity", why));
        }
        let thousandths = |value: i32| {
            let value = i16::try_from(value).ok().filter(|value| (-UNIT..=UNIT).contains(value));
            value.ok_or_else(|| ProtocolError::invalid("fidelity", "a share is from -1000 to 1000 thousandths"))
        };
        let sections = cosine.into_iter().zip(kept).zip(age);
        sections
            .map(|((cosine, kept), age)| {
                Ok(SectionFidelity {
                    cosine: thousandths(cosine)?,
                    kept: thousandths(kept)?,
                    age,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections() -> Vec<SectionFidelity> {
        let section = |cosine, kept, age| Fidelity {
            cosine,
            kept,
            nonzeros: 0,
            age,
        };
        SectionFidelity::of(&[section(1.0, -1.0, 0), section(0.0204, 0.9996, u32::MAX)])
    }

    #[test]
    fn figures_survive_the_wire_in_thousandths() {
        let found = sections();
        assert_eq!((found[0].cosine(), found[0].kept(), found[0].age()), (1000, -1000, 0));
        assert_eq!(
            (found[1].cosine(), found[1].kept(), found[1].age()),
            (20, 1000, u32::MAX)
        );
        let wire = wire::Fidelity::from_sections(&found);
        assert_eq!(wire::Fidelity::sections(wire).unwrap(), found);
        assert_eq!(wire::Fidelity::sections(None).unwrap(), []);
        assert_eq!(wire::Fidelity::from_sections(&[]), None);
    }

    #[test]
    fn figures_out_of_range_or_of_another_number_are_refused() {
        let refused = |change: fn(&mut wire::Fidelity)| {
            let mut wire = wire::Fidelity::from_sections(&sections()).unwrap();
            change(&mut wire);
            wire::Fidelity::sections(Some(wire)).unwrap_err().to_string()
        };
        for text in [
            refused(|wire| wire.cosine[0] = 1001),
            refused(|wire| wire.kept[1] = i32::MIN),
            refused(|wire| wire.cosine[0] = 70_000),
            refused(|wire| wire.age.truncate(1)),
            refused(|wire| wire.kept.push(1)),
            refused(|wire| {
                for shares in [&mut wire.cosine, &mut wire.kept] {
                    shares.resize(MAX_FIGURES + 1, 0);
                }
                wire.age.resize(MAX_FIGURES + 1, 0);
            }),
        ] {
            assert!(text.contains("`fidelity`"), "{text}");
        }
    }
}
