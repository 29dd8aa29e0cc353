//! The text of the kernels on the CPU: a C++ program, compiled once for all tests of a process, runs each launch and gives back what
//! it changed. It refuses arguments that are not a kernel's parameters, and finds writes beside a tensor or into one that is only read.

use std::fs;
use std::io::{BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use candle_core::{DType, Device, Result, Tensor, bail};
use tempfile::TempDir;

use super::launch::{Arg, Kernel, extent};
use crate::ops::in_place;
use crate::ops::slices::read;

/// What new values are before a kernel fills them.
const UNSET: f32 = f32::NAN;

struct Emulator {
    _child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    _folder: TempDir,
}

static EMULATOR: LazyLock<Mutex<Emulator>> = LazyLock::new(|| Mutex::new(Emulator::compile()));

impl Emulator {
    fn compile() -> Self {
        let (folder, sources) = (
            tempfile::tempdir().unwrap(),
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/ops/cuda/tests"),
        );
        let program = folder.path().join("emulator");
        let names = include_str!("kernels.cu").lines().filter_map(|line| {
            let name = line.strip_prefix("launched ")?.split('(').next()?;
            Some(format!("KERNEL({name})\n"))
        });
        fs::write(folder.path().join("table.inc"), names.collect::<String>()).unwrap();
        let compiled = Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned()))
            .args([
                "-std=c++17",
                "-O1",
                "-Wall",
                "-Wno-unknown-pragmas",
                "-Werror",
                "-ffp-contract=off",
                "-I",
            ])
            .args([folder.path().to_str().unwrap(), "-o", program.to_str().unwrap()])
            .arg(format!("{sources}/emulator.cpp"))
            .output()
            .expect("a C++ compiler (`c++`, or the one that CXX names) compiles the kernels for the CPU");
        assert!(
            compiled.status.success(),
            "{}",
            String::from_utf8_lossy(&compiled.stderr)
        );
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            to: child.stdin.take().unwrap(),
            from: BufReader::new(child.stdout.take().unwrap()),
            _child: child,
            _folder: folder,
        }
    }

    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut taken = vec![0; bytes];
        self.from.read_exact(&mut taken).expect("the emulator ended");
        taken
    }

    fn floats(&mut self, count: usize) -> Vec<f32> {
        let bytes = self.take(4 * count);
        let numbers = bytes.as_chunks::<4>().0.iter();
        numbers.map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A launch as the program reads it.
fn message(kernel: &Kernel<'_>) -> Result<Vec<u8>> {
    let Kernel {
        name,
        grid,
        block,
        args,
    } = kernel;
    let mut message = Vec::new();
    let number = |to: &mut Vec<u8>, number: usize| to.extend((number as u32).to_le_bytes());
    number(&mut message, name.len());
    message.extend(name.as_bytes());
    for extent in [grid[0], grid[1], *block, args.len()] {
        number(&mut message, extent);
    }
    for arg in args {
        let (kind, values) = match arg {
            Arg::In(tensor) if tensor.dtype() == DType::U32 => {
                let ids = tensor.flatten_all()?.to_vec1::<u32>()?;
                (b'r', ids.iter().flat_map(|id| id.to_le_bytes()).collect())
            }
            Arg::In(tensor) => (b'r', bytes(&read(&tensor.contiguous()?)?)),
            Arg::Change(tensor) => (b'w', bytes(&read(tensor)?)),
            Arg::Out(shape) => (b'w', bytes(&vec![UNSET; shape.elem_count()])),
            Arg::Null => (b'0', Vec::new()),
            Arg::Table(count) => (b't', extent(name, *count)?.to_le_bytes().to_vec()),
            Arg::Int(count) => (b'i', extent(name, *count)?.to_le_bytes().to_vec()),
            Arg::Bits(bits) => (b'i', bits.to_le_bytes().to_vec()),
            Arg::Float(number) => (b'f', number.to_le_bytes().to_vec()),
        };
        message.push(kind);
        if b"rw".contains(&kind) {
            message.extend((values.len() as u64).to_le_bytes());
        }
        message.extend(values);
    }
    Ok(message)
}

/// The GPU that `FL_KERNELS_ON` names, such as `cuda:0`, where tests launch kernels in place of the emulator.
#[cfg(feature = "cuda")]
pub(super) fn gpu() -> Option<&'static Device> {
    static GPU: LazyLock<Option<Device>> = LazyLock::new(|| {
        let name = std::env::var("FL_KERNELS_ON").ok()?;
        let number = name.strip_prefix("cuda:").and_then(|number| number.parse().ok());
        Some(super::open(number.expect("FL_KERNELS_ON is cuda:0 or another GPU")).unwrap())
    });
    GPU.as_ref()
}

#[cfg(not(feature = "cuda"))]
pub(super) fn gpu() -> Option<&'static Device> {
    None
}

/// As [`run`], on a GPU: its arguments go there, and what it changes and fills comes back.
fn run_on(gpu: &Device, kernel: &Kernel<'_>) -> Result<Vec<Tensor>> {
    let there = |arg: &Arg<'_>| match arg {
        Arg::In(tensor) | Arg::Change(tensor) => tensor.to_device(gpu).map(Some),
        _ => Ok(None),
    };
    let tensors: Vec<Option<Tensor>> = kernel.args.iter().map(there).collect::<Result<_>>()?;
    let args = kernel.args.iter().zip(&tensors).map(|pair| match pair {
        (Arg::In(_), Some(tensor)) => Arg::In(tensor),
        (Arg::Change(_), Some(tensor)) => Arg::Change(tensor),
        (Arg::Out(shape), _) => Arg::Out(shape.clone()),
        (Arg::Int(count), _) => Arg::Int(*count),
        (Arg::Bits(bits), _) => Arg::Bits(*bits),
        (Arg::Float(number), _) => Arg::Float(*number),
        (Arg::Table(count), _) => Arg::Table(*count),
        _ => Arg::Null,
    });
    let there = Kernel {
        args: args.collect(),
        ..*kernel
    };
    let outputs = super::launch::on(gpu, &there)?;
    for (arg, changed) in kernel.args.iter().zip(&tensors) {
        if let (Arg::Change(tensor), Some(changed)) = (arg, changed) {
            in_place::each_by(tensor, &changed.to_device(&Device::Cpu)?, |value, changed| {
                *value = changed
            })?;
        }
    }
    outputs.iter().map(|output| output.to_device(&Device::Cpu)).collect()
}

/// Launches a kernel whose tensors are on the CPU.
pub(super) fn run(kernel: &Kernel<'_>) -> Result<Vec<Tensor>> {
    match gpu() {
        Some(gpu) => run_on(gpu, kernel),
        None => emulate(kernel),
    }
}

fn emulate(kernel: &Kernel<'_>) -> Result<Vec<Tensor>> {
    let message = message(kernel)?;
    let Kernel { name, args, .. } = kernel;
    let mut emulator = EMULATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let emulator = &mut *emulator;
    emulator.to.write_all(&message).unwrap();
    emulator.to.flush().unwrap();
    let length = emulator.take(4);
    let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
    if length > 0 {
        let error = emulator.take(length);
        bail!("{name}: {}", String::from_utf8_lossy(&error));
    }
    let mut outputs = Vec::new();
    for arg in args {
        match arg {
            Arg::Change(tensor) => {
                let changed = Tensor::from_vec(emulator.floats(tensor.elem_count()), tensor.shape(), &Device::Cpu)?;
                in_place::each_by(tensor, &changed, |value, changed| *value = changed)?;
            }
            Arg::Out(shape) => {
                let values = emulator.floats(shape.elem_count());
                outputs.push(Tensor::from_vec(values, shape, &Device::Cpu)?);
            }
            _ => {}
        }
    }
    Ok(outputs)
}

fn ones(count: usize) -> Tensor {
    Tensor::ones(count, DType::F32, &Device::Cpu).unwrap()
}

#[test]
fn a_launch_with_other_arguments_than_the_kernels_is_an_error() {
    let (x, y) = (ones(5), ones(5));
    // A GPU would not refuse them.
    let of = |kernel: Kernel<'_>| emulate(&kernel).unwrap_err().to_string();
    let bias = || Kernel::of_each("add_bias", 5);
    let few = of(bias().changes([&x]).reads([&y]));
    assert!(few.contains("add_bias: it takes 6 arguments, not 2"), "{few}");
    let all = |kernel: Kernel<'_>| of(kernel.ints(&[5, 1, 5, 0]));
    let kept = all(bias().reads([&x, &y]));
    assert!(kept.contains("argument 0 is changed"), "{kept}");
    let changed = all(bias().changes([&x, &y]));
    assert!(changed.contains("argument 1 is only read"), "{changed}");
    let number = of(bias().changes([&x]).reads([&y]).ints(&[5, 1, 5]).float(0.0));
    assert!(number.contains("argument 5 is of kind 'f'"), "{number}");
    assert!(of(Kernel::of_each("none", 5).reads([&x])).contains("there is no such kernel"));
    assert!(of(Kernel::of_each("gelu", 5).reads([&x]).ints(&[1 << 40])).contains("an extent of 1099511627776"));
}

#[test]
fn a_write_beside_a_tensor_is_found() {
    // The kernel is told of more values than there are.
    let (x, dy) = (ones(40), ones(40));
    let far = Kernel::of_each("gelu_back", 40).reads([&x, &dy]).ints(&[40]).fills(39);
    let error = emulate(&far).unwrap_err().to_string();
    assert!(error.contains("argument 3: it wrote where it must not"), "{error}");
}
