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
use crate::section::sinks::{Add, Both, Largest, Measured, MeasuredByTensor, Set};
use crate::sink::Sink;
use crate::threads;

impl<'a> Frame<'a> {
    /// Decodes everything and returns the largest magnitude. `Ok` guarantees that [`Frame::accumulate`] succeeds and
    /// adds no value beyond that magnitude. Uses constant memory.
    ///
    /// # Errors
    /// `Corrupt`, `Truncated`, `NotFinite`.
    pub fn verify(&self) -> Result<f32, Error> {
        let mut largest = Largest::default();
        self.sections
            .iter()
            .try_for_each(|(_, section)| section.decode(&mut largest))?;
        Ok(largest.0)
    }

    /// As [`Frame::verify`], and replaces the values of `decoded` by those of this frame, if they take at most `limit` bytes.
    ///
    /// # Errors
    /// As [`Frame::verify`]; then `decoded` is unspecified.
    pub fn decode_to(&self, limit: usize, decoded: &mut Decoded) -> Result<(), Error> {
        decoded.clear(limit);
        for (unit, section) in &self.sections {
            match unit.range() {
                Some(range) => section.decode(&mut decoded.section(range.start))?,
                None => section.decode(&mut unit.spread(&mut decoded.section(0)))?,
            }
            decoded.end_section(unit.shape.len());
        }
        Ok(())
    }

    /// Adds `weight` times the decoded update to `acc`. Shapes: `acc: [layout.len()]`.
    ///
    /// # Errors
    /// As [`Frame::verify`]; then `acc` is unspecified. `Usage` if `acc` has another length.
    pub fn accumulate(&self, weight: f32, acc: &mut [f32]) -> Result<(), Error> {
        self.accumulate_on(1, weight, acc)
    }

    /// As [`Frame::accumulate`], on up to `threads` threads and with bit-identical results.
    ///
    /// # Errors
    /// As [`Frame::accumulate`].
    pub fn accumulate_on(&self, threads: usize, weight: f32, acc: &mut [f32]) -> Result<(), Error> {
        self.check_len(acc)?;
        let spread = |unit: &TensorGroup, section: &Section<'_>, acc: &mut [f32]| {
            section.decode(&mut unit.spread(&mut Add { weight, acc }))
        };
        let add = |section: &Section<'_>, _: Range<usize>, acc: &mut [f32]| section.decode(&mut Add { weight, acc });
        self.on_parts(threads, acc, spread, add).map(drop)
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
        self.check_len(acc)?;
        let mut sink = Measuring::new(weight, acc, ranges);
        let mut counts = Vec::with_capacity(self.sections.len());
        for (unit, section) in &self.sections {
            (sink.from, sink.nonzeros) = (0, 0);
            match unit.range() {
                Some(range) => {
                    sink.from = range.start;
                    section.decode(&mut sink)?;
                }
                None => section.decode(&mut unit.spread(&mut sink))?,
            }
            counts.push(sink.nonzeros.min(unit.shape.len() as u64));
        }
        Ok((counts, sink.norms()))
    }

    /// Adds `weight` times the decoded values of trained tensors to `acc`: what a receiver adds for a frame that names
    /// this one as its predictor. Shapes: `acc: [layout.len()]`.
    ///
    /// # Errors
    /// As [`Frame::accumulate`].
    pub fn accumulate_trained(&self, weight: f32, acc: &mut [f32]) -> Result<(), Error> {
        self.check_len(acc)?;
        let mut trained = self.trained();
        trained.try_for_each(|(unit, section)| section.decode(&mut unit.spread(&mut Add { weight, acc: &mut *acc })))
    }

    /// The sections of trained tensors.
    fn trained(&self) -> impl Iterator<Item = &(TensorGroup, Section<'a>)> {
        self.sections.iter().filter(|(unit, _)| unit.role == Role::Trained)
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
        self.check_len(acc)?;
        decoded.clear(limit);
        for (unit, section) in &self.sections {
            match unit.range() {
                Some(range) => {
                    let record = decoded.section(range.start);
                    let acc = &mut acc[range];
                    section.decode(&mut Both(Add { weight, acc }, record))?;
                }
                None => {
                    let add = Add { weight, acc: &mut *acc };
                    section.decode(&mut unit.spread(&mut Both(add, decoded.section(0))))?;
                }
            }
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
        let inner = threads.div_ceil(self.sections.len().max(1));
        let spread = |unit: &TensorGroup, section: &Section<'_>, values: &mut [f32]| {
            let mut products = Products::default();
            match other {
                Some(other) => unit
                    .slices(values)
                    .zip(unit.slices(other))
                    .for_each(|(values, other)| products.encoded(values, Some(other))),
                None => unit.slices(values).for_each(|values| products.encoded(values, None)),
            }
            let mut sink = Measured {
                values,
                other,
                subtract,
                products,
            };
            section.decode(&mut unit.spread(&mut sink))?;
            Ok(sink.products)
        };
        let one = |section: &Section<'_>, range: Range<usize>, values: &mut [f32]| {
            let other = other.map(|other| &other[range]);
            let mut products = Products::default();
            products.encoded(values, other);
            let mut sink = Measured {
                values,
                other,
                subtract,
                products,
            };
            section.measure(inner, &mut sink)?;
            Ok(sink.products)
        };
        self.on_parts(threads, values, spread, one)
    }

    /// Products of the decoded trained values with `values` for each tensor, in the order of the layout; those of buffers
    /// and counters are zero. With `subtract`, also subtracts the decoded trained values from `values`. Shapes:
    /// `values: [layout.len()]`.
    pub(crate) fn measure_by_tensor(&self, subtract: bool, values: &mut [f32]) -> Result<Vec<Products>, Error> {
        self.check_len(values)?;
        let mut products = vec![Products::default(); self.layout.tensors().len()];
        for (unit, section) in self.trained() {
            match (unit.range(), unit.tensors.as_slice()) {
                (Some(range), &[tensor]) => {
                    let mut sink = Measured {
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

    /// Calls `one` for each section of one tensor with the range of that tensor and its part of `acc`, in parallel;
    /// calls `several` for each merged section with all of `acc`. Returns the results in the order of the sections.
    fn on_parts<R: Send>(
        &self,
        threads: usize,
        acc: &mut [f32],
        several: impl Fn(&TensorGroup, &Section<'a>, &mut [f32]) -> Result<R, Error>,
        one: impl Fn(&Section<'a>, Range<usize>, &mut [f32]) -> Result<R, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        let mut results = Vec::with_capacity(self.sections.len());
        for (at, (unit, section)) in self.sections.iter().enumerate() {
            if unit.range().is_none() {
                results.push((at, several(unit, section, acc)));
            }
        }
        let (mut jobs, mut rest, mut end) = (Vec::new(), acc, 0);
        for (at, (unit, section)) in self.sections.iter().enumerate() {
            let Some(range) = unit.range() else { continue };
            let (part, after) = std::mem::take(&mut rest)[range.start - end..].split_at_mut(range.len());
            (rest, end) = (after, range.end);
            jobs.push((at, section, range, part));
        }
        results.extend(threads::map(jobs, threads, |(at, section, range, part)| {
            (at, one(section, range, part))
        }));
        results.sort_by_key(|(at, _)| *at);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Passes the decoded values to `sink`.
    pub(crate) fn decode_into(&self, sink: &mut impl Sink) -> Result<(), Error> {
        let mut sections = self.sections.iter();
        sections.try_for_each(|(unit, section)| section.decode(&mut unit.spread(sink)))
    }

    /// Overwrites `out` with the decoded values. A snapshot decodes bit for bit, including the sign of a zero. Shapes:
    /// `out: [layout.len()]`.
    ///
    /// # Errors
    /// As [`Frame::verify`]; then `out` is unspecified. `Usage` if `out` has another length.
    pub fn decode(&self, out: &mut [f32]) -> Result<(), Error> {
        self.check_len(out)?;
        if self.sections.iter().any(|(_, section)| !section.recipe().is_lossless()) {
            out.fill(0.0);
        }
        for (unit, section) in &self.sections {
            match unit.range() {
                Some(range) => section.decode(&mut Set(&mut out[range]))?,
                None => section.decode(&mut unit.spread(&mut Set(out)))?,
            }
        }
        Ok(())
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
        let (mut small, mut firsts) = (Vec::new(), std::collections::BTreeMap::new());
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

    fn check_len(&self, values: &[f32]) -> Result<(), Error> {
        if values.len() == self.layout.len() {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "{} values for a layout of {}",
            values.len(),
            self.layout.len()
        )))
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
