//! Numbers of another type.

use candle_core::{CpuStorage, DType, Result, Storage, Tensor, bail};
use half::bf16;
use half::slice::HalfFloatSliceExt as _;

use super::native::on_cpu;
use super::slices;

/// `x` in `dtype`. On the CPU: between `f32` and `bf16`, the types that a model is kept in; candle's own function would bring the
/// loops for every pair of its types into the program.
pub(crate) fn to_dtype(x: &Tensor, dtype: DType) -> Result<Tensor> {
    if !on_cpu(x) {
        return x.to_dtype(dtype);
    }
    match (x.dtype(), dtype) {
        (from, to) if from == to => Ok(x.clone()),
        (DType::F32, DType::BF16) => {
            let values = slices::read(x)?.iter().map(|value| bf16::from_f32(*value)).collect();
            Tensor::from_vec::<_, bf16>(values, x.shape(), x.device())
        }
        (DType::BF16, DType::F32) => slices::tensor(widened(x)?, x.shape()),
        (from, to) => bail!("no conversion of {from:?} to {to:?} on the CPU"),
    }
}

fn widened(x: &Tensor) -> Result<Vec<f32>> {
    let (storage, layout) = x.storage_and_layout();
    let (Storage::Cpu(CpuStorage::BF16(values)), Some((start, end))) = (&*storage, layout.contiguous_offsets()) else {
        bail!("expected contiguous bf16 values on the CPU, found {:?}", x.dtype())
    };
    let mut out = vec![0.0; end - start];
    values[start..end].convert_to_f32_slice(&mut out);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    /// Every `bf16`, and numbers around the middles between two of them.
    #[test]
    fn conversions_give_candles_bits() {
        let all: Vec<bf16> = (0..=u16::MAX)
            .map(bf16::from_bits)
            .filter(|value| !value.is_nan())
            .collect();
        let narrow = Tensor::from_vec(all.clone(), all.len(), &Device::Cpu).unwrap();
        let wide = to_dtype(&narrow, DType::F32).unwrap();
        let bits = |x: &Tensor| -> Vec<u32> { x.to_vec1::<f32>().unwrap().iter().map(|x| x.to_bits()).collect() };
        assert_eq!(bits(&wide), bits(&narrow.to_dtype(DType::F32).unwrap()));

        let between = all.iter().flat_map(|value| {
            let low = value.to_f32().to_bits();
            [0, 0x7fff, 0x8000, 0x8001, 0xffff].map(|above| f32::from_bits(low | above))
        });
        let between: Vec<f32> = between.filter(|value| !value.is_nan()).collect();
        let count = between.len();
        let between = Tensor::from_vec(between, (2, count / 2), &Device::Cpu).unwrap();
        let (own, candles) = (
            to_dtype(&between, DType::BF16).unwrap(),
            between.to_dtype(DType::BF16).unwrap(),
        );
        assert_eq!(own.dims(), between.dims());
        let bits = |x: &Tensor| -> Vec<u16> {
            let values = x.flatten_all().unwrap().to_vec1::<bf16>().unwrap();
            values.iter().map(|value| value.to_bits()).collect()
        };
        assert_eq!(bits(&own), bits(&candles));
    }

    #[test]
    fn the_same_type_is_the_same_tensor_and_other_types_are_refused() {
        let x = Tensor::new(&[1.0f32, 2.0], &Device::Cpu).unwrap();
        assert_eq!(to_dtype(&x, DType::F32).unwrap().id(), x.id());
        let error = to_dtype(&x, DType::F64).unwrap_err().to_string();
        assert!(error.starts_with("no conversion of F32 to F64 on the CPU"), "{error}");
        let columns = Tensor::zeros((2, 3), DType::BF16, &Device::Cpu).unwrap().t().unwrap();
        let error = to_dtype(&columns, DType::F32).unwrap_err().to_string();
        assert!(error.starts_with("expected contiguous bf16 values"), "{error}");
    }
}
