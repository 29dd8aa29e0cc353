//! Matrix products on a GPU, by cuBLAS. candle's have results of the operands' type; these are `f32`, whatever that is.

#[cfg(feature = "cuda")]
use candle_core::{
    CudaDevice, CudaStorage, Storage,
    cuda_backend::{
        WrapErr as _,
        cudarc::cublas::{result, sys},
        cudarc::driver::DevicePtr as _,
    },
    op::BackpropOp,
};
use candle_core::{DType, Device, Layout, Result, Tensor, bail};
use fl_proto::Precision;

#[cfg(feature = "cuda")]
use super::launch::{address, extent};

/// The products of one precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in super::super) struct Products(pub(in super::super) Precision);

impl Products {
    /// The type of operands.
    pub(in super::super) fn dtype(self) -> DType {
        match self.0 {
            Precision::F32 | Precision::Tf32 => DType::F32,
            Precision::Bf16 => DType::BF16,
        }
    }

    /// `x` as an operand.
    pub(in super::super) fn operand(self, x: &Tensor) -> Result<Tensor> {
        x.to_dtype(self.dtype())
    }

    /// `a b`, of operands. Shapes: `a: [.., m, k]`, `b: [.., k, n]`; returns `[.., m, n]` of `f32`.
    ///
    /// # Errors
    /// If the shapes or types do not agree, an extent exceeds what an int holds, or the device fails.
    pub(in super::super) fn of(self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        let ([outer @ .., rows, inner], [others @ .., depth, columns]) = (a.dims(), b.dims()) else {
            bail!("a product of {:?} and {:?}, which are no matrices", a.dims(), b.dims());
        };
        if (outer, inner) != (others, depth) || [a.dtype(), b.dtype()] != [self.dtype(); 2] {
            bail!(
                "a product of {:?} {:?} and {:?} {:?}",
                a.dtype(),
                a.dims(),
                b.dtype(),
                b.dims()
            );
        }
        let shape = [outer, &[*rows, *columns]].concat();
        if [a, b].iter().any(|x| x.elem_count() == 0) {
            return Tensor::zeros(shape, DType::F32, a.device());
        }
        let batch = outer.iter().product();
        let ((a, a_side), (b, b_side)) = (Side::of(a)?, Side::of(b)?);
        let gemm = Gemm {
            batch,
            a: a_side,
            b: b_side,
        };
        gemm.on(a.device(), self, [&a, &b], &shape)
    }
}

/// Matrices of one tensor, as they lie in memory.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(any(feature = "cuda", test)), allow(dead_code))] // Nothing is multiplied then.
struct Side {
    rows: usize,
    columns: usize,
    /// Whether the values of a column are side by side, not those of a row.
    is_turned: bool,
    /// Values from one row to the next; of a turned matrix, from one column.
    leading: usize,
    /// Values from one matrix to the next.
    apart: usize,
}

impl Side {
    /// Those of `x`, or of a copy that lies row after row.
    fn of(x: &Tensor) -> Result<(Tensor, Self)> {
        if let Some(side) = Self::as_it_lies(x.layout()) {
            return Ok((x.clone(), side));
        }
        let x = x.contiguous()?;
        match Self::as_it_lies(x.layout()) {
            Some(side) => Ok((x, side)),
            None => bail!("a product of {:?}, which is no matrix", x.dims()),
        }
    }

    /// `None` if cuBLAS does not take it so.
    fn as_it_lies(layout: &Layout) -> Option<Self> {
        let ([outer @ .., rows, columns], [steps @ .., down, along]) = (layout.dims(), layout.stride()) else {
            return None;
        };
        let (&[rows, columns], &[down, along]) = (&[*rows, *columns], &[*down, *along]);
        let apart = steps.last().copied().unwrap_or(0);
        let mut expected = apart;
        for (count, step) in outer.iter().zip(steps).rev() {
            if *count != 1 && *step != expected {
                return None;
            }
            expected = step * count;
        }
        // A step of an extent of 1 is never taken.
        let leading = |near: usize, short: usize, far: usize, long: usize| match long {
            _ if near != 1 && short > 1 => None,
            0 | 1 => Some(short.max(1)),
            _ => Some(far).filter(|far| *far >= short.max(1)),
        };
        let by_rows = leading(along, columns, down, rows).map(|leading| (false, leading));
        let (is_turned, leading) = by_rows.or_else(|| Some((true, leading(down, rows, along, columns)?)))?;
        Some(Self {
            rows,
            columns,
            is_turned,
            leading,
            apart,
        })
    }
}

/// Products of `batch` pairs of matrices.
#[derive(Debug)]
#[cfg_attr(not(any(feature = "cuda", test)), allow(dead_code))] // Nothing is multiplied then.
struct Gemm {
    batch: usize,
    a: Side,
    b: Side,
}

impl Gemm {
    fn on(&self, device: &Device, products: Products, operands: [&Tensor; 2], shape: &[usize]) -> Result<Tensor> {
        match device {
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => self.on_gpu(device, products, operands, shape),
            #[cfg(test)]
            Device::Cpu => self.emulated(products, operands, shape),
            device => bail!("{self:?} of {products:?} {operands:?} on {device:?} to {shape:?}"),
        }
    }

    /// cuBLAS takes matrices by columns: ours, by rows, are their transposes, and `(a b)^T = b^T a^T`.
    #[cfg(feature = "cuda")]
    #[allow(unsafe_code)]
    fn on_gpu(&self, device: &CudaDevice, products: Products, [a, b]: [&Tensor; 2], shape: &[usize]) -> Result<Tensor> {
        const NAME: &str = "a product";
        let (stream, blas) = (device.cuda_stream(), device.cublas_handle());
        let turned = |side: &Side| match side.is_turned {
            true => sys::cublasOperation_t::CUBLAS_OP_T,
            false => sys::cublasOperation_t::CUBLAS_OP_N,
        };
        let (kind, compute) = match products.0 {
            Precision::F32 => (
                sys::cudaDataType_t::CUDA_R_32F,
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            ),
            Precision::Tf32 => (
                sys::cudaDataType_t::CUDA_R_32F,
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            ),
            Precision::Bf16 => (
                sys::cudaDataType_t::CUDA_R_16BF,
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            ),
        };
        let [m, n, k] = [self.a.rows, self.b.columns, self.a.columns].map(|count| extent(NAME, count));
        let [a_leading, b_leading, batch] =
            [self.a.leading, self.b.leading, self.batch].map(|count| extent(NAME, count));
        let (m, n, k) = (m?, n?, k?);
        let (one, zero) = (1.0f32, 0.0f32);
        // SAFETY: the product writes every value before anything reads it.
        let out = unsafe { device.alloc::<f32>(shape.iter().product())? };
        stream.context().bind_to_thread().w()?;
        // SAFETY: `Side` and the checks of `Products::of` keep all that is read within the tensors, which live until the product is in the
        // stream; the extents of the result are those of `out`.
        unsafe {
            result::gemm_strided_batched_ex(
                *blas.handle(),
                turned(&self.b),
                turned(&self.a),
                n,
                m,
                k,
                (&raw const one).cast(),
                address(NAME, b, &stream)? as *const _,
                kind,
                b_leading?,
                self.b.apart as i64,
                address(NAME, a, &stream)? as *const _,
                kind,
                a_leading?,
                self.a.apart as i64,
                (&raw const zero).cast(),
                out.device_ptr(&stream).0 as *mut _,
                sys::cudaDataType_t::CUDA_R_32F,
                n,
                i64::from(m) * i64::from(n),
                batch?,
                compute,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .w()?;
        let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(out, device.clone()));
        Ok(Tensor::from_storage(storage, shape, BackpropOp::none(), false))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{CpuStorage, Storage};

    use super::*;

    impl Side {
        /// The values of the matrices, as cuBLAS reads them; operands of TF32 have 10 bits of a fraction.
        fn read(&self, x: &Tensor, batch: usize, precision: Precision) -> Vec<f64> {
            let (storage, layout) = x.storage_and_layout();
            let at = |place: usize| match &*storage {
                Storage::Cpu(CpuStorage::F32(values)) if precision == Precision::Tf32 => {
                    f32::from_bits((values[place].to_bits() + (1 << 12)) & !((1 << 13) - 1))
                }
                Storage::Cpu(CpuStorage::F32(values)) => values[place],
                Storage::Cpu(CpuStorage::BF16(values)) => values[place].to_f32(),
                _ => panic!("operands of another type"),
            };
            let mut values = Vec::new();
            for of in 0..batch {
                for row in 0..self.rows {
                    for column in 0..self.columns {
                        let inside = match self.is_turned {
                            true => column * self.leading + row,
                            false => row * self.leading + column,
                        };
                        values.push(at(layout.start_offset() + of * self.apart + inside).into());
                    }
                }
            }
            values
        }
    }

    impl Gemm {
        pub(super) fn emulated(&self, products: Products, [a, b]: [&Tensor; 2], shape: &[usize]) -> Result<Tensor> {
            if let Some(gpu) = super::super::tests::gpu() {
                return products
                    .of(&a.to_device(gpu)?, &b.to_device(gpu)?)?
                    .to_device(&Device::Cpu);
            }
            for side in [self.a, self.b] {
                assert!(side.leading >= if side.is_turned { side.rows } else { side.columns }.max(1));
            }
            let (a, b) = (
                self.a.read(a, self.batch, products.0),
                self.b.read(b, self.batch, products.0),
            );
            let (inner, columns) = (self.a.columns, self.b.columns);
            let mut out = Vec::new();
            for (a, b) in a.chunks(self.a.rows * inner).zip(b.chunks(inner * columns)) {
                for row in a.chunks(inner) {
                    let mut sums = vec![0.0; columns];
                    for (a, b) in row.iter().zip(b.chunks(columns)) {
                        sums.iter_mut().zip(b).for_each(|(sum, b)| *sum += a * b);
                    }
                    out.extend(sums.into_iter().map(|sum| sum as f32));
                }
            }
            Tensor::from_vec(out, shape, &Device::Cpu)
        }
    }

    fn numbers(shape: &[usize], seed: u64) -> Tensor {
        let mut rng = crate::data::Rng::new(seed);
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| rng.normal() as f32).collect();
        Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
    }

    /// The ways in which a matrix of `[.., rows, columns]` may lie, and whether it is multiplied as it lies.
    fn views(outer: &[usize], rows: usize, columns: usize, seed: u64) -> Vec<(Tensor, bool)> {
        let of = |last: [usize; 2]| numbers(&[outer, &last].concat(), seed);
        let (whole, turned) = (
            of([rows, columns]),
            of([columns, rows]).transpose(outer.len(), outer.len() + 1).unwrap(),
        );
        let wide = of([rows, columns + 3]).narrow(outer.len() + 1, 2, columns).unwrap();
        let tall = of([rows + 2, columns]).narrow(outer.len(), 1, rows).unwrap();
        let spread = of([rows, 1]).broadcast_as(whole.shape()).unwrap();
        let mut views = vec![
            (whole, true),
            (turned, true),
            (wide, true),
            (tall, true),
            (spread, rows == 1 && columns == 1),
        ];
        if let [batch, heads] = *outer {
            // As attention has it: heads within rows.
            let heads_inside = numbers(&[batch, rows, heads, columns], seed).transpose(1, 2).unwrap();
            views.push((heads_inside, false));
        }
        views
    }

    #[test]
    fn products_are_candles_whatever_the_strides() {
        let of = Products(Precision::F32);
        for outer in [&[][..], &[3], &[2, 3]] {
            for (m, k, n) in [(4, 5, 6), (1, 5, 6), (4, 1, 6), (4, 5, 1), (1, 1, 1), (1, 5, 1)] {
                for (a, a_lies) in views(outer, m, k, 1) {
                    for (b, _) in views(outer, k, n, 2) {
                        let expected = a.contiguous().unwrap().matmul(&b.contiguous().unwrap()).unwrap();
                        let product = of.of(&a, &b).unwrap();
                        assert_eq!(product.dims(), expected.dims());
                        let apart = (product - expected).unwrap().abs().unwrap().flatten_all().unwrap();
                        let most = apart.max(0).unwrap().to_scalar::<f32>().unwrap();
                        assert!(
                            most < 1e-5,
                            "{outer:?} {m} {k} {n}: {:?} {:?}: {most}",
                            a.layout(),
                            b.layout()
                        );
                    }
                    if m > 1 && k > 1 {
                        let lies = Side::as_it_lies(a.layout()).is_some();
                        assert!(lies == a_lies, "{:?}", a.layout());
                    }
                }
            }
        }
    }

    #[test]
    fn narrow_operands_have_results_of_f32() {
        let (a, b) = (numbers(&[3, 40], 1), numbers(&[40, 2], 2));
        let product = |precision| {
            let of = Products(precision);
            let product = of.of(&of.operand(&a).unwrap(), &of.operand(&b).unwrap()).unwrap();
            product.flatten_all().unwrap().to_vec1::<f32>().unwrap()
        };
        let exact = product(Precision::F32);
        for (precision, least, most) in [(Precision::Tf32, 1e-5, 1e-2), (Precision::Bf16, 1e-3, 1e-1)] {
            let apart = exact.iter().zip(product(precision)).map(|(a, b)| (a - b).abs());
            let apart = apart.fold(0.0, f32::max);
            assert!((least..most).contains(&apart), "{precision:?}: {apart}");
        }
    }

    #[test]
    fn operands_that_do_not_agree_are_an_error() {
        let of = Products(Precision::Bf16);
        let (a, b) = (numbers(&[3, 4], 1), numbers(&[4, 2], 2));
        let error = of.of(&a, &b).unwrap_err().to_string();
        assert!(error.contains("a product of F32 [3, 4] and F32 [4, 2]"), "{error}");
        let of = Products(Precision::F32);
        assert!(of.of(&a, &a).is_err() && of.of(&a, &numbers(&[2, 4, 2], 1)).is_err());
        assert!(of.of(&numbers(&[4], 1), &b).is_err());
        let none = of.of(&numbers(&[3, 0], 1), &numbers(&[0, 2], 1)).unwrap();
        assert_eq!(none.to_vec2::<f32>().unwrap(), [[0.0; 2]; 3]);
    }
}
