//! A safetensors file whose tensors are read one at a time: models that should not be in memory twice.

use std::io::{self, Read, Seek, SeekFrom};

use safetensors::tensor::Metadata;

use crate::layout::MAX_VALUES;
use crate::weights::base::{invalid, read_header};
use crate::weights::{convert, header};

/// An open safetensors file with a checked header.
#[derive(Debug)]
pub struct TensorReader<F> {
    file: F,
    data: u64,
    header: Metadata,
}

impl<F: Read + Seek> TensorReader<F> {
    /// Reads and checks the header; no value is read.
    ///
    /// # Errors
    /// `InvalidData` if the file is not a complete safetensors file; errors of `file`.
    pub fn open(mut file: F) -> io::Result<Self> {
        let (data, header) = read_header(&mut file)?;
        Ok(Self { file, data, header })
    }

    /// Names of the tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.header.tensors().into_keys().collect();
        names.sort_unstable();
        names
    }

    /// Extents of a tensor; `None` if there is no tensor of this name.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.header.info(name).map(|info| info.shape.as_slice())
    }

    /// The values of a floating-point tensor, row-major.
    ///
    /// # Errors
    /// `InvalidData` if there is no such tensor, it is not floating-point, or a value is not finite; errors of `file`.
    pub fn values(&mut self, name: &str) -> io::Result<Vec<f32>> {
        let info = self
            .header
            .info(name)
            .ok_or_else(|| invalid(format!("tensor `{name}` is missing")))?;
        let dtype = header::own_type(info.dtype).filter(|dtype| dtype.is_float());
        let Some(dtype) = dtype else {
            return Err(invalid(format!(
                "tensor `{name}` is {}; a floating-point tensor is expected",
                info.dtype
            )));
        };
        let (start, end) = info.data_offsets;
        // The header's offsets lie within the file, so a lie about the size cannot allocate more than the file's length.
        let count = info.shape.iter().product::<usize>();
        if count > MAX_VALUES || count * dtype.width() != end - start {
            return Err(invalid(format!(
                "tensor `{name}` of {:?} has {} bytes",
                info.shape,
                end - start
            )));
        }
        let mut bytes = vec![0; end - start];
        self.file.seek(SeekFrom::Start(self.data + start as u64))?;
        self.file.read_exact(&mut bytes)?;
        let mut values = vec![0.0; count];
        convert::read(dtype, &bytes, &mut values);
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(values),
            Some(at) => Err(invalid(format!("tensor `{name}`: value {at} is {}", values[at]))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::layout::{Dtype, Role, TensorSpec};
    use crate::weights::BasePlan;

    fn file() -> Vec<u8> {
        let specs = [
            TensorSpec::new("b", &[3], Dtype::F16, Role::Frozen),
            TensorSpec::new("a", &[2, 1], Dtype::F32, Role::Frozen),
            TensorSpec::new("ids", &[1], Dtype::I64, Role::Frozen),
        ];
        let half = [1.0f32, -2.0, 0.5]
            .map(|x| half::f16::from_f32(x).to_le_bytes())
            .concat();
        let full = [3.0f32, 4.0].map(f32::to_le_bytes).concat();
        let plan = BasePlan::of(&specs).unwrap().unwrap();
        plan.file(&[half, full, 7i64.to_le_bytes().to_vec()]).unwrap()
    }

    #[test]
    fn tensors_are_read_one_at_a_time_in_f32() {
        let mut reader = TensorReader::open(Cursor::new(file())).unwrap();
        assert_eq!(reader.names(), ["a", "b", "ids"]);
        assert_eq!((reader.shape("a"), reader.shape("c")), (Some(&[2, 1][..]), None));
        assert_eq!(reader.values("b").unwrap(), [1.0, -2.0, 0.5]);
        assert_eq!(reader.values("a").unwrap(), [3.0, 4.0]);
        for (name, part) in [("c", "`c` is missing"), ("ids", "`ids` is I64")] {
            let error = reader.values(name).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn truncated_files_and_values_that_are_not_finite_are_refused() {
        let good = file();
        for cut in [0, 7, 8, 40, good.len() - 1] {
            assert!(TensorReader::open(Cursor::new(&good[..cut])).is_err(), "{cut}");
        }
        let mut bad = good.clone();
        let at = good.windows(4).position(|bytes| bytes == 4.0f32.to_le_bytes()).unwrap();
        bad[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        let error = TensorReader::open(Cursor::new(bad))
            .unwrap()
            .values("a")
            .unwrap_err()
            .to_string();
        assert!(error.contains("tensor `a`: value 1 is NaN"), "{error}");
    }
}
