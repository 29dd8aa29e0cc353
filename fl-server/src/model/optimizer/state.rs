//! The state of optimizers as bytes: vectors of the model's length, one after the other.

use fl_compress::wire::{Reader, Writer};

/// Appends the values of each vector, little-endian.
pub fn save_vectors(vectors: &[&[f32]], out: &mut Vec<u8>) {
    let mut writer = Writer::new(out);
    vectors.iter().for_each(|vector| writer.f32s(vector));
}

/// Fills the vectors with what [`save_vectors`] wrote. Their lengths stay as they are.
///
/// # Errors
/// A text if `bytes` are not of vectors of these lengths; the vectors are unspecified then.
pub fn load_vectors<const N: usize>(bytes: &[u8], vectors: [&mut [f32]; N]) -> Result<(), String> {
    let mut reader = Reader::new(bytes);
    for vector in vectors {
        let values = reader
            .f32s(vector.len(), "the optimizer's state")
            .map_err(|e| e.to_string())?;
        vector
            .iter_mut()
            .zip(values)
            .for_each(|(value, stored)| *value = stored);
    }
    reader
        .finish("bytes after the optimizer's state")
        .map_err(|e| e.to_string())
}
