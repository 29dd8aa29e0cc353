//! Compiles the kernels of a GPU into a constant, if the feature `cuda` is on.

#[cfg(not(feature = "cuda"))]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}

#[cfg(feature = "cuda")]
fn main() -> cudaforge::Result<()> {
    const SOURCE: &str = "src/ops/cuda/kernels.cu";
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=FL_CUDA_CHECK");
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join("ptx.rs");
    // A type check needs no compiler for GPUs (`deploy/cuda/build check`).
    if std::env::var_os("FL_CUDA_CHECK").is_some() {
        return Ok(std::fs::write(out, "pub const KERNELS: &str = \"\";")?);
    }
    let kernels =
        cudaforge::KernelBuilder::new()
            .source_files([SOURCE])
            .args(["-std=c++17", "-O3", "--Werror", "all-warnings"]);
    kernels.build_ptx()?.write(&out)
}
