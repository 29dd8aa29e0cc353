//! Generates messages and services from the compiled schemas. `tests/schema.rs` compiles them, so that no build needs a compiler of schemas.

use prost::Message;
use prost_types::FileDescriptorSet;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let compiled = |name: &str| -> Result<FileDescriptorSet, Box<dyn std::error::Error>> {
        let bytes = std::fs::read(format!("proto/{name}.binpb"))?;
        Ok(FileDescriptorSet::decode(bytes.as_slice())?)
    };
    tonic_prost_build::configure()
        .bytes(".")
        .codec_path("crate::codec::WireCodec")
        .compile_fds(compiled("federation")?)?;
    if std::env::var_os("CARGO_FEATURE_OTLP").is_some() {
        tonic_prost_build::configure()
            .build_server(false)
            .compile_fds(compiled("trace")?)?;
    }
    Ok(())
}
