//! The text of the kernels on the CPU: a C++ program, compiled once for all tests of a process, runs each launch and gives back what
//! it changed. It refuses arguments that are not a kernel's parameters, and finds writes beside a tensor or into one that is only read.

use std::fs;
use std::io::{BufReader, BufWriter, Read as _, Write as _};
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
    to: BufWriter<ChildStdin>,
    from: BufReader<ChildStdout>,
    _folder: TempDir,
}

static EMULATOR: LazyLock<Mutex<Emulator>> = LazyLock::new(|| Mutex::new(Emulator::compile()));

impl Emulator {
    fn compile() -> Self {
        let (folder, sources) = (
            tempfile::tempdir().unwrap(),
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/ops/cuda"),
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
            to: BufWriter::new(child.stdin.take().unwrap()),
            from: BufReader::new(child.stdout.take().unwrap()),
            _child: child,
            _folder: folder,
        }
    }

    fn number(&mut self, value: usize) {
        self.to.write_all(&(value as u32).to_ne_bytes()).unwrap();
    }

    fn values(&mut self, kind: u8, bytes: &[u8]) {
        self.to.write_all(&[kind]).unwrap();
        self.to.write_all(&(bytes.len() as u64).to_ne_bytes()).unwrap();
        self.to.write_all(bytes).unwrap();
    }

    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut taken = vec![0; bytes];
        self.from.read_exact(&mut taken).expect("the emulator ended");
        taken
    }

    fn floats(&mut self, count: usize) -> Vec<f32> {
        let bytes = self.take(4 * count);
        let numbers = bytes.as_chunks::<4>().0.iter();
        numbers.map(|bytes| f32::from_ne_bytes(*bytes)).collect()
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// Launches a kernel whose tensors are on the CPU.
pub(super) fn run(kernel: Kernel<'_>) -> Result<Vec<Tensor>> {
    let Kernel {
        name,
        grid,
        block,
        args,
    } = kernel;
    let mut emulator = EMULATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let emulator = &mut *emulator;
    emulator.number(name.len());
    emulator.to.write_all(name.as_bytes()).unwrap();
    for number in [grid[0], grid[1], block, args.len()] {
        emulator.number(number);
    }
    for arg in &args {
        match arg {
            Arg::In(tensor) if tensor.dtype() == DType::U32 => {
                let ids = tensor.flatten_all()?.to_vec1::<u32>()?;
                emulator.values(b'r', &ids.iter().flat_map(|id| id.to_ne_bytes()).collect::<Vec<u8>>());
            }
            Arg::In(tensor) => emulator.values(b'r', &bytes(&read(&tensor.contiguous()?)?)),
            Arg::Change(tensor) => emulator.values(b'w', &bytes(&read(tensor)?)),
            Arg::Out(shape) => emulator.values(b'w', &bytes(&vec![UNSET; shape.elem_count()])),
            Arg::Null => emulator.to.write_all(b"0").unwrap(),
            Arg::Int(count) => {
                emulator.to.write_all(b"i").unwrap();
                emulator.to.write_all(&extent(name, *count)?.to_ne_bytes()).unwrap();
            }
            Arg::Bits(bits) => {
                emulator.to.write_all(b"i").unwrap();
                emulator.to.write_all(&bits.to_ne_bytes()).unwrap();
            }
            Arg::Float(number) => {
                emulator.to.write_all(b"f").unwrap();
                emulator.to.write_all(&number.to_ne_bytes()).unwrap();
            }
        }
    }
    emulator.to.flush().unwrap();
    let length = emulator.take(4);
    let length = u32::from_ne_bytes(length.try_into().unwrap()) as usize;
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
