//! Planes and sections with public types, for fuzz drivers. `of` is `[rows, cols]`; `portions` are the lengths of the
//! slices in which `out` is filled.

use crate::code::gaps::{self, IndexPlane};
use crate::code::levels::LevelPlane;
use crate::code::method::Code;
use crate::code::symbols::SymbolPlane;
use crate::error::Error;
use crate::layout::Shape;
use crate::recipe::Recipe;
use crate::reduce::method::TensorValues;
use crate::reduce::recipe::Reduce;
use crate::rng::KeyedRng;
use crate::rules::rule_state::RuleState;
use crate::section::decode::Section;
use crate::section::encode::encode;
use crate::section::input::Input;
use crate::sink::Sink;
use crate::spec::method::Method;
use crate::wire::Reader;

fn shape([rows, cols]: [usize; 2]) -> Shape {
    Shape { rows, cols }
}

fn fill<T>(
    out: &mut [T],
    portions: &[usize],
    mut read: impl FnMut(&mut [T]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut rest = out;
    let mut parts = portions
        .iter()
        .map(|&portion| rest.split_off_mut(..portion).unwrap_or_default());
    parts.try_for_each(&mut read)
}

/// Decodes a plane of symbols below `1 << width`.
pub fn symbols(bytes: &[u8], width: u32, code: Code, portions: &[usize], out: &mut [u8]) -> Result<(), Error> {
    let mut symbols = SymbolPlane::read(&mut Reader::new(bytes), out.len(), width, code)?.open()?;
    fill(out, portions, |part| {
        symbols.read(part);
        Ok(())
    })?;
    symbols.finish()
}

/// Decodes a plane of indices into a tensor.
pub fn indices(bytes: &[u8], of: [usize; 2], code: Code, portions: &[usize], out: &mut [u32]) -> Result<(), Error> {
    let mut indices = IndexPlane::read(&mut Reader::new(bytes), out.len(), shape(of), code)?.open()?;
    fill(out, portions, |part| indices.read(part))?;
    indices.finish()
}

/// Appends a plane of ascending indices.
pub fn encode_indices(indices: &[u32], of: [usize; 2], code: Code, out: &mut Vec<u8>) {
    gaps::encode_indices(indices, shape(of), code, out);
}

/// Decodes a matrix of levels.
pub fn levels(bytes: &[u8], of: [usize; 2], code: Code, portions: &[usize], out: &mut [i32]) -> Result<(), Error> {
    let mut levels = LevelPlane::read(&mut Reader::new(bytes), shape(of), code)?.open()?;
    fill(out, portions, |part| levels.read(part))?;
    levels.finish()
}

struct Runs<F>(F);

impl<F: FnMut(usize, &[f32])> Sink for Runs<F> {
    fn dense(&mut self, start: usize, values: &[f32]) {
        self.0(start, values);
    }
}

/// Decodes a section and passes each run of values to `take` with the index of the first.
pub fn section(bytes: &[u8], of: [usize; 2], seed: u64, take: impl FnMut(usize, &[f32])) -> Result<(), Error> {
    let section = Section::read(&mut Reader::new(bytes), shape(of), KeyedRng::new(seed, 0))?;
    section.decode(&mut Runs(take))
}

/// Decodes the values of a section that keeps all values of its tensor; `None` if it keeps only some.
pub fn section_values(
    bytes: &[u8],
    of: [usize; 2],
    seed: u64,
    portions: &[usize],
    out: &mut [f32],
) -> Option<Result<(), Error>> {
    let mut reader = Reader::new(bytes);
    let recipe = Recipe::read(&mut reader, shape(of))
        .ok()
        .filter(|recipe| recipe.reduce == Reduce::KEEP)?;
    let plane = recipe
        .quantize
        .plane(&mut reader, shape(of), recipe.code, KeyedRng::new(seed, 0));
    Some(plane.and_then(|plane| {
        let mut values = plane.open()?;
        fill(out, portions, |part| values.read(part))?;
        values.finish()
    }))
}

/// The section of `values`, which are finite.
pub fn encode_section(
    values: &[f32],
    of: [usize; 2],
    seed: u64,
    unbiased: bool,
    Method {
        reduce, quantize, code, ..
    }: &Method,
) -> Result<Vec<u8>, Error> {
    let tensor = TensorValues {
        values,
        squared_gradients: None,
        residual: None,
        shape: shape(of),
        places: 1,
        quantize: *quantize,
        rng: KeyedRng::new(seed, 0),
        unbiased,
        threads: 1,
    };
    let input = Input {
        tensor,
        chosen: reduce.method().choose(&tensor, seed.into(), &mut RuleState::default()),
        leading: None,
        code: *code,
    };
    encode(&input, &mut None).map(|section| section.bytes)
}
