//! What was done in the first slot, as a decoder reads it.

use std::fmt;

use crate::error::Error;
use crate::layout::Shape;
use crate::reduce::METHODS;
use crate::reduce::form::{Form, Numbers, Part};
use crate::reduce::low_rank::RANK;
use crate::reduce::planes::Planes;
use crate::reduce::{keep, support};
use crate::sink::Sink;
use crate::wire::{Reader, Writer};

/// The form of a section and its numbers.
#[derive(Clone, Copy)]
pub struct Reduce {
    form: &'static Form,
    numbers: Numbers,
}

impl Reduce {
    /// Every value: no indices.
    pub const KEEP: Self = Self {
        form: keep::METHOD.form,
        numbers: [0; 4],
    };

    pub(crate) fn new(form: &'static Form, numbers: Numbers) -> Self {
        Self { form, numbers }
    }

    /// What was done to `len` values, in words.
    pub fn words(&self, len: usize) -> String {
        (self.form.words)(self.numbers, len)
    }

    /// Number of columns of the factors, or of singular components, if the section has any.
    pub fn rank(&self) -> Option<u32> {
        let mut numbers = self.form.numbers.iter().zip(self.numbers);
        numbers.find(|(of, _)| of.name == RANK.name).map(|(_, rank)| rank)
    }

    /// Whether the section is indexed values, and all others are zero.
    pub(crate) fn is_support(&self) -> bool {
        self.form.id() == support::FORM.id()
    }

    /// Whether no value is sent: all are zero.
    pub fn is_zero(&self) -> bool {
        self.is_support() && self.numbers == [0; 4]
    }

    /// Two bits of a recipe's tag.
    pub(crate) fn tag(&self) -> u8 {
        self.form.tag
    }

    /// The planes of a section of `shape`, those without a value left out.
    pub(crate) fn parts(&self, shape: Shape) -> Vec<Part> {
        let mut parts = (self.form.parts)(self.numbers, shape);
        parts.retain(|part| part.shape.len() > 0);
        parts
    }

    pub(crate) fn decode(&self, planes: &Planes<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
        if planes.parts.is_empty() {
            Ok(())
        } else {
            (self.form.decode)(self.numbers, planes, sink)
        }
    }

    /// Appends what follows the tag.
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        self.form.second.into_iter().for_each(|second| out.u8(second));
        let numbers = self.form.numbers.iter().zip(self.numbers);
        numbers.for_each(|(of, number)| of.write(number, out));
    }

    /// Reads what follows `tag`, for a tensor of `shape`.
    pub(crate) fn read(tag: u8, reader: &mut Reader<'_>, shape: Shape) -> Result<Self, Error> {
        let forms = METHODS.iter().map(|entry| entry.form).filter(|form| form.tag == tag);
        let second = if forms.clone().any(|form| form.second.is_some()) {
            Some(reader.u8("reduce")?)
        } else {
            None
        };
        let form = { forms }.find(|form| form.second == second);
        let form = form.ok_or_else(|| reader.corrupt("reduce"))?;
        let mut numbers = [0; 4];
        for (at, of) in form.numbers.iter().enumerate() {
            numbers[at] = of.read(numbers, reader, shape)?;
        }
        Ok(Self { form, numbers })
    }
}

impl PartialEq for Reduce {
    fn eq(&self, other: &Self) -> bool {
        self.form.id() == other.form.id() && self.numbers == other.numbers
    }
}

impl fmt::Debug for Reduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.form, self.numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_every_method_round_trips_and_all_others_are_refused() {
        assert_eq!(METHODS[0].form.id(), Reduce::KEEP.form.id());
        let shape = Shape { rows: 30, cols: 40 };
        for tag in 0..4 {
            for second in 0..=255 {
                let known = METHODS.iter().map(|entry| entry.form);
                let known = known.filter(|form| form.tag == tag && form.second.is_none_or(|of| of == second));
                let ids: Vec<_> = known.map(Form::id).collect();
                assert!(
                    ids.iter().all(|id| *id == ids[0]),
                    "tag {tag}, {second} is of several forms"
                );
                let mut bytes = vec![1; 9];
                if ids.first().is_some_and(|(_, second)| second.is_some()) || ids.is_empty() {
                    bytes[0] = second;
                }
                let mut reader = Reader::new(&bytes);
                let read = Reduce::read(tag, &mut reader, shape);
                assert_eq!(read.is_ok(), !ids.is_empty(), "tag {tag}, {second}");
                let Ok(read) = read else { continue };
                assert_eq!(read.form.id(), ids[0]);
                let mut again = Vec::new();
                read.write(&mut Writer::new(&mut again));
                assert_eq!(again, bytes[..reader.offset()]);
                assert!(!read.words(1200).is_empty() && !read.parts(shape).is_empty());
            }
        }
    }

    #[test]
    fn each_method_draws_its_own_random_numbers() {
        let mut streams: Vec<usize> = METHODS.iter().map(|entry| entry.stream).filter(|&of| of > 0).collect();
        streams.sort_unstable();
        assert!(streams.windows(2).all(|pair| pair[0] < pair[1]), "{streams:?}");
    }

    #[test]
    fn factors_and_components_have_a_rank() {
        let read = |tag, bytes: &[u8]| Reduce::read(tag, &mut Reader::new(bytes), Shape { rows: 30, cols: 40 });
        let ranks = [(0, &[][..]), (1, &[7]), (2, &[2, 9]), (3, &[3, 5]), (3, &[0, 9])].map(|(tag, bytes)| {
            read(tag, bytes)
                .unwrap_or_else(|error| panic!("{tag} {bytes:?}: {error}"))
                .rank()
        });
        assert_eq!(ranks, [None, None, Some(2), Some(5), None]);
    }
}
