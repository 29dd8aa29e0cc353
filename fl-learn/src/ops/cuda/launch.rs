//! The one way to launch a kernel of `kernels.cu`. On a GPU the kernel runs on the device's stream; in tests, whose tensors are on the
//! CPU, the same text runs in a program that the tests compile.

#[cfg(feature = "cuda")]
use candle_core::{
    CudaDevice, CudaStorage, DType, Storage,
    cuda_backend::{
        WrapErr as _,
        cudarc::driver::{CudaStream, DevicePtr as _, DeviceRepr, LaunchConfig, PushKernelArg as _},
    },
    op::BackpropOp,
};
use candle_core::{Device, Result, Shape, Tensor, bail};
#[cfg(feature = "cuda")]
use {half::bf16, std::sync::Arc};

/// The kernels, compiled by `build.rs`.
#[cfg(feature = "cuda")]
#[allow(unreachable_pub)]
mod ptx {
    include!(concat!(env!("OUT_DIR"), "/ptx.rs"));
}

/// One argument of a kernel. All values of tensors are `f32`, or `u32` ids.
#[derive(Debug)]
#[cfg_attr(not(any(feature = "cuda", test)), allow(dead_code))] // Nothing is launched then.
pub(super) enum Arg<'a> {
    In(&'a Tensor),
    Change(&'a Tensor),
    Out(Shape),
    /// A null pointer in place of a tensor.
    Null,
    /// A [`Table`] of this many variables, which the arguments after it fill, variable after variable.
    Table(usize),
    Int(usize),
    /// An int of these bits.
    Bits(u32),
    Float(f32),
}

/// A variable of an optimizer's step, on one device with all its tensors, which have its shape.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Variable<'a> {
    pub(in super::super) value: &'a Tensor,
    pub(in super::super) grad: &'a Tensor,
    /// What the proximal term pulls to.
    pub(in super::super) start: Option<&'a Tensor>,
    /// First and second moment.
    pub(in super::super) moments: [Option<&'a Tensor>; 2],
}

/// A launch of a kernel: its threads, and its arguments in the order of its parameters.
#[derive(Debug)]
#[cfg_attr(not(any(feature = "cuda", test)), allow(dead_code))] // Nothing is launched then.
pub(in super::super) struct Kernel<'a> {
    pub(super) name: &'static str,
    /// Blocks, in two dimensions.
    pub(super) grid: [usize; 2],
    /// Threads of a block, a multiple of 32.
    pub(super) block: usize,
    pub(super) args: Vec<Arg<'a>>,
}

impl<'a> Kernel<'a> {
    /// Most threads of a block.
    const MOST: usize = 512;
    /// Threads of a block that computes values each by itself.
    const EACH: usize = 256;
    /// Most variables of a launch: their table, and the numbers beside it, must fit into the 4 KiB that a launch takes.
    pub(in super::super) const MOST_VARIABLES: usize = 80;
    /// Blocks for the largest of several variables: enough for each GPU, and not too many that find nothing to do.
    const MOST_BLOCKS: usize = 256;
    /// Arguments for each variable of a table.
    #[cfg(feature = "cuda")]
    const FIELDS: usize = 6;

    pub(super) fn of_grid(name: &'static str, grid: [usize; 2], block: usize) -> Self {
        Self {
            name,
            grid,
            block,
            args: Vec::new(),
        }
    }

    /// A block for each of `count` rows of `len` values.
    pub(in super::super) fn of_rows(name: &'static str, count: usize, len: usize) -> Self {
        Self::of_grid(name, [count, 1], Self::threads(len))
    }

    /// Threads of a block for `len` values.
    pub(super) fn threads(len: usize) -> usize {
        len.clamp(1, Self::MOST).next_multiple_of(32)
    }

    /// A thread for each of `count` values.
    pub(in super::super) fn of_each(name: &'static str, count: usize) -> Self {
        Self::of_grid(name, [count.div_ceil(Self::EACH), 1], Self::EACH)
    }

    /// Blocks for each of at most [`Kernel::MOST_VARIABLES`] variables, whose table is the first argument.
    pub(in super::super) fn of_variables(name: &'static str, variables: &[Variable<'a>]) -> Self {
        let longest = variables.iter().map(|of| of.value.elem_count()).max().unwrap_or(0);
        // A thread takes four values at least.
        let blocks = longest.div_ceil(4 * Self::EACH).clamp(1, Self::MOST_BLOCKS);
        let fields = variables.iter().flat_map(|of| {
            let change = |tensor: Option<&'a Tensor>| tensor.map_or(Arg::Null, Arg::Change);
            let [first, second] = of.moments;
            let start = of.start.map_or(Arg::Null, Arg::In);
            let len = Arg::Int(of.value.elem_count());
            let value = [Arg::Change(of.value), Arg::In(of.grad), start];
            value.into_iter().chain([change(first), change(second), len])
        });
        Self::of_grid(name, [blocks, variables.len()], Self::EACH)
            .with([Arg::Table(variables.len())])
            .with(fields)
    }

    /// Number of its blocks.
    pub(in super::super) fn blocks(&self) -> usize {
        self.grid[0] * self.grid[1]
    }

    fn with(mut self, args: impl IntoIterator<Item = Arg<'a>>) -> Self {
        self.args.extend(args);
        self
    }

    /// Tensors that the kernel reads.
    pub(in super::super) fn reads<const N: usize>(self, tensors: [&'a Tensor; N]) -> Self {
        self.with(tensors.map(Arg::In))
    }

    /// A tensor that the kernel reads, or a null pointer.
    pub(in super::super) fn reads_some(self, tensor: Option<&'a Tensor>) -> Self {
        self.with([tensor.map_or(Arg::Null, Arg::In)])
    }

    /// Contiguous tensors that the kernel changes in place. Nothing else may need their values.
    pub(in super::super) fn changes<const N: usize>(self, tensors: [&'a Tensor; N]) -> Self {
        self.with(tensors.map(Arg::Change))
    }

    pub(in super::super) fn ints(self, counts: &[usize]) -> Self {
        self.with(counts.iter().copied().map(Arg::Int))
    }

    /// Ints of these bits.
    pub(in super::super) fn bits(self, bits: &[u32]) -> Self {
        self.with(bits.iter().copied().map(Arg::Bits))
    }

    pub(in super::super) fn float(self, number: f32) -> Self {
        self.with([Arg::Float(number)])
    }

    /// A new tensor, which the kernel fills.
    pub(in super::super) fn fills(self, shape: impl Into<Shape>) -> Self {
        self.with([Arg::Out(shape.into())])
    }

    /// A null pointer in place of a tensor to fill.
    pub(super) fn fills_none(self) -> Self {
        self.with([Arg::Null])
    }

    /// Launches it on the device of its tensors. Returns the filled tensors, in the order of the arguments.
    ///
    /// # Errors
    /// If a tensor is on another device, an extent exceeds what an int holds, or the device fails.
    pub(in super::super) fn launch<const N: usize>(self) -> Result<[Tensor; N]> {
        let name = self.name;
        let device = self.args.iter().find_map(|arg| match arg {
            Arg::In(tensor) | Arg::Change(tensor) => Some(tensor.device()),
            _ => None,
        });
        let outputs = match device {
            Some(device) => on(device, &self)?,
            None => bail!("kernel {name} without a tensor"),
        };
        match outputs.try_into() {
            Ok(outputs) => Ok(outputs),
            Err(outputs) => bail!("{name} fills {} tensors, not {N}", Vec::len(&outputs)),
        }
    }

    /// As [`Kernel::launch`], of one filled tensor.
    pub(in super::super) fn launch_one(self) -> Result<Tensor> {
        let [out] = self.launch()?;
        Ok(out)
    }
}

pub(super) fn on(device: &Device, kernel: &Kernel<'_>) -> Result<Vec<Tensor>> {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => on_gpu(device, kernel),
        #[cfg(test)]
        Device::Cpu => super::tests::run(kernel),
        device => bail!("{kernel:?} on {device:?}"),
    }
}

/// Largest extent that a kernel takes: the number of a thread of the last block must be an int, too.
#[cfg(any(feature = "cuda", test))]
const MOST_EXTENT: usize = (1 << 31) - (1 << 10);

/// An extent, as kernels take it.
#[cfg(any(feature = "cuda", test))]
pub(super) fn extent(name: &str, count: usize) -> Result<i32> {
    if count > MOST_EXTENT {
        bail!("{name}: an extent of {count}, of which a GPU's operation takes at most {MOST_EXTENT}");
    }
    Ok(count as i32)
}

/// `Variables` of `kernels.cu`: pointers by field, then lengths.
#[cfg(feature = "cuda")]
#[repr(C)]
struct Table {
    pointers: [[u64; Kernel::MOST_VARIABLES]; Kernel::FIELDS - 1],
    lengths: [i32; Kernel::MOST_VARIABLES],
}

// SAFETY: plain numbers, in the layout of the kernels' parameter.
#[cfg(feature = "cuda")]
#[allow(unsafe_code)]
unsafe impl DeviceRepr for Table {}

#[cfg(feature = "cuda")]
enum Value {
    Pointer(u64),
    Int(i32),
    Float(f32),
    Table(Box<Table>),
}

#[cfg(feature = "cuda")]
impl Table {
    /// Of the fields of all variables, one after another.
    fn of(fields: &[Value]) -> Box<Self> {
        let mut table = Box::new(Self {
            pointers: [[0; Kernel::MOST_VARIABLES]; Kernel::FIELDS - 1],
            lengths: [0; Kernel::MOST_VARIABLES],
        });
        for (variable, fields) in fields.chunks(Kernel::FIELDS).enumerate() {
            for (field, value) in fields.iter().enumerate() {
                match value {
                    Value::Pointer(at) => table.pointers[field][variable] = *at,
                    Value::Int(length) => table.lengths[variable] = *length,
                    Value::Float(_) | Value::Table(_) => {}
                }
            }
        }
        table
    }
}

/// Where the values of a tensor begin.
#[cfg(feature = "cuda")]
pub(super) fn address(name: &str, tensor: &Tensor, stream: &Arc<CudaStream>) -> Result<u64> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cuda(cuda) = &*storage else {
        bail!("{name} takes a tensor that is on another device")
    };
    let base = match tensor.dtype() {
        DType::F32 => cuda.as_cuda_slice::<f32>()?.device_ptr(stream).0,
        DType::U32 => cuda.as_cuda_slice::<u32>()?.device_ptr(stream).0,
        DType::BF16 => cuda.as_cuda_slice::<bf16>()?.device_ptr(stream).0,
        other => bail!("{name} takes a tensor of {other:?}"),
    };
    Ok(base + (layout.start_offset() * tensor.dtype().size_in_bytes()) as u64)
}

#[cfg(feature = "cuda")]
#[allow(unsafe_code)]
fn on_gpu(device: &CudaDevice, kernel: &Kernel<'_>) -> Result<Vec<Tensor>> {
    let Kernel {
        name,
        grid,
        block,
        args,
    } = kernel;
    let function = device.get_or_load_custom_func(name, "fl_learn", ptx::KERNELS)?;
    let stream = device.cuda_stream();
    let (mut values, mut outputs, mut contiguous) = (Vec::new(), Vec::new(), Vec::new());
    let mut variables = 0;
    for arg in args {
        values.push(match arg {
            Arg::Table(count) => {
                variables = *count;
                continue;
            }
            Arg::In(tensor) | Arg::Change(tensor) => {
                let is_changed = matches!(arg, Arg::Change(_));
                if is_changed && !tensor.is_contiguous() {
                    bail!("{name} changes a tensor that is not contiguous");
                }
                let tensor = tensor.contiguous()?;
                let at = address(name, &tensor, &stream)?;
                contiguous.push(tensor);
                Value::Pointer(at)
            }
            Arg::Out(shape) => {
                // SAFETY: the kernel writes every value of an output before anything reads it.
                let slice = unsafe { device.alloc::<f32>(shape.elem_count())? };
                let pointer = slice.device_ptr(&stream).0;
                let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(slice, device.clone()));
                outputs.push(Tensor::from_storage(storage, shape.clone(), BackpropOp::none(), false));
                Value::Pointer(pointer)
            }
            Arg::Null => Value::Pointer(0),
            Arg::Int(count) => Value::Int(extent(name, *count)?),
            Arg::Bits(bits) => Value::Int(bits.cast_signed()),
            Arg::Float(number) => Value::Float(*number),
        });
    }
    // A table is always the first argument.
    if variables > 0 {
        let rest = values.split_off(variables * Kernel::FIELDS);
        let table = Value::Table(Table::of(&values));
        values = std::iter::once(table).chain(rest).collect();
    }
    let mut builder = function.builder();
    for value in &values {
        match value {
            Value::Table(table) => builder.arg(&**table),
            Value::Pointer(at) => builder.arg(at),
            Value::Int(count) => builder.arg(count),
            Value::Float(number) => builder.arg(number),
        };
    }
    let [x, y] = grid.map(|count| count as u32);
    let config = LaunchConfig {
        grid_dim: (x, y, 1),
        block_dim: (*block as u32, 1, 1),
        shared_mem_bytes: 0,
    };
    // SAFETY: that each caller's arguments are the kernel's parameters is tested with the kernel's own text (`tests.rs`). The
    // tensors live until the launch is in the stream, and their memory is freed in the stream's order.
    unsafe { builder.launch(config) }.w()?;
    Ok(outputs)
}
