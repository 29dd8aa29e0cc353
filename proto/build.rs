//! Compiles `fl/v1/federation.proto` with protox: no `protoc` is needed on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["fl/v1/federation.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .bytes(".")
        .codec_path("crate::codec::WireCodec")
        .compile_fds(descriptors)?;
    Ok(())
}
