//! The values of a frame: decoded whole, added to a sum, or measured beside other values.

use std::ops::Range;

use crate::error::Error;
use crate::fidelity::Products;
use crate::frame::decoded::Decoded;
use crate::frame::groups::TensorGroup;
use crate::frame::measuring::Measuring;
use crate::frame::view::Frame;
use crate::layout::{Role, Tensor};
use crate::section::decode::Section;
use crate::section::sinks::{Add, Both, Largest, MeasuredByTensor, MeasuringSink, Set};
use crate::sink::Sink;
use crate::threads;

impl<'a> Frame<'a> {
    /// Passes the decoded values to `sink` with their indices in the model. All ways to decode a frame are sinks of this.
    ///
    /// # Errors
    /// `Corrupt`, `Truncated`, `NotFinite`.
    pub(crate) fn decode_into(&self, sink: &mut impl Sink) -> Result<(), Error> {
        let mut sections = self.sections.iter();
        sections.try_for_each(|(unit, section)| section.decode(&mut unit.spread(sink)))
    }

    /// Decodes everything and returns the largest magnitude. `Ok` guarantees that [`Frame::accumulate`] succeeds and
    /// adds no value beyond that magnitude. Uses constant memory.
    ///
    /// # Errors
    /// `Corrupt`, `Truncated`, `NotFinite`.
    pub fn verify(&self) -> Result<f32, Error> {
        let mut largest = Largest::default();
        self.decode_into(&mut largest)?;
        Ok(largest.0)
    }

    /// Overwrites `out` with the decoded values. A snapshot decodes bit for bit, including the sign of a zero. Shapes:
    /// `out: [layout.len()]`.
    ///
    /// # Errors
    /// As [`Frame::verify`]; then `out` is unspecified. `Usage` if `out` has another length.
    pub fn decode(&self, out: &mut [f32]) -> Result<(), Error> {
        self.layout.expect_len(out)?;
        if self.sections.iter().any(|(_, section)| !section.recipe().is_lossless()) {
            out.fill(0.0);
        }
        self.decode_into(&mut Set(out))
    }

    /// Adds `weight` times the decoded update to `acc`. Shapes: `acc: [layout.len()]`.
    ///
    /// # Errors
    /// As [`Frame::verify`]; then `acc` is unspecified. `Usage` if `acc` has another length.
    pub fn accumulate(&self, weight: f32, acc: &mut [f32]) -> Result<(), Error> {
        self.layout.expect_len(acc)?;
        self.decode_into(&mut Add { weight, acc })
    }

    /// Adds `weight` times the decoded values of trained tensors to `acc`: what a receiver adds for a frame that names
    /// this one as its predictor. Shapes: `acc: [layout.len()]`.
    ///
    /// # Errors
    /// As [`Frame::accumulate`].
    pub fn accumulate_trained(&self, weight: f32, acc: &mut [f32]) -> Result<(), Error> {
        self.layout.expect_len(acc)?;
        let mut sink = Add { weight, acc };
        self.trained()
            .try_for_each(|(unit, section)| section.decode(&mut unit.spread(&mut sink)))
    }

    /// The sections of trained tensors.
    fn trained(&self) -> impl Iterator<Item = &(TensorGroup, Section<'a>)> {
        self.sections.iter().filter(|(unit, _)| unit.role == Role::Trained)
    }

    /// As [`Frame::accumulate`]; also counts the nonzero decoded values of each section, in the order of [`Frame::sections`], and
    /// returns the L2 norms of ranges of the values, as [`Decoded::norms`] finds them; `None` if the frame has merged sections or
    /// parts that add up. Uses constant memory.
    ///
    /// # Errors
    /// As [`Frame::accumulate`].
    pub fn accumulate_measured<const N: usize>(
        &self,
        weight: f32,
        acc: &mut [f32],
        ranges: [Range<usize>; N],
    ) -> Result<(Vec<u64>, Option<[f64; N]>), Error> {
        self.layout.expect_len(acc)?;
        let mut sink = Measuring::new(weight, acc, ranges);
        let mut counts = Vec::with_capacity(self.sections.len());
        for (unit, section) in &self.sections {
            sink.nonzeros = 0;
            section.decode(&mut unit.spread(&mut sink))?;
            counts.push(sink.nonzeros.min(unit.shape.len() as u64));
        }
        Ok((counts, sink.norms()))
    }

    /// As [`Frame::verify`], and replaces the values of `decoded` by those of this frame, if they take at most `limit` bytes.
    ///
    /// # Errors
    /// As [`Frame::verify`]; then `decoded` is unspecified.
    pub fn decode_to(&self, limit: usize, decoded: &mut Decoded) -> Result<(), Error> {
        decoded.clear(limit);
        for (unit, section) in &self.sections {
            decoded.begin_section();
            section.decode(&mut unit.spread(decoded))?;
            decoded.end_section(unit.shape.len());
        }
        Ok(())
    }

    /// As [`Frame::accumulate`]; also keeps what is decoded, as [`Frame::decode_to`] does. Decodes once.
    ///
    /// # Errors
    /// As [`Frame::accumulate`]; then `decoded` is unspecified, too.
    pub fn accumulate_to(
        &self,
        weight: f32,
        acc: &mut [f32],
        limit: usize,
        decoded: &mut Decoded,
    ) -> Result<(), Error> {
        self.layout.expect_len(acc)?;
        let mut sum = Add { weight, acc };
        decoded.clear(limit);
        for (unit, section) in &self.sections {
            decoded.begin_section();
            section.decode(&mut unit.spread(&mut Both(&mut sum, decoded)))?;
            decoded.end_section(unit.shape.len());
        }
        Ok(())
    }

    /// Products of the decoded update with `values` and `other` for each section, in the order of [`Frame::sections`].
    /// With `subtract`, also subtracts the decoded update from `values`. The result does not depend on `threads`.
    /// Shapes: `values, other: [layout.len()]`.
    pub(crate) fn measure(
        &self,
        threads: usize,
        subtract: bool,
        values: &mut [f32],
        other: Option<&[f32]>,
    ) -> Result<Vec<Products>, Error> {
        let mut all = vec![Products::default(); self.sections.len()];
        // Values of a merged section lie in several places: each is measured with all values, one after another.
        for ((unit, section), products) in self.sections.iter().zip(&mut all) {
            if unit.range().is_some() {
                continue;
            }
            let mut others = other.map(|other| unit.slices(other));
            for values in unit.slices(values) {
                products.encoded(values, others.as_mut().and_then(Iterator::next));
            }
            let mut sink = MeasuringSink {
                values: &mut *values,
                other,
                subtract,
                products: *products,
            };
            section.decode(&mut unit.spread(&mut sink))?;
            *products = sink.products;
        }
        // Sections of one tensor lie in the order of the layout: each has a part of the values to itself.
        let mut jobs = Vec::with_capacity(self.sections.len());
        let mut rest = values;
        let mut end = 0;
        for ((unit, section), products) in self.sections.iter().zip(&mut all) {
            let Some(range) = unit.range() else { continue };
            let (part, after) = std::mem::take(&mut rest)[range.start - end..].split_at_mut(range.len());
            rest = after;
            end = range.end;
            jobs.push((section, range, part, products));
        }
        let inner = threads.div_ceil(self.sections.len().max(1));
        let measured = threads::map(jobs, threads, |(section, range, values, products)| {
            let other = other.map(|other| &other[range]);
            products.encoded(values, other);
            let mut sink = MeasuringSink {
                values,
                other,
                subtract,
                products: *products,
            };
            section.measure(inner, &mut sink)?;
            *products = sink.products;
            Ok(())
        });
        measured.into_iter().collect::<Result<(), Error>>()?;
        Ok(all)
    }

    /// Products of the decoded trained values with `values` for each tensor, in the order of the layout; those of buffers
    /// and counters are zero. With `subtract`, also subtracts the decoded trained values from `values`. Shapes:
    /// `values: [layout.len()]`.
    pub(crate) fn measure_by_tensor(&self, subtract: bool, values: &mut [f32]) -> Result<Vec<Products>, Error> {
        self.layout.expect_len(values)?;
        let mut products = vec![Products::default(); self.layout.tensors().len()];
        for (unit, section) in self.trained() {
            match (unit.range(), unit.tensors.as_slice()) {
                (Some(range), &[tensor]) => {
                    let mut sink = MeasuringSink {
                        values: &mut values[range],
                        other: None,
                        subtract,
                        products: Products::default(),
                    };
                    section.decode(&mut sink)?;
                    products[tensor] = sink.products;
                }
                _ => section.decode(&mut unit.spread(&mut MeasuredByTensor {
                    layout: self.layout,
                    values,
                    subtract,
                    products: &mut products,
                }))?,
            }
        }
        Ok(products)
    }

    /// Decodes one tensor at a time, in the order of the layout, and passes it to `take` with its values, which equal
    /// those of [`Frame::decode`]. Memory: the largest tensor and all merged tensors. Shapes: `values: [tensor.len]`.
    ///
    /// # Errors
    /// As [`Frame::verify`], possibly after `take` has received earlier tensors; `Usage` if the memory for a tensor
    /// cannot be allocated; errors of `take`.
    pub fn decode_each<E: From<Error>>(&self, mut take: impl FnMut(&Tensor, &[f32]) -> Result<(), E>) -> Result<(), E> {
        let (mut alone, together): (Vec<_>, Vec<_>) =
            self.sections.iter().partition(|(unit, _)| unit.range().is_some());
        alone.sort_by_key(|(unit, _)| unit.tensors.first());
        let mut alone = alone.into_iter();
        let mut small = Vec::new();
        let mut firsts = std::collections::BTreeMap::new();
        let mut buffer = Vec::new();
        for (unit, section) in together {
            decode_alone(section, unit.shape.len(), &mut buffer)?;
            firsts.extend(unit.firsts().map(|(at, first)| (at, small.len() + first)));
            if small.is_empty() {
                std::mem::swap(&mut small, &mut buffer);
            } else {
                small.extend_from_slice(&buffer);
            }
        }
        for (at, tensor) in self.layout.tensors().iter().enumerate() {
            if tensor.len == 0 {
                take(tensor, &[])?;
            } else if let Some(&first) = firsts.get(&at) {
                take(tensor, &small[first..first + tensor.len])?;
            } else if let Some((_, section)) = alone.next() {
                decode_alone(section, tensor.len, &mut buffer)?;
                take(tensor, &buffer)?;
            }
        }
        Ok(())
    }
}

/// Replaces `out` with the `len` values of a section.
fn decode_alone(section: &Section<'_>, len: usize, out: &mut Vec<f32>) -> Result<(), Error> {
    out.clear();
    out.try_reserve_exact(len)
        .map_err(|_| Error::Usage(format!("cannot allocate memory for the {len} values of a tensor")))?;
    out.resize(len, 0.0);
    section.decode(&mut Set(out))
}
