"""Copies candle-core and candle-kernels and changes the copies, so that a program opens CUDA's libraries at run time.

Reads the output of `cargo metadata` on standard input; the first argument is the folder for the copies. With the second
argument `check` the copies have no kernels, and suit type checks only. The kernels for
quantized language models, which take most of the build and which no learner calls, are left out.
"""

import json
import pathlib
import re
import shutil
import sys

# Without this check, a missing library is a panic in place of an error.
CHECK = """
/// An error if a library that is opened at run time is missing.
fn libraries() -> Result<()> {
    let found = unsafe {
        [
            (cudarc::driver::sys::is_culib_present(), "libcuda of the NVIDIA driver"),
            (cudarc::cublas::sys::is_culib_present(), "libcublas"),
            (cudarc::curand::sys::is_culib_present(), "libcurand"),
        ]
    };
    match found.iter().find(|(present, _)| !present) {
        Some((_, name)) => Err(crate::Error::Msg(format!("{name} is not found"))),
        None => Ok(()),
    }
}
"""

KERNELS = """fn main() -> cudaforge::Result<()> {
    println!("cargo::rerun-if-changed=src");
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR").unwrap());
    let kernels = cudaforge::KernelBuilder::new()
        .source_dir("src")
        .exclude(&["moe_*.cu", "mmvq_gguf.cu", "mmq_*.cu"])
        .args(["--expt-relaxed-constexpr", "-std=c++17", "-O3"]);
    kernels.build_ptx()?.write(&out.join("ptx.rs"))
}
"""


# For type checks: no kernel, and no compiler for GPUs.
EMPTY = """fn main() {
    let text = std::fs::read_to_string("src/lib.rs").unwrap();
    let names = text.lines().filter_map(|line| line.strip_prefix("mdl!(")?.split(',').next());
    let consts: String = names.map(|name| format!("pub const {name}: &str = \\"\\";\\n")).collect();
    std::fs::write(std::path::PathBuf::from(std::env::var("OUT_DIR").unwrap()).join("ptx.rs"), consts).unwrap();
}
"""


def changed(path, old, new, times):
    """Replaces `old`, which must be there so many times: another version of the crate needs another look."""
    text = path.read_text()
    if text.count(old) != times:
        sys.exit(f"{path}: `{old}` is there {text.count(old)} times, not {times}; adapt {sys.argv[0]} to this version")
    path.write_text(text.replace(old, new))


def main():
    target = pathlib.Path(sys.argv[1])
    packages = {package["name"]: package for package in json.load(sys.stdin)["packages"]}
    for name in ["candle-core", "candle-kernels"]:
        shutil.rmtree(target / name, ignore_errors=True)
        shutil.copytree(pathlib.Path(packages[name]["manifest_path"]).parent, target / name)

    core = target / "candle-core"
    changed(core / "Cargo.toml", '"dynamic-linking"', '"dynamic-loading"', 1)
    device = core / "src/cuda_backend/device.rs"
    opens = "let context = cudarc::driver::CudaContext::new(ordinal).w()?;"
    changed(device, opens, f"libraries()?;\n        {opens}", 2)
    device.write_text(device.read_text() + CHECK)

    kernels = target / "candle-kernels"
    (kernels / "build.rs").write_text(EMPTY if sys.argv[2:] == ["check"] else KERNELS)
    names = sorted(set(re.findall(r"pub fn (\w+)", (kernels / "src/ffi.rs").read_text())))
    left_out = (f'#[no_mangle]\nextern "C" fn {name}() {{\n    panic!("{name} is left out")\n}}\n' for name in names)
    (kernels / "src/left_out.rs").write_text("".join(left_out))
    both = "pub mod ffi;\n#[allow(clashing_extern_declarations)]\nmod left_out;"
    changed(kernels / "src/lib.rs", "pub mod ffi;", both, 1)


main()
